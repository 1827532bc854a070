"""Writes a recognised matmul loop anew: vector products, own registers, several steps a pass.

A sample has its coordinates in the first two registers of its own result, which nothing else needs at that
time, or, where there is room, in a pair of its own, in which they may advance in place. The products of an
accumulator keep their order, so that every sum comes out bit by bit as before; only ``k_order`` changes it,
and with it the rounding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from pytest_qcom.isa.access import writes
from pytest_qcom.isa.assembler import assemble
from pytest_qcom.isa.instruction import Instr, Kind, Operand
from pytest_qcom.isa.program import Program
from pytest_qcom.isa.registers import Reg, Ty
from pytest_qcom.kernels.edit import branches, replace_instructions, with_target
from pytest_qcom.kernels.rewrites.accumulators import LANES, Matmul, Product, recognise, temporaries
from pytest_qcom.kernels.rewrites.loop import Mismatch, Value, constant_before, copies
from pytest_qcom.kernels.rewrites.registers import Registers
from pytest_qcom.kernels.rewrites.schedule import Schedule
from pytest_qcom.kernels.rewrites.strides import stride
from pytest_qcom.kernels.waits import insert_waits, nop


def rewrite(program: Program, schedule: Schedule) -> Program:
    """The program with its matmul loop in ``schedule``.

    Raises:
        Mismatch: the loop is no matmul, does not divide, or needs more registers than there are.
    """
    matmul = recognise(program)
    if matmul.passes % schedule.unroll:
        raise Mismatch(f"the loop has {matmul.passes} passes, which unroll={schedule.unroll} does not divide")
    if schedule.block and schedule.unroll % schedule.block:
        raise Mismatch(f"blocks of {schedule.block} steps do not divide unroll={schedule.unroll}")
    return _Writer(program, matmul, schedule).program()


def unsampled(program: Program, skip_scalars: bool = False, skip_vectors: bool = False) -> Program:
    """The program without the samples of its loop whose lanes are scalars or vectors of products.

    For throughput alone: what is multiplied is then whatever the registers hold.

    Raises:
        Mismatch: the loop is no matmul.
    """
    matmul = recognise(program)
    scalars = {product.scalar[0] for vector in matmul.vectors for product in vector.products}
    left_out = {
        sample.index: ()
        for number, sample in enumerate(matmul.found.samples)
        if (skip_scalars if number in scalars else skip_vectors)
    }
    return replace_instructions(program, left_out)


class _Writer:
    """The loop as it is written, with the registers that it uses."""

    def __init__(self, program: Program, matmul: Matmul, schedule: Schedule) -> None:
        self._old, self._matmul, self._schedule = program, matmul, schedule
        self._code: list[Instr] = []
        self._strides: dict[tuple[int, int], int] = {}
        self._registers = Registers(matmul, schedule)
        self._ahead, self._early = (self._of_k(steps) for steps in (schedule.prefetch, schedule.early))
        if schedule.incoords:
            self._strides = self._advances()

    def program(self) -> Program:
        """Everything before the loop, the loop, everything behind it, with the waits that it needs."""
        found, old = self._matmul.found, self._old
        if self._schedule.half and not self._schedule.block:
            self._zero()
        else:
            self._moves(self._homes(start=True))
        for number in self._registers.order:
            for axis, value in enumerate(found.samples[number].srcs):
                if self._registers.hoisted(number, axis):
                    assert isinstance(value, Value)
                    self._emit(self._copy(value, self._registers.pairs[number] + axis, value.entry))
        whole = self._schedule.incoords
        self._coordinates(self._registers.free(), self._registers.order if whole else self._ahead)
        for number in self._ahead:  # of the first step; the counter is 0
            self._sample(number)
        start = found.header + len(self._code)
        self._loop()
        leave = found.header + len(self._code)
        self._moves((reg, home) for home, reg in self._homes(start=False))
        tail = found.header + len(self._code)
        moved = {index: index for index in range(found.header)}
        moved[found.header] = start
        moved |= {index: index - found.leave + tail for index in range(found.leave, len(old.instrs))}
        moved[found.leave] = leave
        instrs = [self._copied(index, moved, index) for index in range(found.header)]
        instrs += self._code
        for index in range(found.leave, len(old.instrs)):
            instrs.append(self._copied(index, moved, len(instrs)))
        return insert_waits(Program(tuple(instrs)))

    def _copied(self, index: int, moved: dict[int, int], at: int) -> Instr:
        instr = self._old.instrs[index]
        return with_target(instr, moved[self._old.target(index)] - at) if branches(instr) else instr

    def _zero(self) -> None:
        """Accumulators of halves start at 0, which those of the compiler must, too."""
        for acc, vector in zip(self._registers.acc, self._matmul.vectors, strict=True):
            for reg in vector.registers:
                if constant_before(self._old, reg, self._matmul.found.header) != 0:
                    raise Mismatch(f"the accumulator {reg} does not start at 0")
            self._emit(assemble(f"(rpt3)mov.u16u16 {acc}, 0"))

    def _of_k(self, steps: Iterable[int]) -> list[int]:
        """The samples that are vectors of these products of a step."""
        vectors = {product.scalar[1]: product.vector for product in self._matmul.vectors[0].products}
        return [vectors[k] for k in steps if k in vectors]

    def _advances(self) -> dict[tuple[int, int], int]:
        """What the varying halves of the pairs grow by, by sample and axis."""
        samples, found = self._matmul.found.samples, {}
        for number in self._registers.order:
            for axis, value in enumerate(samples[number].srcs):
                assert isinstance(value, Value)
                if not self._registers.constant(value):
                    by = stride(value, self._matmul.found.entry(self._matmul.counter))
                    if by is None:
                        raise Mismatch(f"the place of the sample at #{samples[number].index} grows unevenly")
                    found[number, axis] = by
        return found

    def _homes(self, start: bool) -> Iterator[tuple[Reg, Reg]]:
        """(new register, register of the compiler's) of what goes into the loop or comes out of it."""
        homes = {
            value: self._registers.acc[number] + lane
            for number, vector in enumerate(self._matmul.vectors)
            for lane, value in enumerate(vector.values)
        }
        if start:
            for number, vector in enumerate(self._matmul.vectors):
                for lane, reg in enumerate(vector.registers):
                    yield self._registers.acc[number] + lane, reg
            return
        for reg, value in self._matmul.leaves.items():
            home = value.entry if value.entry is not None else homes[value]
            yield home, reg

    def _moves(self, pairs: Iterable[tuple[Reg, Reg]]) -> None:
        """(destination, source) moves, as if all at once."""
        pending = dict(pairs)
        pending = {dst: src for dst, src in pending.items() if dst != src}
        while pending:
            ready = [dst for dst in pending if dst not in pending.values()]
            if not ready:  # a ring: one of them steps aside
                dst = next(iter(pending))
                aside = self._registers.block(1)
                self._emit(_move(aside, pending[dst]))
                pending[dst] = aside
                pending = {d: aside if s == pending[dst] else s for d, s in pending.items()}
                continue
            for dst in ready:
                self._emit(_move(dst, pending.pop(dst)))

    def _emit(self, instr: Instr) -> None:
        self._code.append(instr)

    def _loop(self) -> None:
        start = len(self._code)
        block = self._schedule.block
        for step in range(self._schedule.unroll):
            if block and step % block == 0:
                self._code += [assemble(f"(rpt3)mov.u16u16 {part}, 0") for part in self._registers.parts]
            self._step(last=step == self._schedule.unroll - 1)
            if block and (step + 1) % block == 0:
                self._promote()
        self._emit(assemble("br p0.x, #2"))
        self._emit(assemble(f"jump #{start - len(self._code)}"))

    def _promote(self) -> None:
        """The sums of a block onto the accumulators."""
        for part, promoted in zip(self._registers.parts, self._registers.promoted, strict=True):
            self._emit(assemble(f"(rpt3)cov.f16f32 {promoted}, (r){part}"))
        for acc, promoted in zip(self._registers.acc, self._registers.promoted, strict=True):
            self._emit(assemble(f"(rpt3)add.f {acc}, (r){acc}, (r){promoted}"))

    def _step(self, last: bool) -> None:
        """Coordinates, counter, samples, products; samples of the next step among them."""
        schedule, counter = self._schedule, self._matmul.counter
        written = len(self._code)
        numbers = [number for number in self._registers.order if number not in self._ahead]
        homes = {} if schedule.incoords else self._coordinates(self._registers.free(), numbers)
        following = None
        if not schedule.postinc:
            following = Reg(min(set(self._registers.free()) - {home.num for home in homes.values()}))
            self._advance(following)
            if last or not schedule.lastcmp0:
                self._compare(following)
        order = self._sampled(written, numbers)
        for place, number in enumerate(order):
            if not schedule.nosnop and place == max(0, len(order) - 2):
                self._emit(replace(nop(0), ss=True))
            self._sample(number)
        if following is None:
            self._advance(counter)
        made = self._products()
        self._emit(made[0][1])
        if following is None and last:
            self._compare(counter)
        for (number, axis), by in self._strides.items():
            half = self._registers.pairs[number] + axis
            self._emit(assemble(f"add.s {half}, {half}, {by}"))
        self._behind(made, following)
        if following is not None:
            self._emit(_move(counter, following))

    def _behind(self, made: list[tuple[int, Instr]], following: Reg | None) -> None:
        """The products but the first; behind the last of a vector its place in the next step.

        Its sample comes as many products later as there are accumulators.
        """
        ends = {vector: at for at, (vector, _) in enumerate(made) if vector in self._ahead}
        due: dict[int, list[int]] = {}
        for vector, at in ends.items():
            due.setdefault(min(at + len(self._registers.acc), len(made) - 1), []).append(vector)
        known = {}
        if following is not None:
            known[self._matmul.found.entry(self._matmul.counter)] = following
        for at, (vector, instr) in enumerate(made):
            if at:
                self._emit(instr)
            if ends.get(vector) == at and not self._schedule.incoords:
                free = [number for number in self._registers.free() if Reg(number) != following]
                self._coordinates(free, [vector], known)
            for late in due.get(at, ()):
                self._sample(late)

    def _sampled(self, start: int, numbers: list[int]) -> list[int]:
        """Samples of a step in their order: first the one whose place was known last, so they all wait once.

        ``start`` is where the code of the places begins.
        """
        known = {}
        for at, instr in enumerate(self._code[start:]):
            known.update(dict.fromkeys((access.reg for access in writes(instr)), at))
        last = self._registers.order[-1]
        return sorted(
            numbers,
            key=lambda number: (
                self._schedule.b_last and number == last,
                number not in self._early,
                -max(known.get(self._registers.pairs[number] + axis, 0) for axis in (0, 1)),
            ),
        )

    def _skipped(self, number: int) -> bool:
        scalars = {product.scalar[0] for vector in self._matmul.vectors for product in vector.products}
        return self._schedule.skip_scalars if number in scalars else self._schedule.skip_vectors

    def _coordinates(
        self, temporary: list[int], numbers: list[int], known: Mapping[Value, Reg] | None = None
    ) -> dict[Value, Reg]:
        """The places of samples, each in its pair; ``known``: entries that stand elsewhere."""
        samples = self._matmul.found.samples
        wanted: dict[Value, list[Reg]] = {}
        for number in numbers:
            for axis, value in enumerate(samples[number].srcs):
                assert isinstance(value, Value)
                if not self._registers.hoisted(number, axis):
                    wanted.setdefault(value, []).append(self._registers.pairs[number] + axis)
        homes = dict(known or {})
        needed = self._needed(set(wanted))
        made = [value for value in temporaries(self._matmul) if value in needed]
        for depth in range(max(map(_depth, made), default=0) + 1):
            for value in made:
                if _depth(value) == depth:
                    homes[value] = wanted[value][0] if value in wanted else Reg(temporary.pop(0))
                    self._emit(self._computed(value, homes))
            for value, places in wanted.items():  # copies fill the slots until the next depth is ready
                home = homes.get(value, value.entry)
                if _depth(value) == depth and home is not None:
                    for place in places:
                        if place != home:
                            self._emit(self._copy(value, place, home))
        return homes

    def _copy(self, value: Value, place: Reg, home: Reg | None) -> Instr:
        """``value`` once more, from where it came itself if it is a move: that is ready at once."""
        if value.instr is not None and copies(value.instr):
            return self._computed(value, {value: place})
        assert home is not None
        return _move(place, home)

    def _needed(self, values: set[Value]) -> set[Value]:
        """``values`` and all that they are made of."""
        pending, needed = list(values), set(values)
        while pending:
            for source in pending.pop().srcs:
                if isinstance(source, Value) and source not in needed:
                    needed.add(source)
                    pending.append(source)
        return needed

    def _computed(self, value: Value, homes: dict[Value, Reg]) -> Instr:
        """The operation that makes ``value``, on the registers where its sources are."""
        assert value.instr is not None and value.instr.dst is not None
        srcs = []
        for operand, source in zip(value.instr.srcs, value.srcs, strict=False):
            if isinstance(source, Operand):
                srcs.append(replace(source, repeat=False))
                continue
            home = homes.get(source, source.entry)
            assert home is not None, f"#{value.index} is computed before its source"
            srcs.append(replace(operand, value=home.num, repeat=False))
        return replace(
            value.instr, dst=replace(value.instr.dst, value=homes[value].num), srcs=tuple(srcs), nop=0
        )

    def _advance(self, dst: Reg) -> None:
        """``dst`` = counter + 1."""
        counter = {self._matmul.found.entry(self._matmul.counter): self._matmul.counter}
        self._emit(self._computed(self._matmul.advance, counter | {self._matmul.advance: dst}))

    def _compare(self, counter: Reg) -> None:
        """p0.x where ``counter`` is at its end."""
        homes = {self._matmul.advance: counter, self._matmul.compare: Reg.parse("p0.x")}
        self._emit(self._computed(self._matmul.compare, homes))

    def _sample(self, number: int) -> None:
        if self._skipped(number):
            return
        sample, home = self._matmul.found.samples[number].instr, self._registers.texels[number]
        assert sample is not None and sample.dst is not None
        pair = replace(sample.srcs[0], value=self._registers.pairs[number].num)
        made = replace(sample, dst=replace(sample.dst, value=home.num), srcs=(pair, *sample.srcs[1:]))
        self._emit(_as_half(made) if home.half else made)

    def _products(self) -> list[tuple[int, Instr]]:
        """The products of a step in their order, with the samples that are their vectors."""
        schedule, vectors = self._schedule, self._matmul.vectors
        accs = schedule.acc_order or tuple(range(len(vectors)))
        steps = max(len(vector.products) for vector in vectors)
        order = schedule.k_order or tuple(range(steps))
        if sorted(accs) != list(range(len(vectors))) or sorted(order) != list(range(steps)):
            raise Mismatch(
                f"the loop has {len(vectors)} accumulators and {steps} products each; orders differ"
            )
        places = (
            [(acc, step) for acc in accs for step in order]
            if schedule.accmajor
            else [(acc, step) for step in order for acc in accs]
        )
        made = []
        for acc, step in places:
            products, into = vectors[acc].products, self._registers.parts[acc]
            if schedule.k_order:  # by the lane of the scalar, which is the k within the step
                products = tuple(sorted(products, key=lambda product: product.scalar[1]))
            if step < len(products):
                made.append((products[step].vector, self._product(into, products[step])))
        return made

    def _product(self, acc: Reg, product: Product) -> Instr:
        mad = assemble("mad.f16 hr0.x, hr0.x, hr0.x, hr0.x") if acc.half else self._matmul.mad.instr
        assert mad is not None and mad.dst is not None
        number, lane = product.scalar
        scalar = Operand(Kind.GPR, (self._registers.texels[number] + lane).num, acc.half)
        vector = Operand(Kind.GPR, self._registers.texels[product.vector].num, acc.half, repeat=True)
        factors = (scalar, vector) if product.scalar_first else (vector, scalar)
        addend = Operand(Kind.GPR, acc.num, acc.half, repeat=True)
        return replace(mad, dst=replace(mad.dst, value=acc.num), srcs=(*factors, addend), rpt=LANES - 1)


def _depth(value: Value) -> int:
    """Operations behind each other that make ``value``; 0 for one that stands at the start of a pass."""
    if value.entry is not None:
        return 0
    return 1 + max((_depth(source) for source in value.srcs if isinstance(source, Value)), default=0)


def _move(dst: Reg, src: Reg) -> Instr:
    return assemble(f"{'cov.f16f32' if src.half else 'mov.u32u32'} {dst}, {src}")


def _as_half(sample: Instr) -> Instr:
    """The sample with its texel as halves."""
    assert sample.dst is not None
    attrs = tuple((name, Ty.F16.value if name == "type" else value) for name, value in sample.attrs)
    return replace(sample, dst=replace(sample.dst, half=True), attrs=attrs)
