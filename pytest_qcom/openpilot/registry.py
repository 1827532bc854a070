"""The declared patches by name, in the order in which a pipeline applies them."""

from __future__ import annotations

from pytest_qcom.errors import PatchError, closest
from pytest_qcom.openpilot.patch import Patch
from pytest_qcom.openpilot.patches import (
    ablations,
    arithmetic,
    attention,
    blocks,
    calls,
    gemms,
    launches,
    packs,
    programs,
    tiles,
    weights,
)

FAMILIES = (arithmetic, attention, blocks, gemms, tiles, weights, packs, launches, programs, calls, ablations)

PATCHES: dict[str, Patch] = {patch.name: patch for family in FAMILIES for patch in family.PATCHES}


def find(name: str) -> Patch:
    """The patch called ``name``.

    Raises:
        PatchError: there is none.
    """
    if name in PATCHES:
        return PATCHES[name]
    raise PatchError(f"no patch is called {name!r}; {closest(name, PATCHES)}")
