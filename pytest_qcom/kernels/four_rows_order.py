"""What the published 4-row FP16 GEMMs do in a K step, and which coordinates they do it with."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

from pytest_qcom.kernels.choices import extended
from pytest_qcom.kernels.four_rows import ROWS, Published
from pytest_qcom.kernels.noted import Aimed, AimLater, Drain, Grouped, Noted
from pytest_qcom.kernels.schedule import ALL_K, Load, Multiply, Phase, Phases, Schedule, Step
from pytest_qcom.kernels.writer import Writer

_ALL = tuple(range(ROWS))
_SINGLE_ORDER = (0, 2, 1, 3)  # of single-cols-all


def coordinates(options: Published) -> Noted:
    """The policy that the options choose."""
    common = Noted(
        ncols=options.ncols,
        stable_bx=options.stable_bx,
        stable_ay=options.stable_ay or options.high_inputs or options.separate_b_coords,
        inc_coords=options.inc_coords,
        persistent_coords=options.persistent_coords,
        coord_delay=options.coord_delay,
        skip="A" * options.skip_a_loads + "B" * options.skip_b_loads,
        start=options.k_start,
        parts=max(1, options.dynamic_split_k),
        part_rows=options.m,
        part_steps=options.steps,
        quad=options.quad_a,
        drained=options.high_a_only,
        odd_wait="copies" if options.safe_b_y else "sy" if options.sync_b_y else "",
        last_flagged=options.serial_b_cols,
    )
    if options.interleave_second_pair:
        return extended(Aimed, common)
    if not options.grouped:
        return common
    late = options.separate_b_coords or options.high_b_coords or options.isolated
    return extended(
        Grouped,
        common,
        by_k=options.b_kk_pipeline,
        kept_x=options.persistent_b_coords or options.persistent_b_x,
        added_y=options.persistent_b_coords,
        shifted=options.reuse_separate_b_y,
        drain="ss" if late else "sy" if options.preload_b_safe_coords else "",
        settle=options.coord_delay if options.b_kk_pipeline else options.stable_settle_delay,
    )


def phases(options: Published, step: Step) -> Phases:
    """A K step."""
    found = _pipelined(step) if options.pipeline else _ordered(options)
    if options.first_cols_only:
        found = tuple(part for phase in found for part in _of_columns(phase, options.multiplied))
    if options.copy_b_probe:
        found = tuple(part for phase in found for part in _copied(phase))
    rows = [_by_row(phase) if options.row_sync else (phase,) for phase in found]
    return tuple(again for phase in rows for part in phase for again in _repeated(part, options.alu_reps))


def _by_row(phase: Phase) -> Phases:
    """Products with a (sy) a row."""
    if not isinstance(phase, Multiply):
        return (phase,)
    return tuple(
        Multiply((row,), phase.cols, phase.kk, () if number else phase.behind, phase.bank, sync=True)
        for number, row in enumerate(phase.rows)
    )


def _of_columns(phase: Phase, columns: tuple[int, ...]) -> Phases:
    """Products of some columns alone; samples stay, even where none of theirs are left."""
    if not isinstance(phase, Multiply):
        return (phase,)
    left = tuple(col for col in phase.cols if col in columns)
    return (replace(phase, cols=left),) if left else phase.behind


def _copied(phase: Phase) -> Phases:
    """The first k of B in place of products."""
    if not isinstance(phase, Multiply):
        return (phase,)
    copies = (CopyB(phase.rows, phase.cols, phase.bank),) if 0 in phase.kk else ()
    return (*copies, *phase.behind)


def _repeated(phase: Phase, times: int) -> Phases:
    """Products again, of which only the first wait."""
    if not isinstance(phase, Multiply):
        return (phase,)
    again = Multiply(phase.rows, phase.cols, phase.kk, bank=phase.bank, sync=False)
    return (phase, *[again] * (times - 1))


def _ordered(options: Published) -> Phases:
    a, first = Load("A", _ALL), tuple(range(min(options.ncols, 2)))
    start: tuple[Load, ...] = (Load("B", first), a) if options.b_first else (a, Load("B", first))
    if options.stream_b:
        return (*start, *_streamed(), Multiply(_ALL, (2, 3), sync=not options.stream_b_no_sync or None))
    if options.interleave_second_pair:
        aim = AimLater(options.stable_settle_delay)
        return (*start, aim, *_streamed(), Multiply(_ALL, (2, 3), sync=True))
    if options.b_kk_pipeline:
        return (a, *_by_k())
    if options.serial_b_cols or options.single_cols_all:
        return _serial(options, a)
    if options.preload_b:
        columns = [Load("B", pair) for pair in _pairs(options.ncols)]
        loads = (*columns, a) if options.b_first else (a, *columns)
        return (*loads, *(Multiply(_ALL, pair) for pair in _pairs(options.ncols)))
    if options.preserve_coords:
        return _preserved(options)
    found: list[Load | Multiply] = [*start]
    own = options.separate_b_coords or options.high_b_coords or options.isolated
    waits = own or (options.grouped and not options.first_sync_only)
    for pair in _pairs(options.ncols):
        if pair[0]:
            found.append(Load("B", pair))
        found.append(Multiply(_ALL, pair, sync=True if waits else None))
    return tuple(found)


def _pairs(ncols: int) -> list[tuple[int, ...]]:
    return [tuple(range(first, min(first + 2, ncols))) for first in range(0, ncols, 2)]


def _streamed() -> list[Load | Multiply]:
    """Columns 2 and 3 go into the texels of columns 0 and 1, k by k."""
    found: list[Load | Multiply] = []
    for kk in ALL_K:
        found += [Multiply(_ALL, (0, 1), (kk,)), Load("B", (2, 3), (kk,))]
    return found


def _by_k() -> list[Load | Multiply]:
    """All columns of the next k are sampled behind the first product of this one.

    Where they are sampled is inferred: the notes miss one or two contributions, those of texels that come for
    the first time and that nothing waits for; before the first product its (sy) would wait for them.
    """
    columns = tuple(range(4))
    found: list[Load | Multiply] = [Load("B", columns, (0,))]
    for kk in ALL_K:
        following = (Load("B", columns, (kk + 1,)),) if kk < ALL_K[-1] else ()
        found.append(Multiply(_ALL, columns, (kk,), behind=following))
    return found


def _serial(options: Published, a: Load) -> Phases:
    columns = range(options.ncols) if options.serial_b_cols else _SINGLE_ORDER
    found: list[Load | Multiply | Drain] = [a]
    for number, col in enumerate(columns):
        if options.single_cols_all or not number:
            found.append(Drain(idle=2))
        found += [Load("B", (col,)), Multiply(_ALL, (col,), sync=True)]
    return tuple(found)


def _preserved(options: Published) -> Phases:
    """Row 1 goes where row 0 was, for each two columns anew."""
    found: list[Load | Multiply] = [Load("A", (2, 3))]
    for pair in _pairs(options.ncols):
        found += [Load("A", (0,)), Load("B", pair), Multiply((0, 2, 3), pair, sync=True)]
        found += [Load("A", (1,)), Multiply((1,), pair, sync=True)]
    return tuple(found)


def _pipelined(step: Step) -> Phases:
    bank = step.index % 2
    later = Load("B", (2, 3), bank=bank)
    following = Load("A", _ALL, ahead=1, bank=1 - bank), Load("B", (0, 1), ahead=1, bank=1 - bank)
    return (
        Multiply(_ALL, (0, 1), behind=(later,), bank=bank, sync=True),
        Multiply(_ALL, (2, 3), behind=following, bank=bank, sync=True),
    )


@dataclass(frozen=True, slots=True)
class CopyB:
    """Accumulators of some rows and columns become the first of the columns' four texels."""

    rows: tuple[int, ...]
    cols: tuple[int, ...]
    bank: int = 0

    def emit(self, w: Writer, schedule: Schedule, step: Step) -> None:
        for number, (row, col) in enumerate(itertools.product(self.rows, self.cols)):
            source = schedule.vector(col, 0, self.bank)
            w.emit("mov.u16u16", schedule.accumulator(row, col, 0), f"(r){source}", rpt=3, sy=not number)


PRIMED = (Load("A", _ALL), Load("B", (0, 1)))
"""What the pipeline samples before its loop."""
