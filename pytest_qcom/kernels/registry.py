"""The declared kernels by name. A file in ``families`` that is not listed here fails a test."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_qcom.errors import KernelError, closest
from pytest_qcom.kernels.families import (
    alu_peak,
    gemm_4x4_fp16,
    gemm_4x4_fp32_halfwave,
    gemm_4x8_fp32_batched,
    gemm_4x8_fp32_rotate,
    gemm_4x8_fp32_splitk,
    gemm_4x8_fp32_waksman,
    gemm_4xn_fp16,
    gemm_4xn_fp16_published,
    gemm_4xn_fp32_published,
    gemm_4xn_fp32_quad,
    gemm_8x8_fp16_batched,
    gemm_8x8_fp16_packed,
    gemm_8x8_fp16_packed_published,
    gemm_8x8_fp16_planar,
    gemm_8x8_fp16_planar_published,
    gemm_8x8_fp32_batched,
    gemm_8xn_fp16,
    gemm_8xn_fp16_published,
    gemm_8xn_fp32_published,
    gemm_blocked_fp32,
    gemm_compiled_fp16,
    gemm_dp4,
    gemm_image_local,
    gemm_int8_fp32,
    gemm_local_fp16,
    gemm_rxc_fp32,
    gemm_wide_fp32_published,
    mad_peak,
    matmul_patch_fp32,
    pack_banked,
    packed_alias,
    probe_branch,
    probe_compiled_branch,
    probe_images,
    qpack,
    shuffle,
    strassen_combine,
    strassen_fused,
    strassen_products,
    strassen_terminal_hand,
    strassen_transform,
    subgroup,
    texture_bw,
)
from pytest_qcom.kernels.kernel import Kernel

FAMILIES = (
    gemm_4x4_fp16,
    gemm_4xn_fp16,
    gemm_4xn_fp16_published,
    gemm_8x8_fp16_batched,
    gemm_8x8_fp16_packed,
    gemm_8x8_fp16_packed_published,
    gemm_8x8_fp16_planar,
    gemm_8x8_fp16_planar_published,
    gemm_8xn_fp16,
    gemm_8xn_fp16_published,
    gemm_rxc_fp32,
    gemm_4x8_fp32_rotate,
    gemm_4x8_fp32_batched,
    gemm_8x8_fp32_batched,
    gemm_4x4_fp32_halfwave,
    gemm_4x8_fp32_splitk,
    gemm_4x8_fp32_waksman,
    gemm_4xn_fp32_published,
    gemm_4xn_fp32_quad,
    gemm_8xn_fp32_published,
    gemm_wide_fp32_published,
    gemm_blocked_fp32,
    gemm_compiled_fp16,
    gemm_dp4,
    gemm_int8_fp32,
    gemm_local_fp16,
    gemm_image_local,
    matmul_patch_fp32,
    pack_banked,
    packed_alias,
    qpack,
    strassen_transform,
    strassen_combine,
    strassen_products,
    strassen_fused,
    strassen_terminal_hand,
    alu_peak,
    mad_peak,
    texture_bw,
    shuffle,
    subgroup,
    probe_branch,
    probe_compiled_branch,
    probe_images,
)


def collect(kernels: Iterable[Kernel]) -> dict[str, Kernel]:
    """The kernels by name.

    Raises:
        KernelError: two have one name, or two cases of a kernel have.
    """
    found: dict[str, Kernel] = {}
    for kernel in kernels:
        if kernel.name in found:
            raise KernelError(f"two kernels are called {kernel.name}; rename one")
        names = [case.name for case in kernel.cases]
        if doubles := sorted({name for name in names if names.count(name) > 1}):
            raise KernelError(
                f"kernel {kernel.name} has several cases called {', '.join(doubles)}; rename them"
            )
        found[kernel.name] = kernel
    return found


KERNELS: dict[str, Kernel] = collect(kernel for family in FAMILIES for kernel in family.KERNELS)


def find(name: str) -> Kernel:
    """The kernel called ``name``.

    Raises:
        KernelError: there is none.
    """
    if name in KERNELS:
        return KERNELS[name]
    raise KernelError(f"no kernel is called {name!r}; {closest(name, KERNELS)} ('qcom list' shows them)")
