"""Weights that were packed in another order: the same halves, at other places of each group of eight.

Eight halves are what one texel of four words holds. A program that takes its first four for one vector and
the others for the next one computes nonsense of weights that were packed as pairs of both; the values are
all there, so that statistics of them show nothing.
"""

from __future__ import annotations

import numpy as np

from pytest_qcom.openpilot.graph import Call, Kind

WIDTH = 8
"""Halves of a group: a texel of four words."""


def order(before: bytes, after: bytes) -> tuple[int, ...] | None:
    """Which half of a group of ``before`` stands at each place of the groups of ``after``.

    Returns:
        A permutation of eight lanes that holds for all groups, other than the identity; ``None`` if there is
        none. Lanes that are equal throughout are told apart by their place.
    """
    if len(before) != len(after) or len(before) % (2 * WIDTH) or before == after:
        return None
    one, other = (np.frombuffer(data, np.uint16).reshape(-1, WIDTH) for data in (before, after))
    found: list[int] = []
    for lane in range(WIDTH):
        left = [each for each in range(WIDTH) if each not in found]
        same = [each for each in left if np.array_equal(one[:, each], other[:, lane])]
        if not same:
            return None
        found.append(lane if lane in same else same[0])
    return tuple(found)


def orders(before: Call, after: Call) -> dict[int, list[int]]:
    """The :func:`order` of each argument that is a weight of both calls, by number, where there is one."""
    found = {}
    for number, (one, other) in enumerate(zip(before.views, after.views, strict=False)):
        if one.memory.kind is Kind.WEIGHT and other.memory.kind is Kind.WEIGHT:
            lanes = order(one.array().tobytes(), other.array().tobytes())
            if lanes is not None:
                found[number] = list(lanes)
    return found
