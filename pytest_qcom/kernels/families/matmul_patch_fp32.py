"""Matmuls that tinygrad and Mesa compile, patched: what the notes did to them, by the names of the notes.

The patches work on what the compiled loop computes, see :mod:`pytest_qcom.kernels.rewrites`; with ``patch``
``noop`` the compiled program runs as it is. ``thread128`` is a launch mode; the arithmetic does not depend on
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.errors import KernelError
from pytest_qcom.isa.instruction import Store
from pytest_qcom.isa.program import Program
from pytest_qcom.kernels import blocked, matmul
from pytest_qcom.kernels.compiled import Compiled, compile_matmul
from pytest_qcom.kernels.edit import replace_instructions
from pytest_qcom.kernels.kernel import Argument, Arrays, Build, Case, Kernel
from pytest_qcom.kernels.notes import flag
from pytest_qcom.kernels.rewrites.pipelines import is_word, parse

_ROUNDOFF = 2.0**-24  # of float32, to nearest
_TINY = 2.0**-126  # smallest normal float32; what is smaller becomes 0


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the patched matmuls.

    Attributes:
        m, n, k: all the same.
        patch: words joined by ``_``: ``noop``, ``auto_rpt_f32``, ``rpt1_f32_pairs``,
            ``reorder_rpt_f32_default`` or ``_compact``, or ``rpt3_...`` with the loop that it is about
            (``l25``, ``l23``, ``n384``, ``n512``, ``accum`` or ``n1024``) and ``postinc``, ``half``,
            ``unrollN``, ``nosnop``, ``lastcmp0``, ``b0low``, ``b0_last``, ``accmajor``, ``kNNNN``,
            ``accNNNN``, ``fNN``, ``hoist31``, ``hoist33``, ``hoisty``, ``incoords``, ``prefetch``,
            ``prefetch_aN``, ``aN_early``, ``afirst``; ``half_f16_compact`` and ``_tight``;
            ``blockN`` for halves summed over N steps under float32 totals.
            Such a word may stand by itself beside ``patch`` too.
        no_store, skip_a_loads, skip_b_loads: left out, for throughput; C is then not checked. As in the
            published patches A0 to A3 are the vectors of the products, whose samples give four columns, and
            B0 to B3 the scalars, whose samples give four k.
        thread128: the launch mode.
    """

    m: int = 704
    n: int = 704
    k: int = 704
    patch: str = "rpt3_l25_postinc_unroll22"
    no_store: bool = False
    skip_a_loads: bool = False
    skip_b_loads: bool = False
    thread128: bool = False


def build(options: Options) -> Build:
    """The launch of the patched program.

    Raises:
        KernelError: a shape that is not square, an unknown patch, or one that the compiled program does not
            fit, with the reason.
    """
    compiled = _compiled(options)
    program = parse(options.patch, **_changes(options)).apply(compiled.program)
    if options.no_store:
        stores = [index for index, instr in enumerate(program.instrs) if isinstance(instr.op.effect, Store)]
        program = replace_instructions(program, dict.fromkeys(stores, ()))
    fregs, hregs = program.footprint()
    return Build(
        program=program,
        fregs=fregs,
        hregs=hregs,
        arguments=(
            Argument("C", compiled.output, "float32", image=True, written=True),
            Argument("A", compiled.left, "float32", image=True, written=False),
            Argument("B", compiled.right, "float32", image=True, written=False),
        ),
        groups=compiled.groups,
        local=compiled.local,
        thread128=options.thread128,
        work=2e-9 * options.m * options.n * options.k,
        constants=compiled.constants,
        branchstack=compiled.branchstack,
    )


def _compiled(options: Options) -> Compiled:
    if not options.m == options.n == options.k:
        raise KernelError(
            f"matmul_patch_fp32: {options.m} x {options.n} x {options.k} is no square product; give one size"
        )
    return compile_matmul(options.n)


def _words(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Words of a patch that stand by themselves joined to it, as the notes have them both ways."""
    alone = [name for name, value in given.items() if flag(value) and is_word(name)]
    rest = {name: value for name, value in given.items() if name not in alone}
    if alone:
        rest["patch"] = "_".join(
            (str(given.get("patch", Options.__dataclass_fields__["patch"].default)), *alone)
        )
    return rest


def _changes(options: Options) -> dict[str, bool]:
    changes = {"skip_vectors": options.skip_a_loads, "skip_scalars": options.skip_b_loads}
    return {name: True for name, given in changes.items() if given}


def original(options: Options) -> Program:
    """The compiled program before the patch."""
    return _compiled(options).program


def _inputs(options: Options, rng: np.random.Generator) -> Arrays:
    """Standard normal matrices; what the images hold behind them is noise too."""
    compiled = _compiled(options)
    return {
        "A": rng.standard_normal(compiled.left).astype(np.float32),
        "B": rng.standard_normal(compiled.right).astype(np.float32),
    }


def matrices(options: Options, arrays: Arrays) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A and B as they lie in the images: rows of k, and vec4 columns of k."""
    n = options.n
    a = arrays["A"].reshape(n, -1)[:, :n]
    b = arrays["B"].reshape(n // 4, -1, 4)[:, :n].transpose(1, 0, 2).reshape(n, n)
    return a.astype(np.float64), b.astype(np.float64)


def _half(options: Options) -> bool:
    """Whether samples are halves."""
    return "half" in options.patch.split("_") or _block(options) > 0


def _block(options: Options) -> int:
    """Steps whose products are summed as halves under float32 totals; 0 for other sums."""
    found = [word.removeprefix("block") for word in options.patch.split("_") if word.startswith("block")]
    return int(found[-1]) if found else 0


def _sampled(options: Options, arrays: Arrays) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A and B as the samples give them: rounded to float16 where those are halves."""
    a, b = matrices(options, arrays)
    if not _half(options):
        return a, b
    return a.astype(np.float16).astype(np.float64), b.astype(np.float16).astype(np.float64)


def _checked(options: Options) -> bool:
    return not (options.no_store or options.skip_a_loads or options.skip_b_loads)


def _oracle(options: Options, arrays: Arrays) -> Arrays:
    """``A @ B`` in float64; nothing where loads or stores are left out."""
    if not _checked(options):
        return {}
    a, b = _sampled(options, arrays)
    return {"C": (a @ b).reshape(_compiled(options).output)}


def _tolerance(options: Options, arrays: Arrays) -> Mapping[str, Any]:
    """Of a chain of k unfused steps in any order: each rounds a product and a sum, and may flush both.

    So an element is off by at most ``(k + 1) u / (1 - (k + 1) u)`` times the sum of its ``|a b|``, with
    ``u = 2**-24``, and ``2 k`` times the smallest normal number. Of halves: that of :mod:`matmul`,
    whose blocks of steps are multiples of four, so that the order within four does not matter.
    """
    if not _checked(options):
        return {}
    a, b = _sampled(options, arrays)
    if block := _block(options):
        return {"C": blocked.bound(a, b, 4 * block).reshape(_compiled(options).output)}
    if _half(options):
        bound = matmul.half_bound(options, matmul.images(options, a, b))["C"]
        return {"C": bound.reshape(_compiled(options).output)}
    share = (options.k + 1) * _ROUNDOFF
    bound = share / (1 - share) * (np.abs(a) @ np.abs(b)) + 2 * options.k * _TINY
    return {"C": bound.reshape(_compiled(options).output)}


PATCHED = Kernel(
    name="matmul_patch_fp32",
    summary="float32 matmuls that Mesa compiled, patched by data flow",
    options=Options,
    build=build,
    inputs=_inputs,
    oracle=_oracle,
    tolerance=_tolerance,
    unit="GFLOPS",
    reads=_words,
    cases=(
        Case("n128-noop", dict(m=128, n=128, k=128, patch="noop")),
        Case("n128-blocked", dict(m=128, n=128, k=128, patch="rpt3_block2_unroll4_postinc_nosnop")),
        Case("n128", dict(m=128, n=128, k=128, patch="rpt3_postinc_unroll4_nosnop")),
    ),
    source="qcom_ir3_matmul_patch.py of tinygrad's QCOM GEMM experiments",
)

KERNELS = (PATCHED,)
