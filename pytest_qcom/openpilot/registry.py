"""The declared patches by name, in the order in which a pipeline applies them."""

from __future__ import annotations

import functools

from pytest_qcom.errors import PatchError, closest
from pytest_qcom.openpilot import models, patch
from pytest_qcom.openpilot.patch import Applied, Patch
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


@functools.cache
def applied(name: str, model: str) -> Applied:
    """A declared patch on a declared model, once a process.

    Raises:
        PatchError, GraphError: there is no such one, or the patch is wrong.
    """
    return patch.apply(find(name), models.captured(model))
