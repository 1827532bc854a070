"""Families by the names that tables, notes and scripts give them, where those are not the declared ones."""

from __future__ import annotations

import re
from collections.abc import Collection

OTHERS = {
    "fp16_mad_peak": ("mad_peak", "dtype=fp16"),
    "fp32_mad_peak": ("mad_peak", "dtype=fp32"),
    "texture_bandwidth": ("texture_bw", ""),
    "shuffle": ("shfl_probe", "op=shfl"),
    "quad_broadcast": ("shfl_probe", "op=quad mode=brcst"),
    "fiberid": ("shfl_probe", "fiberid"),
    "divergent_branch": ("shfl_probe", "branch"),
    "subgroup_broadcast": ("subgroup_probe", ""),
    "consecutive_isam": ("image_probe", "way=consecutive"),
    "pointer_add": ("image_probe", "way=pointer"),
    "rw_image": ("image_probe", "way=storage"),
    "image_buffer": ("image_probe", "way=storage"),
    "packed8_gemm": ("gemm_8x8_fp16", "packed8"),
    "planar_b": ("gemm_8x8_fp16", "planar"),
    "globalb_half": ("globalb_gemm", ""),
    "gemm_4x4_dp4": ("gemm_dp4", ""),
    "matmul_patch_fp16": ("matmul_patch_fp32", "patch=half_f16_compact"),
}
"""Name to the declared family, and the words that it stands for."""


def declared(family: str, known: Collection[str]) -> tuple[str, str]:
    """The declared family and the words that ``family`` means beside it.

    Where tiles of all widths are one family, or each is its own, a name of the other kind is understood:
    ``gemm_4x16_fp16`` is ``gemm_4xn_fp16`` with ``ncols=4``. Where neither is known and words stand in
    another order, or some are left out, that is the family with the fewest words more, if it is one.
    """
    if family in known:
        return family, ""
    if family in OTHERS:
        return OTHERS[family]
    tile = re.fullmatch(r"(gemm_\dx)(\d+)(_\w+)", family)
    if tile and f"{tile[1]}n{tile[3]}" in known and int(tile[2]) % 4 == 0:
        return f"{tile[1]}n{tile[3]}", f"ncols={int(tile[2]) // 4}"
    return _alike(family, known) or family, ""


def of_tile(family: str, ncols: str) -> str:
    """``gemm_8xn_fp16`` with its number of vec4 columns, where each has a family: ``gemm_8x8_fp16``."""
    return re.sub(r"(?<=x)n(?=_)", str(4 * int(ncols)), family) if ncols.isdecimal() else family


def _alike(family: str, known: Collection[str]) -> str:
    wanted = set(family.split("_"))
    more = {name: len(set(name.split("_")) - wanted) for name in known if wanted <= set(name.split("_"))}
    nearest = [name for name, count in more.items() if count == min(more.values())]
    return nearest[0] if len(nearest) == 1 else ""
