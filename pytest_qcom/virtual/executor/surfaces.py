"""Images, textures and uniform buffers of a kernel: calls of the runtime on register rows.

Images of two dimensions in slots that the instruction names are read and written in bulk
(:mod:`~pytest_qcom.virtual.executor.image_ops`), everything else lane by lane (``surface_ops``).
"""

from __future__ import annotations

from dataclasses import replace

from pytest_qcom.isa import access
from pytest_qcom.isa.instruction import (
    Atomic,
    Detail,
    Instr,
    Kind,
    Load,
    Operand,
    Sample,
    Space,
    Store,
)
from pytest_qcom.isa.registers import ADDRESS, Ty
from pytest_qcom.virtual.executor.accesses import Accesses, operation
from pytest_qcom.virtual.executor.layout import Header, Tables
from pytest_qcom.virtual.executor.sampler_ops import (
    DEEP,
    GRADIENTS,
    IMPLICIT,
    LAYERED,
    LEVEL,
    OFFSETS,
    SHADOW,
)
from pytest_qcom.virtual.executor.surface_ops import SWIZZLED

_COORDINATES, _ZERO, _SLOTS, _DATA, _LEVEL = 0, 2, 3, 4, 5  # scratch rows of operands
_SAMPLERS, _TABLES, _MOVED = 6, 7, 5  # of samples
_FIRST, _SECOND = 12, 23  # up to eleven scalars and up to four
_IMM = 6  # descriptor mode of cat5: bindless, both slots in the instruction
_A1 = 7  # as that, the texture's in a1.x above the sampler's base (Mesa, ``get_bindless_samp_src``)
_OWN_BASE = (1, 3, _A1)  # the sampler's base is in the low bits of a1.x
_BOUND = (0, 4)


class Surfaces(Accesses):
    """Accesses by descriptor."""

    def _memory(self, index: int, instr: Instr, effect: Load | Store | Atomic) -> None:
        if effect.space is Space.UBO:
            self._uniforms(index, instr)
        elif effect.space is not Space.IMAGE:
            super()._memory(index, instr, effect)
        elif isinstance(effect, Atomic):
            self._image_atomic(index, instr, effect)
        else:
            self._image(index, instr, isinstance(effect, Load))

    # textures

    def _sample(self, index: int, instr: Instr) -> None:
        effect, slots = instr.op.effect, self._texture_slots(instr)
        assert isinstance(effect, Sample)
        if effect.filtered:
            self._filter(index, instr, effect, slots)
        elif effect.multisampled or effect.detail is not Detail.BASE:
            self._leveled(index, instr, effect, slots)
        else:
            self._texel(index, instr, slots)

    def _texel(self, index: int, instr: Instr, slots: tuple[int, int]) -> None:
        """isam."""
        assert instr.dst is not None
        mask, kind, count = instr["wrmask"], _kind(instr.type), access.coordinates(instr)
        xyz = self._coordinates(instr.srcs[0], count)
        rows = self._target_rows(instr.dst, 4)
        if count == 2 and not instr.get("s2en"):
            self._texels(index, f"isam_{kind}", rows, xyz[:2], instr["tex"], mask)
        else:
            numbers = [("i32", str(mask | SWIZZLED))]
            self._surface(index, f"surface_read_{kind}", rows, xyz, slots, numbers)
        self._collect(instr.dst, _components(mask), 4)

    def _leveled(self, index: int, instr: Instr, effect: Sample, slots: tuple[int, int]) -> None:
        """isaml and isamm: coordinates with their offsets, a level of detail, the number of a sample."""
        assert instr.dst is not None
        count = access.coordinates(instr)
        step = 4 * self.layout.wave
        first = self._wide_rows(instr.srcs[0], access.sampled(instr), _FIRST, Ty.S32)
        xyz = [first + step * place for place in range(count)]
        if instr.get("o"):
            xyz = self._moved(xyz, self._wide_rows(instr.srcs[1], access.axes(instr), _SECOND, Ty.S32), instr)
        zero = self._fixed_row(_ZERO, 0)
        level = zero
        if effect.detail is Detail.SOURCE:
            place = access.detail(instr) - 1
            level = self._wide_rows(instr.srcs[1], place + 1, _SECOND, Ty.S32) + step * place
        sample = first + step * (access.sampled(instr) - 1) if effect.multisampled else zero
        mask, rows = instr["wrmask"], self._target_rows(instr.dst, 4)
        three, kind = (*xyz, zero)[:3], _kind(instr.type)
        self._close()
        further = [("ptr", self._at(level)), ("ptr", self._at(sample)), ("i32", str(mask))]
        if count == 2 and not instr.get("s2en") and not effect.multisampled:
            places = [("ptr", self._at(at)) for at in (rows, *three, slots[0])]
            texture = ("i32", str(instr["tex"]))
            self._checked(f"isaml_{kind}", *places, texture, further[0], further[2], ("i32", str(index)))
        else:
            self._surface(index, f"surface_fetch_{kind}", rows, three, slots, further)
        self._collect(instr.dst, _components(mask), 4)

    def _moved(self, xyz: list[int], offsets: int, instr: Instr) -> list[int]:
        """Rows of coordinates with their offsets added; a layer has none."""
        step = 4 * self.layout.wave
        moved = []
        for place, row in enumerate(xyz):
            if place >= access.axes(instr):
                moved.append(row)
                continue
            segment = self._open()
            total = self.builder.add(segment.get(("s", row)), segment.get(("s", offsets + step * place)))
            moved.append(Header.SCRATCH + (_MOVED + place) * Header.SCRATCH_ROW)
            segment.put(("s", moved[-1]), total)
        return moved

    def _filter(self, index: int, instr: Instr, effect: Sample, slots: tuple[int, int]) -> None:
        """sam, saml, samgq and gather4: a sampler says what coordinates mean."""
        mask = instr["wrmask"]
        assert instr.dst is not None
        samplers = self._sampler_slots(instr)
        first = self._wide_rows(instr.srcs[0], access.sampled(instr), _FIRST, Ty.F32)
        second = first
        if access.detail(instr):
            kinds = [Ty.S32] * (instr.get("o") * access.axes(instr)) + [Ty.F32]
            second = self._wide_rows(instr.srcs[1], access.detail(instr), _SECOND, *kinds)
        rows = self._target_rows(instr.dst, 4)
        self._close()
        numbers = (mask, effect.gather, _how(instr, effect))
        further = [("ptr", self._at(at)) for at in samplers] + [("i32", str(number)) for number in numbers]
        self._surface(index, f"surface_filter_{_kind(instr.type)}", rows, (first, second), slots, further)
        self._collect(instr.dst, _components(mask), 4)

    def _wide_rows(self, operand: Operand, count: int, slot: int, *kinds: Ty) -> int:
        """Offset of rows of 32 bits; halves are widened as what they are, the last kind for the rest."""
        if not operand.half:
            return self._source_rows(operand, count, slot)
        builder, start = self.builder, Header.SCRATCH + slot * Header.SCRATCH_ROW
        for place in range(count):
            segment = self._open()
            value = segment.register(operand.value + place, True)
            if kinds[min(place, len(kinds) - 1)] is Ty.F32:
                value = builder.as_int(builder.fconvert(builder.as_float(value), Ty.F32, "even"))
            else:
                value = builder.resize(value, 32, True)
            segment.put(("s", start + 4 * place * self.layout.wave), value)
        return start

    def _texture_slots(self, instr: Instr) -> tuple[int, int]:
        """Rows with the slots of a sample, and the table that they count in."""
        if not instr.get("s2en"):
            return self._slot_rows(Operand(Kind.IMM, instr["tex"])), Tables.TEXTURES
        mode, table = instr["mode"], Tables.SETS + instr["base"]
        if mode in _BOUND:
            return self._slot_rows(instr.srcs[-1]), Tables.TEXTURES
        if access.indirect(instr):
            return self._slot_rows(instr.srcs[-1]), table
        if mode == _IMM:
            return self._slot_rows(Operand(Kind.IMM, instr["tex"])), table
        segment, builder = self._open(), self.builder
        address = builder.resize(segment.get(("a", 1)), 32, False)
        offset = Header.SCRATCH + _SLOTS * Header.SCRATCH_ROW
        segment.put(("s", offset), builder.lshr(address, builder.const(Ty.U32, 3)))
        return offset, table

    def _sampler_slots(self, instr: Instr) -> tuple[int, int]:
        """Rows with the slots of samplers, and with the tables that they count in.

        Behind a register with the texture's slot stands the sampler's.
        """
        mode, bindless = instr.get("mode"), instr.get("s2en") and instr["mode"] not in _BOUND
        slot = Operand(Kind.IMM, instr.get("samp"))
        if access.indirect(instr):
            slot = replace(instr.srcs[-1], value=instr.srcs[-1].value + 1)
        rows = self._source_rows(slot, 1, _SAMPLERS)
        base = Tables.SAMPLER_SETS + instr.get("base")
        tables = self._fixed_row(_TABLES, base if bindless else Tables.SAMPLERS)
        if bindless and mode in _OWN_BASE:
            segment, builder = self._open(), self.builder
            own = builder.resize(segment.get(("a", 1)), 32, False)
            own = builder.and_(own, builder.const(Ty.U32, 7))
            segment.put(("s", tables), builder.add(own, builder.const(Ty.U32, Tables.SAMPLER_SETS)))
        return rows, tables

    def _query(self, index: int, instr: Instr) -> None:
        """getinfo and getbuf."""
        slots, mask = self._texture_slots(instr), instr["wrmask"]
        assert instr.dst is not None
        zero = self._fixed_row(_ZERO, 0)
        rows = self._target_rows(instr.dst, 4)
        self._surface(index, "surface_facts", rows, (zero, zero, zero), slots, [("i32", str(mask))])
        self._collect(instr.dst, _components(mask), 4)

    # images

    def _image(self, index: int, instr: Instr, load: bool) -> None:
        """ldib and stib."""
        count, kind, dims = instr["count"], _kind(instr.type), instr["dims"]
        slots = self._image_slots(instr)
        plain = not instr["mode"] and not instr.get("bindless")
        xyz = self._coordinates(instr.srcs[0], dims)
        if load:
            assert instr.dst is not None
            rows = self._target_rows(instr.dst, count)
        else:
            data = instr.srcs[1]
            rows = self._source_rows(data, count, _DATA, data.half)
            kind = "u16" if instr.type is Ty.U16 else kind
        if not instr["typed"]:
            name = f"surface_{'load' if load else 'store'}_{16 if instr.type.half else 32}"
            self._surface(index, name, rows, xyz, slots, [("i32", str(count))])
        elif plain and dims < 3:
            number = (1 << count) - 1 if load else count
            self._texels(index, f"{'ldib' if load else 'stib'}_{kind}", rows, xyz[:2], instr["slot"], number)
        else:
            number = (1 << count) - 1 if load else count
            name = f"surface_{'read' if load else 'write'}_{kind}"
            self._surface(index, name, rows, xyz, slots, [("i32", str(number))])
        if load:
            assert instr.dst is not None
            self._collect(instr.dst, list(range(count)), count)

    def _image_atomic(self, index: int, instr: Instr, effect: Atomic) -> None:
        slots = self._image_slots(instr)
        data, swap = instr.srcs[1], effect.operation == "cmpxchg"
        xyz = self._coordinates(instr.srcs[0], instr["dims"])
        first = Operand(Kind.GPR, data.value + 1)
        values = self._source_rows(first, 1 + swap, _DATA)
        assert instr.dst is not None
        rows = self._target_rows(instr.dst, 1)
        self._close()
        compares = values + (4 * self.layout.wave if swap else 0)
        further = [("ptr", self._at(values)), ("ptr", self._at(compares))]
        further += [("i32", str(operation(instr, effect))), ("i64", "0" if instr["typed"] else "4")]
        self._surface(index, "surface_atomic", rows, xyz, slots, further)
        self._collect(instr.dst, [0], 1)

    def _size(self, index: int, instr: Instr) -> None:
        if instr.op.cat == 5:
            self._extent(index, instr)
            return
        slots = self._image_slots(instr)
        assert instr.dst is not None
        xyz = self._coordinates(Operand(Kind.IMM, 0), 1)
        rows = self._target_rows(instr.dst, 3)
        self._surface(index, "surface_size", rows, xyz, slots, [])
        self._collect(instr.dst, [0, 1, 2], 3)

    def _extent(self, index: int, instr: Instr) -> None:
        """getsize."""
        slots, mask = self._texture_slots(instr), instr["wrmask"]
        assert instr.dst is not None
        level = self._source_rows(instr.srcs[0], 1, _LEVEL)
        rows = self._target_rows(instr.dst, 4)
        self._surface(index, "surface_extent", rows, (level, level, level), slots, [("i32", str(mask))])
        self._collect(instr.dst, _components(mask), 4)

    def _image_slots(self, instr: Instr) -> tuple[int, int]:
        """Rows with the slots of a cat6 access, and their table."""
        return self._bound(instr, Tables.IMAGES, Tables.SETS)

    def _bound(self, instr: Instr, bound: int, sets: int) -> tuple[int, int]:
        table = sets + instr["base"] if instr.get("bindless") else bound
        kind = Kind.GPR if instr["mode"] else Kind.IMM
        return self._slot_rows(Operand(kind, instr["slot"])), table

    # uniform buffers

    def _uniforms(self, index: int, instr: Instr) -> None:
        """ldc: the address counts vec4, ``offset`` is a component (Mesa, ``emit_intrinsic_load_ubo_ldc``)."""
        slots = self._bound(instr, Tables.UNIFORMS, Tables.UNIFORM_SETS)
        assert instr.dst is not None
        count = instr["count"]
        xyz = self._coordinates(instr.srcs[0], 1)
        rows = self._target_rows(instr.dst, count)
        further = [("i32", str(instr["offset"])), ("i32", str(count))]
        self._surface(index, "uniforms", rows, xyz, slots, further)
        self._collect(instr.dst, list(range(count)), count)

    def _upload(self, index: int, instr: Instr) -> None:
        """ldc.k."""
        slots = self._bound(instr, Tables.UNIFORMS, Tables.UNIFORM_SETS)
        place = self._source_rows(instr.srcs[0], 1, _COORDINATES)
        base = self._source_rows(Operand(Kind.GPR, ADDRESS + 1, True), 1, _DATA)
        self._close()
        x, slot, start = (("ptr", self._at(row)) for row in (place, slots[0], base))
        table, vectors = ("i32", str(slots[1])), ("i32", str(instr["vectors"]))
        self._checked("upload", x, slot, table, start, vectors, ("i32", str(index)))

    # operands

    def _slot_rows(self, operand: Operand) -> int:
        return self._source_rows(operand, 1, _SLOTS)

    def _coordinates(self, operand: Operand, count: int) -> tuple[int, int, int]:
        """Offsets of the rows of x, y and z; those that the access lacks are zero."""
        rows, step = self._source_rows(operand, count, _COORDINATES), 4 * self.layout.wave
        if count == 3:
            return rows, rows + step, rows + 2 * step
        zero = self._fixed_row(_ZERO, 0)
        return rows, rows + step if count == 2 else zero, zero

    def _fixed_row(self, slot: int, number: int) -> int:
        """Offset of a scratch row that holds a number."""
        offset = Header.SCRATCH + slot * Header.SCRATCH_ROW
        self._open().put(("s", offset), self.builder.const(Ty.U32, number))
        return offset

    def _texels(
        self, index: int, name: str, rows: int, xy: tuple[int, int], slot: int, components: int
    ) -> None:
        self._close()
        pointers = [("ptr", self._at(at)) for at in (rows, *xy)]
        numbers = [("i32", str(n)) for n in (slot, components, index)]
        self._checked(name, *pointers, *numbers)

    def _surface(
        self,
        index: int,
        name: str,
        rows: int,
        xyz: tuple[int, ...],
        slots: tuple[int, int],
        further: list[tuple[str, str]],
    ) -> None:
        """Calls a function of ``surface_ops``."""
        self._close()
        pointers = [("ptr", self._at(at)) for at in (rows, *xyz, slots[0])]
        self._checked(name, *pointers, ("i32", str(slots[1])), *further, ("i32", str(index)))


def _components(mask: int) -> list[int]:
    return [place for place in range(4) if mask >> place & 1]


def _how(instr: Instr, effect: Sample) -> int:
    """What the sources of a sample hold, as ``sampler_ops`` counts it."""
    parts = {
        LAYERED: instr.get("array"),
        DEEP: instr.get("3d"),
        SHADOW: access.shadow(instr),
        OFFSETS: instr.get("o"),
        LEVEL: effect.detail is Detail.SOURCE,
        GRADIENTS: effect.detail is Detail.GRADIENTS,
        IMPLICIT: effect.detail is Detail.IMPLICIT,
    }
    return sum(bit for bit, there in parts.items() if there)


def _kind(ty: Ty) -> str:
    """The runtime's name of a texel's register type."""
    if not ty.half:
        return "f32"
    return "f16" if ty is Ty.F16 else "i16"
