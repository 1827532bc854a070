"""The sweep over texture and image partitions (SP_CS_TSIZE, SP_CS_USIZE) that the notes made on the device.

They found every pair alike, but for a TSIZE of 1, which gave zeros: too few slots for the textures. Here too
few slots are a finding that counts, more than needed a harmless one, and the launch is the same in all.
"""

from __future__ import annotations

import pytest

from pytest_qcom.virtual.dispatch import Format
from suites.virtual.bench import Bench, descriptor

TEXTURES, IMAGES = 2, 1
PAIRS = [(128, 64), (1, 1), (1, 64), (64, 1), (32, 32), (64, 32), (128, 32), (64, 64), (2, 64), (4, 64)]


@pytest.mark.parametrize(("tsize", "usize"), PAIRS)
def test_sweep(tsize: int, usize: int) -> None:
    bench = Bench()
    half = Format.RGBA16_FLOAT.value
    place = bench.buffer(64 * 4)
    textures = [descriptor(place, 8, 4, 64, half)] * TEXTURES
    uavs = [descriptor(place, 7, 3, 64, half, w0=half << 22)] * IMAGES
    counts = {"SP_CS_TSIZE": tsize, "SP_CS_USIZE": usize}
    bench.submit(bench.launch(textures=textures, uavs=uavs, **counts))
    (dispatch,) = bench.executor.launches
    assert (len(dispatch.textures), len(dispatch.images)) == (TEXTURES, IMAGES)
    found = {
        finding.register: (finding.value, finding.needed, finding.harmless) for finding in bench.gpu.findings
    }
    expected = {}
    if tsize != TEXTURES:
        expected["SP_CS_TSIZE"] = (tsize, TEXTURES, tsize > TEXTURES)
    if usize != IMAGES:
        expected["SP_CS_USIZE"] = (usize, IMAGES, True)
    assert found == expected
