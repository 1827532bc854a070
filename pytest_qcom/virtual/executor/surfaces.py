"""Images, textures and uniform buffers of a kernel: calls of the runtime on register rows.

Images of two dimensions in slots that the instruction names are read and written in bulk
(:mod:`~pytest_qcom.virtual.executor.image_ops`), everything else lane by lane (``surface_ops``).
"""

from __future__ import annotations

from pytest_qcom.isa import access
from pytest_qcom.isa.instruction import Atomic, Instr, Kind, Load, Operand, Sample, Space, Store
from pytest_qcom.isa.registers import Ty
from pytest_qcom.virtual.executor.accesses import Accesses, operation
from pytest_qcom.virtual.executor.filter_ops import DEEP, LAYERED
from pytest_qcom.virtual.executor.layout import Header, Tables
from pytest_qcom.virtual.executor.surface_ops import SWIZZLED

_COORDINATES, _ZERO, _SLOTS, _DATA, _LEVEL = 0, 2, 3, 4, 5  # scratch rows of operands
_IMM = 6  # descriptor mode of cat5: bindless, both slots in the instruction
_A1 = 7  # as that, the texture's in a1.x above the sampler's base (Mesa, ``get_bindless_samp_src``)
_BINDLESS = (2, 5)  # bindless, slots from registers
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
        if any(instr.get(flag) for flag in ("o", "sv", "p", "offset")) or (
            instr.get("3d") and instr.get("array")
        ):
            self._unsupported(index)
            return
        assert instr.dst is not None and isinstance(instr.op.effect, Sample)
        if instr.op.effect.filtered:
            self._filter(index, instr, instr.op.effect)
            return
        mask, kind = instr["wrmask"], _kind(instr.type)
        components = [n for n in range(4) if mask >> n & 1]
        if access.coordinates(instr) == 2 and not instr.get("s2en"):
            xy = self._level(instr, self._coordinates(instr.srcs[0], 2))[:2]
            self._texels(index, f"isam_{kind}", self._target_rows(instr.dst, 4), xy, instr["tex"], mask)
            self._collect(instr.dst, components, 4)
            return
        slots = self._texture_slots(instr)
        if slots is None:
            self._unsupported(index)
            return
        xyz = self._level(instr, self._coordinates(instr.srcs[0], access.coordinates(instr)))
        rows = self._target_rows(instr.dst, 4)
        numbers = [("i32", str(mask | SWIZZLED))]
        self._surface(index, f"surface_read_{kind}", rows, xyz, slots, numbers)
        self._collect(instr.dst, components, 4)

    def _level(self, instr: Instr, xyz: tuple[int, int, int]) -> tuple[int, int, int]:
        """Offsets of coordinates that are outside for lanes which want a level that no texture here has."""
        slots = instr.get("s2en") and instr["mode"] in access.INDIRECT
        if len(instr.srcs) - bool(slots) < 2:
            return xyz
        segment, builder = self._open(), self.builder
        x, level = (
            builder.resize(segment.register(operand.value, operand.half), 32, False)
            for operand in instr.srcs[:2]
        )
        base = builder.icmp("eq", level, builder.const(Ty.U32, 0), False)
        inside = builder.select(base, x, builder.const(Ty.U32, 0xFFFFFFFF))
        offset = Header.SCRATCH + _LEVEL * Header.SCRATCH_ROW
        segment.put(("s", offset), inside)
        return offset, *xyz[1:]

    def _filter(self, index: int, instr: Instr, effect: Sample) -> None:
        """saml and gather4: a sampler says what coordinates mean."""
        slots = None if instr.get("s2en") else self._texture_slots(instr)
        if slots is None or instr.srcs[0].half:
            self._unsupported(index)
            return
        assert instr.dst is not None
        mask, count = instr["wrmask"], access.coordinates(instr)
        xyz = self._coordinates(instr.srcs[0], count)
        lod = instr.srcs[1] if len(instr.srcs) > 1 else Operand(Kind.IMM, 0)
        level = self._source_rows(lod, 1, _LEVEL)
        rows = self._target_rows(instr.dst, 4)
        how = LAYERED if instr.get("array") else DEEP if instr.get("3d") else 0
        numbers = [("i32", str(n)) for n in (instr["samp"], mask, effect.gather, how)]
        self._close()
        further = [("ptr", self._at(level)), *numbers]
        self._surface(index, f"surface_filter_{_kind(instr.type)}", rows, xyz, slots, further)
        self._collect(instr.dst, [n for n in range(4) if mask >> n & 1], 4)

    def _texture_slots(self, instr: Instr) -> tuple[int, int] | None:
        """Rows with the slots of a sample, and the table that they count in; ``None``: not modelled."""
        if not instr.get("s2en"):
            return self._slot_rows(Operand(Kind.IMM, instr["tex"])), Tables.TEXTURES
        mode, table = instr["mode"], Tables.SETS + instr["base"]
        if mode in _BOUND:
            return self._slot_rows(instr.srcs[-1]), Tables.TEXTURES
        if table >= Tables.UNIFORMS:
            return None
        if mode in _BINDLESS:
            return self._slot_rows(instr.srcs[-1]), table
        if mode == _IMM:
            return self._slot_rows(Operand(Kind.IMM, instr["tex"])), table
        if mode != _A1:
            return None
        segment, builder = self._open(), self.builder
        address = builder.resize(segment.get(("a", 1)), 32, False)
        offset = Header.SCRATCH + _SLOTS * Header.SCRATCH_ROW
        segment.put(("s", offset), builder.lshr(address, builder.const(Ty.U32, 3)))
        return offset, table

    # images

    def _image(self, index: int, instr: Instr, load: bool) -> None:
        """ldib and stib."""
        count, kind, dims = instr["count"], _kind(instr.type), instr["dims"]
        slots = self._image_slots(instr)
        if slots is None or dims > 3 or instr.get("offset"):
            self._unsupported(index)
            return
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
        if slots is None or instr.type.bits != 32 or instr["dims"] > 3:
            self._unsupported(index)
            return
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
        if slots is None:
            self._unsupported(index)
            return
        assert instr.dst is not None
        xyz = self._coordinates(Operand(Kind.IMM, 0), 1)
        rows = self._target_rows(instr.dst, 3)
        self._surface(index, "surface_size", rows, xyz, slots, [])
        self._collect(instr.dst, [0, 1, 2], 3)

    def _extent(self, index: int, instr: Instr) -> None:
        """getsize."""
        slots, mask = self._texture_slots(instr), instr["wrmask"]
        if slots is None or instr.type.half or instr.get("o"):
            self._unsupported(index)
            return
        assert instr.dst is not None
        level = self._source_rows(instr.srcs[0], 1, _LEVEL)
        rows = self._target_rows(instr.dst, 4)
        self._surface(index, "surface_extent", rows, (level, level, level), slots, [("i32", str(mask))])
        self._collect(instr.dst, [n for n in range(4) if mask >> n & 1], 4)

    def _image_slots(self, instr: Instr) -> tuple[int, int] | None:
        """Rows with the slots of a cat6 access, and their table."""
        return self._bound(instr, Tables.IMAGES, Tables.SETS, Tables.UNIFORMS)

    def _bound(self, instr: Instr, bound: int, sets: int, behind: int) -> tuple[int, int] | None:
        table = sets + instr["base"] if instr.get("bindless") else bound
        if instr.get("bindless") and table >= behind:
            return None
        kind = Kind.GPR if instr["mode"] else Kind.IMM
        return self._slot_rows(Operand(kind, instr["slot"])), table

    # uniform buffers

    def _uniforms(self, index: int, instr: Instr) -> None:
        """ldc: the address counts vec4, ``offset`` is a component (Mesa, ``emit_intrinsic_load_ubo_ldc``)."""
        slots = self._bound(instr, Tables.UNIFORMS, Tables.UNIFORM_SETS, Tables.SAMPLERS)
        if slots is None:
            self._unsupported(index)
            return
        assert instr.dst is not None
        count = instr["count"]
        xyz = self._coordinates(instr.srcs[0], 1)
        rows = self._target_rows(instr.dst, count)
        further = [("i32", str(instr["offset"])), ("i32", str(count))]
        self._surface(index, "uniforms", rows, xyz, slots, further)
        self._collect(instr.dst, list(range(count)), count)

    # operands

    def _slot_rows(self, operand: Operand) -> int:
        return self._source_rows(operand, 1, _SLOTS)

    def _coordinates(self, operand: Operand, count: int) -> tuple[int, int, int]:
        """Offsets of the rows of x, y and z; those that the access lacks are zero."""
        rows, step = self._source_rows(operand, count, _COORDINATES), 4 * self.layout.wave
        if count == 3:
            return rows, rows + step, rows + 2 * step
        zero = Header.SCRATCH + _ZERO * Header.SCRATCH_ROW
        self._open().put(("s", zero), self.builder.const(Ty.U32, 0))
        return rows, rows + step if count == 2 else zero, zero

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
        xyz: tuple[int, int, int],
        slots: tuple[int, int],
        further: list[tuple[str, str]],
    ) -> None:
        """Calls a function of ``surface_ops``."""
        self._close()
        pointers = [("ptr", self._at(at)) for at in (rows, *xyz, slots[0])]
        self._checked(name, *pointers, ("i32", str(slots[1])), *further, ("i32", str(index)))


def _kind(ty: Ty) -> str:
    """The runtime's name of a texel's register type."""
    if not ty.half:
        return "f32"
    return "f16" if ty is Ty.F16 else "i16"
