"""Reads of images by the two ways there are, the vendor compiler's consecutive reads, and a pointer's step.

``texture`` samples; ``storage`` writes texels through the image's descriptor and loads them back the same
way, in one launch, where the texture cache would not see them; ``consecutive`` samples four rows into four
destinations behind one wait and adds them up; ``pointer`` stores twice, 256 bytes apart, once by the store's
own offset and once by a 64-bit addition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.errors import KernelError
from pytest_qcom.isa.registers import Reg
from pytest_qcom.kernels.kernel import Argument, Arrays, Build, Case, Kernel
from pytest_qcom.kernels.registers import RegisterPlan
from pytest_qcom.kernels.schedule import LARGEST_IMMEDIATE
from pytest_qcom.kernels.stores import POINTER
from pytest_qcom.kernels.waits import insert_waits
from pytest_qcom.kernels.words import emit_fiber_number
from pytest_qcom.kernels.writer import Writer, constant_name

_THREADS = 128
_STEP = 256  # bytes between a fiber's two stores, 32 texels of halves


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the image probe.

    Attributes:
        way: ``texture``, ``storage``, ``consecutive`` or ``pointer``.
        dtype: of the image: ``float16`` or ``float32``; what is read is converted, what is stored is half.
        groups: workgroups of 128 fibers; a fiber has a texel of its own, or a column of four.
        by_offset: of ``pointer``: the second address is the store's offset, not an addition.
    """

    way: str = "texture"
    dtype: str = "float16"
    groups: int = 4
    by_offset: bool = False


def build(options: Options) -> Build:
    """The probe's launch."""
    name = "image_probe"
    if options.way not in _WAYS:
        raise KernelError(f"{name}: way is {options.way!r}; give one of {', '.join(_WAYS)}")
    if options.dtype not in ("float16", "float32"):
        raise KernelError(f"{name}: dtype is {options.dtype!r}; give float16 or float32")
    if not 1 <= options.groups <= 8 or (options.way == "pointer" and options.groups > LARGEST_IMMEDIATE):
        raise KernelError(f"{name}: groups is {options.groups}; give 1 to 8, an image's width of fibers")
    plan = RegisterPlan().place("lid", "r0.x", 1).place("scratch", "r1.x", 4).place("number", "r2.x", 1)
    plan = plan.place("pairs", "r3.x", 8).place("texel", "r5.x", 4).place("back", "r6.x", 4)
    plan = plan.place("halves", "hr0.x", 16)
    w = Writer()
    emit_fiber_number(w, plan["number"][0], plan["scratch"][0], options.groups, _THREADS)
    images = _WAYS[options.way](w, plan, options)
    w.end()
    program = insert_waits(w.program())
    fregs, hregs = program.footprint()
    fibers = options.groups * _THREADS
    elements = fibers * 4 + (_STEP // 2 if options.way == "pointer" else 0)
    return Build(
        program=program,
        fregs=fregs,
        hregs=hregs,
        arguments=(*images, Argument("C", (elements,), "float16", False, True, pointer=POINTER)),
        groups=(options.groups, 1, 1),
        local=(_THREADS, 1, 1),
        thread128=True,
        work=1e-9 * fibers * 8,
    )


def _store(w: Writer, plan: RegisterPlan, data: Reg, offset: int = 0) -> None:
    """A vec4 of halves to the fiber's place in C."""
    low, high = constant_name(POINTER), constant_name(POINTER + 1)
    address, carry = plan["scratch"][0], plan["scratch"][2]
    w.alu("shl.b", address, plan["number"][0], 3)
    w.alu("add.u", address, address, low)
    w.alu("cmps.u.lt", carry, address, low)
    w.alu("add.u", address + 1, carry, high)
    w.store_half(address, data, offset)


def _texture(w: Writer, plan: RegisterPlan, options: Options) -> tuple[Argument, ...]:
    """One texel a fiber of an image of one row: what the notes call an image buffer."""
    w.mov(plan["pairs"][0], plan["number"][0])
    w.mov(plan["pairs"][1], 0)
    w.isam(plan["halves"][0], plan["pairs"][0], texture=0)
    _store(w, plan, plan["halves"][0])
    return (Argument("X", (1, options.groups * _THREADS, 4), options.dtype, image=True, written=False),)


def _storage(w: Writer, plan: RegisterPlan, options: Options) -> tuple[Argument, ...]:
    """Texel (x, 0) of the image becomes (x, x + 1, x + 2, x + 3) / 2, and C what is read back."""
    pair, texel, back = plan["pairs"][0], plan["texel"], plan["back"]
    w.mov(pair, plan["number"][0])
    w.mov(pair + 1, 0)
    for lane in range(4):
        w.alu("add.u", texel[lane], plan["number"][0], lane)
        w.emit("cov.u32f32", texel[lane], texel[lane])
        w.alu("mul.f", texel[lane], texel[lane], "(0.5)")
    w.store_texel(texel[0], pair)
    w.emit("fence.g.r.w")  # the load may not pass the store
    w.emit("nop", ss=True)
    w.emit("ldib.b.typed.2d.f32.4.imm", back[0], pair, 0, sy=True)
    for lane in range(4):
        w.emit("cov.f32f16", plan["halves"][lane], back[lane])
    _store(w, plan, plan["halves"][0])
    return (Argument("X", (1, options.groups * _THREADS, 4), options.dtype, image=True, written=True),)


def _consecutive(w: Writer, plan: RegisterPlan, options: Options) -> tuple[Argument, ...]:
    """Four rows of a column, in as many destinations, then their sum: one wait in all."""
    pairs, halves = plan["pairs"], plan["halves"]
    for row in range(4):
        w.mov(pairs[2 * row], plan["number"][0])
        w.mov(pairs[2 * row + 1], row)
    for row in range(4):
        w.isam(halves.vec(row), pairs[2 * row], texture=0)
    for row in range(1, 4):
        w.alu("add.f", halves[0], f"(r){halves[0]}", f"(r){halves.vec(row)}", rpt=3)
    _store(w, plan, halves[0])
    return (Argument("X", (4, options.groups * _THREADS, 4), options.dtype, image=True, written=False),)


def _pointer(w: Writer, plan: RegisterPlan, options: Options) -> tuple[Argument, ...]:
    """1 at the fiber's place, then 2 a step on: the last fibers' second stores lie behind all others."""
    address, carry = plan["scratch"][0], plan["scratch"][2]
    for lane in range(4):
        w.set_half(plan["halves"][lane], 0x3C00)
        w.set_half(plan["halves"][4 + lane], 0x4000)
    _store(w, plan, plan["halves"][0])
    if options.by_offset:
        w.store_half(address, plan["halves"][4], _STEP)
        return ()
    w.alu("add.u", plan["texel"][0], address, _STEP)
    w.alu("cmps.u.lt", carry, plan["texel"][0], address)
    w.alu("add.u", plan["texel"][1], address + 1, carry)
    w.store_half(plan["texel"][0], plan["halves"][4], 0)
    return ()


_WAYS: Mapping[str, Callable[[Writer, RegisterPlan, Options], tuple[Argument, ...]]] = {
    "texture": _texture,
    "storage": _storage,
    "consecutive": _consecutive,
    "pointer": _pointer,
}


def _inputs(options: Options, rng: np.random.Generator) -> Arrays:
    """Random quarters, whose sums of four are exact halves."""
    rows = {"texture": 1, "consecutive": 4}.get(options.way)
    if rows is None:
        return {}
    values = rng.integers(-64, 65, (rows, options.groups * _THREADS, 4)) / 4
    return {"X": values.astype(options.dtype)}


def _oracle(options: Options, arrays: Arrays) -> Arrays:
    """The texels, their sums, or the two stores, the later one over the earlier."""
    if options.way == "storage":
        texels = (np.arange(options.groups * _THREADS)[:, None] + np.arange(4)) / 2
        return {"X": texels[None], "C": texels.reshape(-1)}
    if options.way == "pointer":
        return {"C": _two_stores(options)}
    return {"C": arrays["X"].astype(np.float64).sum(axis=0).reshape(-1)}


def _two_stores(options: Options) -> NDArray[np.float64]:
    """1 where only the first store went, else 2, if all first stores come before all second ones."""
    values = np.full(options.groups * _THREADS * 4 + _STEP // 2, 2.0)
    values[: _STEP // 2] = 1
    return values


def _tolerance(options: Options, arrays: Arrays) -> Mapping[str, Any]:
    """0, but for ``pointer``: there, of two waves that store to one place, either may be the later one."""
    if options.way != "pointer":
        return {"C": 0.0, "X": 0.0}
    certain = np.ones(options.groups * _THREADS * 4 + _STEP // 2)
    wave = 4 * _THREADS  # elements of a wave: within it the second stores come later
    for start in range(0, len(certain) - _STEP // 2, wave):
        certain[start + _STEP // 2 : start + wave] = 0
    certain[: _STEP // 2] = 0
    certain[-_STEP // 2 :] = 0
    return {"C": certain}


IMAGES = Kernel(
    name="image_probe",
    summary="image reads by texture and by storage, and the steps of a pointer",
    options=Options,
    build=build,
    inputs=_inputs,
    oracle=_oracle,
    tolerance=_tolerance,
    unit="GB/s",
    cases=(
        *(Case(f"texture-{dtype}", dict(dtype=dtype)) for dtype in ("float16", "float32")),
        *(Case(f"storage-{dtype}", dict(way="storage", dtype=dtype)) for dtype in ("float16", "float32")),
        Case("consecutive", dict(way="consecutive")),
        Case("pointer-add", dict(way="pointer")),
        Case("pointer-offset", dict(way="pointer", by_offset=True)),
    ),
    claim="probe",
    source="qcom_ibo_probe.py, qcom_compiler_isam_schedule.py and qcom_pointer_add_schedule.py of tinygrad's "
    "QCOM GEMM experiments",
)

KERNELS = (IMAGES,)
