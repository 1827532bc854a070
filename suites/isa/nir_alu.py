"""Every operation of NIR's arithmetic that Mesa's compiler takes for the a630, a shader each.

Which ones these are was found by asking it: an operation that it does not take ends the process.
:func:`folded` is what NIR itself says that an operation gives.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass

from tinygrad.renderer.nir import nalu, nchannel
from tinygrad.runtime.autogen import mesa

from suites.isa.nir_builder import Compiled, Nir, Value

TAKEN = """
amul:32,64 andg_ir3:1,8,16,32 b2b1:1,8,16,32,64 b2b16:16 b2b32:1,8,16,32,64 b2b8:8 b2f16:16 b2f32:16
b2i16:1,8,16 b2i32:1,8,16 b2i64:1,8,16 b2i8:1,8,16 ball_fequal2:16,32,64 ball_fequal3:16,32,64
ball_fequal4:16,32,64 ball_iequal2:1,8,16,32,64 ball_iequal3:1,8,16,32,64 ball_iequal4:1,8,16,32,64
bany_fnequal2:16,32,64 bany_fnequal3:16,32,64 bany_fnequal4:16,32,64 bany_inequal2:1,8,16,32,64
bany_inequal3:1,8,16,32,64 bany_inequal4:1,8,16,32,64 bcsel:1,8,16,32,64 bit_count:1,8,16,32,64
bitfield_insert:8,16,32,64 bitfield_reverse:8,16,32,64 extract_i16:32 extract_i8:32 extract_u16:32
extract_u8:32 f2f16:16,32 f2f16_rtne:16,32 f2f16_rtz:16,32 f2f32:16,32 f2f64:64 f2fmp:0 f2i16:16,32
f2i32:16,32 f2i64:16,32 f2i8:16,32 f2imp:0 f2u16:16,32 f2u32:16,32 f2u64:16,32 f2u8:16,32 f2ump:0 fabs:16,32
fadd:16,32 fall_equal2:0 fall_equal3:0 fall_equal4:0 fany_nequal2:0 fany_nequal3:0 fany_nequal4:0
fceil:16,32 fcos:16,32 fdiv:16,32 fdot2:16,32 fdot3:16,32 fdot4:16,32 fdph:16,32 feq:16,32,64 fexp2:16,32
ffloor:16,32 ffma:16,32 ffract:16,32 fge:16,32,64 fgeu:16,32,64 find_lsb:1,8,16,32,64 fisfinite:16,32,64
fisnormal:16,32,64 flog2:16,32 flrp:16,32 flt:16,32,64 fltu:16,32,64 fmax:16,32 fmin:16,32 fmod:16,32
fmul:16,32 fneg:16,32 fneu:16,32,64 fpow:16,32 fquantize2f16:32 frcp:16,32 frem:16,32 frexp_exp:16,32
frexp_sig:16,32,64 fround_even:16,32 frsq:16,32 fsat:16,32 fsign:16,32 fsin:16,32 fsqrt:16,32 fsub:16,32
ftrunc:16,32 i2f16:16,32,64 i2f32:16,32,64 i2fmp:0 i2i16:8,16,32,64 i2i32:8,16,32,64 i2i64:8,16,32,64
i2i8:8,16,32,64 i2imp:0 iabs:8,16,32,64 iadd:8,16,32,64 iadd3:8,16,32 iadd_sat:8,16,32,64 iand:1,8,16,32,64
ibitfield_extract:8,16,32,64 icsel_eqz:8,16,32 idiv:8,16,32,64 ieq:1,8,16,32,64 ifind_msb:0 ige:1,8,16,32,64
ihadd:8,16,32,64 ilt:1,8,16,32,64 imad24_ir3:0 imadsh_mix16:0 imax:8,16,32,64 imin:8,16,32,64
imod:8,16,32,64 imul:8,16,32,64 imul24:0 imul24_relaxed:0 imul_2x32_64:0 imul_high:8,16,32,64
ine:1,8,16,32,64 ineg:8,16,32,64 inot:1,8,16,32,64 ior:1,8,16,32,64 irem:8,16,32,64 irhadd:8,16,32,64
ishl:8,16,32,64 ishr:8,16,32,64 isign:1,8,16,32,64 isub:8,16,32,64 isub_sat:8,16,32,64 ixor:1,8,16,32,64
ldexp:16,32 mov:1,8,16,32,64 pack_32_2x16:0 pack_32_2x16_split:0 pack_32_4x8:0 pack_64_2x32:0
pack_64_2x32_split:0 pack_64_4x16:0 pack_half_2x16:0 pack_half_2x16_split:0 pack_snorm_2x16:16,32
pack_snorm_4x8:0 pack_unorm_2x16:16,32 pack_unorm_4x8:0 pack_uvec2_to_uint:0 pack_uvec4_to_uint:0
sdot_2x16_iadd:0 sdot_2x16_iadd_sat:0 sdot_4x8_iadd:0 sdot_4x8_iadd_sat:0 seq:16,32 sge:16,32
shlg_ir3:8,16,32 shlm_ir3:8,16,32 shrg_ir3:8,16,32 shrm_ir3:8,16,32 slt:16,32 sne:16,32 sudot_4x8_iadd:0
sudot_4x8_iadd_sat:0 u2f16:16,32,64 u2f32:16,32,64 u2f64:64 u2fmp:0 u2u16:8,16,32,64 u2u32:8,16,32,64
u2u64:8,16,32,64 u2u8:8,16,32,64 uabs_isub:8,16,32,64 uabs_usub:8,16,32,64 uadd_carry:8,16,32,64
uadd_sat:8,16,32,64 ubitfield_extract:8,16,32,64 udiv:8,16,32,64 udiv_aligned_4:8,16,32 udot_2x16_uadd:0
udot_2x16_uadd_sat:0 udot_4x8_uadd:0 udot_4x8_uadd_sat:0 ufind_msb:32,64 uge:1,8,16,32,64 uhadd:8,16,32,64
ult:1,8,16,32,64 umad24:0 umad24_relaxed:0 umax:8,16,32,64 umin:8,16,32,64 umod:8,16,32,64 umul24:0
umul24_relaxed:0 umul_2x32_64:0 umul_high:8,16,32,64 umul_low:0 unpack_32_2x16:0 unpack_32_2x16_split_x:0
unpack_32_2x16_split_y:0 unpack_32_4x8:0 unpack_64_2x32:0 unpack_64_2x32_split_x:0 unpack_64_2x32_split_y:0
unpack_64_4x16:0 unpack_half_2x16:0 unpack_half_2x16_split_x:0 unpack_half_2x16_split_y:0
unpack_snorm_2x16:0 unpack_snorm_4x8:0 unpack_unorm_2x16:0 unpack_unorm_4x8:0 urhadd:8,16,32,64
urol:8,16,32,64 uror:8,16,32,64 ushr:8,16,32,64 usub_borrow:8,16,32,64 usub_sat:8,16,32,64 vec2:1,8,16,32,64
vec3:1,8,16,32,64 vec4:1,8,16,32,64
"""
"""Operations, each with the sizes in bits of its operands that have no size of their own; 0: all have."""

INT, UINT, BOOL, FLOAT = 2, 4, 6, 128  # nir_alu_type
_SIZES = 1 | 8 | 16 | 32 | 64


@dataclass(frozen=True)
class Operand:
    """Kind (of nir_alu_type), bits and components of a source or result."""

    kind: int
    bits: int
    count: int


@dataclass(frozen=True)
class Operation:
    """An operation at a size."""

    name: str
    bits: int

    @property
    def code(self) -> int:
        """Its number."""
        return int(getattr(mesa, f"nir_op_{self.name}"))

    def _operand(self, kind: int, count: int) -> Operand:
        return Operand(kind & ~_SIZES, kind & _SIZES or self.bits, count or 1)

    @functools.cached_property
    def sources(self) -> tuple[Operand, ...]:
        """What it takes."""
        info = mesa.nir_op_infos[self.code]
        return tuple(self._operand(info.input_types[n], info.input_sizes[n]) for n in range(info.num_inputs))

    @functools.cached_property
    def result(self) -> Operand:
        """What it gives."""
        info = mesa.nir_op_infos[self.code]
        return self._operand(info.output_type, info.output_size)


OPERATIONS = tuple(
    Operation(name, int(bits))
    for name, _, sizes in (entry.partition(":") for entry in TAKEN.split())
    for bits in sizes.split(",")
)


_OVERFLOWS = "its folding relies on sums of C that overflow, or that C widens before they do"
_ONE = "of one bit it has no use, and the compiler has conditions in whole registers"
_WORDS = "its folding is for 32 bits"
_NARROW = "the compiler shifts registers of 16 bits, whose amounts count modulo 16"
_INPUTS = "the operand of this size is one that the operation does not have"
UNEQUAL = {
    "amul": "it may be exact in 24 bits only",
    "imul24_relaxed": "it may be exact in 24 bits only",
    "imadsh_mix16": "its folding is not what its comment says, al * bh << 16 + c",
    "iadd3": "Mesa has it on chips with has_sad, which the A630 is not; see chip.choice('sad')",
    "find_lsb:8": "the compiler reverses 16 bits into a full register and counts from bit 31",
    "find_lsb:16": "as of 8 bits",
    **dict.fromkeys(("find_lsb:1", "ige:1", "ilt:1", "isign:1"), _ONE),
    **dict.fromkeys(
        (f"{name}:{bits}" for name in ("iadd_sat", "isub_sat") for bits in (8, 16, 32, 64)), _OVERFLOWS
    ),
    **dict.fromkeys(
        (f"{name}:{bits}" for name in ("uadd_sat", "uadd_carry") for bits in (8, 16)), _OVERFLOWS
    ),
    **dict.fromkeys(("udot_2x16_uadd_sat", "udot_4x8_uadd_sat"), _OVERFLOWS),
    **dict.fromkeys(("ibitfield_extract:64", "ubitfield_extract:64", "bitfield_insert:64"), _WORDS),
    **dict.fromkeys((f"sh{way}_ir3:8" for way in ("lg", "lm", "rg", "rm")), _NARROW),
    **dict.fromkeys(("pack_snorm_2x16:16", "pack_unorm_2x16:16"), _INPUTS),
    "fpow:16": "of 16 bits it is exp2(log2(a) * b), whose error grows with the exponent",
}
"""Operations, or one size of them, whose result is not held against NIR's folding, and why; they only run."""


def unequal(operation: Operation) -> str | None:
    """Why an operation is not held against NIR's folding; ``None`` if it is."""
    if any(operand.kind == BOOL and operand.bits != 1 for operand in operation.sources):
        return "conditions are of one bit for Mesa's compiler"
    if any(operand.kind == FLOAT and operand.bits == 64 for operand in operation.sources):
        return "doubles need a library that the compiler is not given here"
    return UNEQUAL.get(operation.name, UNEQUAL.get(f"{operation.name}:{operation.bits}"))


def _vector(n: Nir, parts: list[Value]) -> Value:
    return n.alu(f"vec{len(parts)}", *parts) if len(parts) > 1 else parts[0]


def _source(n: Nir, operand: Operand, buffer: int) -> Value:
    """A fiber's operand from the words of a buffer; of 64 bits a word and the next one."""
    words = n.load(buffer, vector=4)
    parts = []
    for place in range(operand.count):
        word = nchannel(n.b, words, place % 4)
        if operand.bits == 1:
            word = n.alu("ine", n.alu("iand", word, n.number(1)), n.number(0))
        elif operand.bits < 32:
            word = n.alu(f"u2u{operand.bits}", word)
        elif operand.bits == 64:
            word = n.alu("pack_64_2x32_split", word, nchannel(n.b, words, (place + 1) % 4))
        parts.append(word)
    return _vector(n, parts)


def program(operation: Operation) -> Compiled:
    """A shader: sources from buffers 1 to 3, then 1 again, four words a fiber; the result in buffer 0."""
    n = Nir()
    sources = [_source(n, operand, 1 + number % 3) for number, operand in enumerate(operation.sources)]
    result = nalu(n.b, operation.name, *sources)
    if result.num_components > 1 and result.bit_size < 32:
        widen = "b2i32" if result.bit_size == 1 else "u2u32"
        parts = [n.alu(widen, nchannel(n.b, result, place)) for place in range(result.num_components)]
        result = _vector(n, parts)
    n.store(result)
    return n.compile(operation.name)


def folded(operation: Operation, sources: Sequence[Sequence[int]]) -> list[int]:
    """What NIR's constant folding makes of the components' bits of each source."""
    values = []
    for components in sources:
        value = (ctypes.c_uint64 * 16)(*components)
        values.append(value)
    result = (ctypes.c_uint64 * 16)()
    pointers = (ctypes.c_void_p * 4)(*(ctypes.addressof(value) for value in values))
    unsigned = ctypes.c_uint
    mesa.dll.nir_eval_const_opcode(
        unsigned(operation.code), result, unsigned(operation.result.count), unsigned(operation.bits or 32),
        pointers, unsigned(0),
    )  # fmt: skip
    mask = (1 << operation.result.bits) - 1
    return [result[place] & mask for place in range(operation.result.count)]
