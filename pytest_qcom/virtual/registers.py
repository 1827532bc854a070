"""The registers, packets and descriptors that compute uses, as data.

Names, addresses and fields are those of Mesa's register database (``src/freedreno/registers/adreno/a6xx.xml``
and ``adreno_pm4.xml``, under their newest names). ``shift`` is the database's ``shr``: the field holds the
value divided by ``2 ** shift``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Field:
    """Bits ``low`` to ``high`` of a word, its ``mask``; the value is stored shifted right by ``shift``."""

    name: str
    low: int
    high: int
    shift: int = 0
    mask: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "mask", (1 << (self.high + 1)) - (1 << self.low))

    def get(self, word: int) -> int:
        """The value in ``word``, with the shift undone."""
        return ((word & self.mask) >> self.low) << self.shift

    def put(self, value: int) -> int:
        """``value`` in its place; bits that do not fit are dropped."""
        return ((value >> self.shift) << self.low) & self.mask


@dataclass(frozen=True, slots=True)
class Word:
    """A 32-bit register or a dword of a packet or descriptor. No fields: the word is one value.

    ``trigger`` marks a register whose write is an action, so that a later write does not replace it.
    ``defined`` are the bits that the database defines.
    """

    name: str
    address: int
    fields: tuple[Field, ...] = ()
    trigger: bool = False
    defined: int = field(init=False)
    _by_name: Mapping[str, Field] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        bits = 0 if self.fields else 0xFFFFFFFF
        for entry in self.fields:  # which may overlap, where a word means one of several things
            bits |= entry.mask
        object.__setattr__(self, "defined", bits)
        object.__setattr__(self, "_by_name", {entry.name: entry for entry in self.fields})

    def get(self, word: int, field: str) -> int:
        """The value of ``field`` in ``word``, with its shift undone."""
        return self._by_name[field].get(word)

    def __getitem__(self, name: str) -> Field:
        return self._by_name[name]


def _word(name: str, address: int, *fields: tuple[str, int, int] | tuple[str, int, int, int]) -> Word:
    return Word(name, address, tuple(Field(*entry) for entry in fields))


def _bytes(*names: str) -> tuple[tuple[str, int, int], ...]:
    return tuple((name, 8 * index, 8 * index + 7) for index, name in enumerate(names))


CP_ALWAYS_ON_COUNTER = Word("CP_ALWAYS_ON_COUNTER", 0x980)  # and its upper half behind it

SP_CS_CNTL_0 = _word(
    "SP_CS_CNTL_0",
    0xA9B0,
    ("THREADMODE", 0, 0),
    ("HALFREGFOOTPRINT", 1, 6),
    ("FULLREGFOOTPRINT", 7, 12),
    ("UNK13", 13, 13),
    ("BRANCHSTACK", 14, 19),
    ("THREADSIZE", 20, 20),
    ("UNK21", 21, 21),
    ("UNK22", 22, 22),
    ("EARLYPREAMBLE", 23, 23),
    ("MERGEDREGS", 31, 31),
)
SP_CS_CNTL_1 = _word("SP_CS_CNTL_1", 0xA9B1, ("SHARED_SIZE", 0, 4), ("CONSTANTRAMMODE", 5, 6))
SP_CS_BOOLEAN_CF_MASK = Word("SP_CS_BOOLEAN_CF_MASK", 0xA9B2)
SP_CS_PROGRAM_COUNTER_OFFSET = Word("SP_CS_PROGRAM_COUNTER_OFFSET", 0xA9B3)
SP_CS_BASE = Word("SP_CS_BASE", 0xA9B4)  # 64 bits
SP_CS_PVT_MEM_PARAM = _word(
    "SP_CS_PVT_MEM_PARAM", 0xA9B6, ("MEMSIZEPERITEM", 0, 7, 9), ("HWSTACKSIZEPERTHREAD", 24, 31)
)
SP_CS_PVT_MEM_BASE = Word("SP_CS_PVT_MEM_BASE", 0xA9B7)  # 64 bits
SP_CS_PVT_MEM_SIZE = _word(
    "SP_CS_PVT_MEM_SIZE", 0xA9B9, ("TOTALPVTMEMSIZE", 0, 17, 12), ("PERWAVEMEMLAYOUT", 31, 31)
)
SP_CS_TSIZE = _word("SP_CS_TSIZE", 0xA9BA, ("COUNT", 0, 7))
SP_CS_CONFIG = _word(
    "SP_CS_CONFIG",
    0xA9BB,
    ("BINDLESS_TEX", 0, 0),
    ("BINDLESS_SAMP", 1, 1),
    ("BINDLESS_UAV", 2, 2),
    ("BINDLESS_UBO", 3, 3),
    ("ENABLED", 8, 8),
    ("NTEX", 9, 16),
    ("NSAMP", 17, 21),
    ("NUAV", 22, 28),
)
SP_CS_INSTR_SIZE = _word("SP_CS_INSTR_SIZE", 0xA9BC, ("UNITS", 0, 27))  # 128 bytes each
SP_CS_PVT_MEM_STACK_OFFSET = _word("SP_CS_PVT_MEM_STACK_OFFSET", 0xA9BD, ("OFFSET", 0, 18, 11))
SP_CS_SAMPLER_BASE = Word("SP_CS_SAMPLER_BASE", 0xA9E2)  # 64 bits
SP_CS_TEXMEMOBJ_BASE = Word("SP_CS_TEXMEMOBJ_BASE", 0xA9E6)  # 64 bits
SP_CS_BINDLESS_BASE = tuple(Word(f"SP_CS_BINDLESS_BASE_{n}", 0xA9E8 + 2 * n) for n in range(5))
"""64 bits each: the address of a set of descriptors, its low two bits the size of one."""
SP_CS_UAV_BASE = Word("SP_CS_UAV_BASE", 0xA9F2)  # 64 bits
SP_CS_USIZE = _word("SP_CS_USIZE", 0xAA00, ("COUNT", 0, 6))
SP_MODE_CNTL = _word(
    "SP_MODE_CNTL",
    0xAB00,
    ("CONSTANT_DEMOTION_ENABLE", 0, 0),
    ("ISAMMODE", 1, 2),
    ("SHARED_CONSTS_ENABLE", 3, 3),
)
SP_PERFCTR_SHADER_MASK = _word(
    "SP_PERFCTR_SHADER_MASK",
    0xAE0F,
    *((stage, bit, bit) for bit, stage in enumerate(("VS", "HS", "DS", "GS", "FS", "CS"))),
)
TPL1_CS_BORDER_COLOR_BASE = Word("TPL1_CS_BORDER_COLOR_BASE", 0xB180)  # 64 bits
TPL1_MODE_CNTL = _word(
    "TPL1_MODE_CNTL",
    0xB309,
    ("ISAMMODE", 0, 1),
    ("TEXCOORDROUNDMODE", 2, 2),
    ("NEARESTMIPSNAP", 5, 5),
    ("DESTDATATYPEOVERRIDE", 7, 7),
)
TPL1_DBG_ECO_CNTL = _word("TPL1_DBG_ECO_CNTL", 0xB600, ("BITS", 0, 25))
SP_CS_CONST_CONFIG = _word("SP_CS_CONST_CONFIG", 0xB987, ("CONSTLEN", 0, 7, 2), ("ENABLED", 8, 8))
SP_CS_NDRANGE_0 = _word(
    "SP_CS_NDRANGE_0",
    0xB990,
    ("KERNELDIM", 0, 1),
    ("LOCALSIZEX", 2, 11),
    ("LOCALSIZEY", 12, 21),
    ("LOCALSIZEZ", 22, 31),
)
SP_CS_CONST_CONFIG_0 = _word(
    "SP_CS_CONST_CONFIG_0", 0xB997, *_bytes("WGIDCONSTID", "WGSIZECONSTID", "WGOFFSETCONSTID", "LOCALIDREGID")
)
SP_CS_WGE_CNTL = _word(
    "SP_CS_WGE_CNTL",
    0xB998,
    ("LINEARLOCALIDREGID", 0, 7),
    ("SINGLE_SP_CORE", 8, 8),
    ("THREADSIZE", 9, 9),
    ("THREADSIZE_SCALAR", 10, 10),
)
SP_CS_KERNEL_GROUP_X = Word("SP_CS_KERNEL_GROUP_X", 0xB999)  # Y and Z follow
HLSQ_CS_BINDLESS_BASE = tuple(Word(f"HLSQ_CS_BINDLESS_BASE_{n}", 0xB9C0 + 2 * n) for n in range(5))
SP_UPDATE_CNTL = Word(
    "SP_UPDATE_CNTL",
    0xBB08,
    (
        *(
            Field(f"{stage}_STATE", bit, bit)
            for bit, stage in enumerate(("VS", "HS", "DS", "GS", "FS", "CS"))
        ),
        Field("CS_UAV", 6, 6),
        Field("GFX_UAV", 7, 7),
        Field("GFX_SHARED_CONST", 8, 8),
        Field("CS_BINDLESS", 9, 13),
        Field("GFX_BINDLESS", 14, 18),
        Field("CS_SHARED_CONST", 19, 19),
    ),
    trigger=True,
)


def _all() -> Iterator[Word]:
    """Every register, also those that are only a half or a neighbour of a named one."""
    for value in list(globals().values()):
        if isinstance(value, Word):
            yield value
    yield from SP_CS_BINDLESS_BASE
    yield from HLSQ_CS_BINDLESS_BASE
    pairs = (
        *SP_CS_BINDLESS_BASE,
        *HLSQ_CS_BINDLESS_BASE,
        SP_CS_BASE,
        SP_CS_PVT_MEM_BASE,
        SP_CS_SAMPLER_BASE,
        SP_CS_TEXMEMOBJ_BASE,
        SP_CS_UAV_BASE,
        TPL1_CS_BORDER_COLOR_BASE,
    )
    for low in pairs:
        yield Word(f"{low.name}+1", low.address + 1)
    for index, name in enumerate(f"{what}_{axis}" for axis in "XYZ" for what in ("GLOBALSIZE", "GLOBALOFF")):
        yield Word(f"SP_CS_NDRANGE_{index + 1}.{name}", SP_CS_NDRANGE_0.address + 1 + index)
    for index, axis in enumerate("YZ"):
        yield Word(f"SP_CS_KERNEL_GROUP_{axis}", SP_CS_KERNEL_GROUP_X.address + 1 + index)
    for index in range(4):
        yield Word(f"SP_REG_PROG_ID_{index}", 0xB983 + index)


REGISTERS: dict[int, Word] = {
    word.address: word for word in _all() if word.address != CP_ALWAYS_ON_COUNTER.address
}
"""What a command stream may write, by address in dwords."""

LOAD_STATE_0 = _word(
    "CP_LOAD_STATE6.0",
    0,
    ("DST_OFF", 0, 13),
    ("STATE_TYPE", 14, 15),
    ("STATE_SRC", 16, 17),
    ("STATE_BLOCK", 18, 21),
    ("NUM_UNIT", 22, 31),
)
WAIT_REG_MEM_0 = _word(
    "CP_WAIT_REG_MEM.0",
    0,
    ("FUNCTION", 0, 2),
    ("SIGNED_COMPARE", 3, 3),
    ("POLL", 4, 5),
    ("WRITE_MEMORY", 8, 8),
)
REG_TO_MEM_0 = _word(
    "CP_REG_TO_MEM.0", 0, ("REG", 0, 17), ("CNT", 18, 29), ("64B", 30, 30), ("ACCUMULATE", 31, 31)
)
EVENT_WRITE_0 = _word("CP_EVENT_WRITE.0", 0, ("EVENT", 0, 7), ("TIMESTAMP", 30, 30), ("IRQ", 31, 31))
SET_MARKER_0 = _word("CP_SET_MARKER.0", 0, ("MODE", 0, 3), ("USES_GMEM", 4, 4), ("MARKER_MODE", 8, 8))

DESCRIPTOR = (
    _word(
        "TEX_CONST_0",
        0,
        ("TILE_MODE", 0, 1),
        ("SRGB", 2, 2),
        ("SWIZ_X", 4, 6),
        ("SWIZ_Y", 7, 9),
        ("SWIZ_Z", 10, 12),
        ("SWIZ_W", 13, 15),
        ("MIPLVLS", 16, 19),
        ("SAMPLES", 20, 21),
        ("FMT", 22, 29),
        ("SWAP", 30, 31),
    ),
    _word("TEX_CONST_1", 1, ("WIDTH", 0, 14), ("HEIGHT", 15, 29)),
    _word("TEX_CONST_2", 2, ("PITCHALIGN", 0, 3), ("PITCH", 7, 28), ("TYPE", 29, 31)),
    _word(
        "TEX_CONST_3",
        3,
        ("ARRAY_PITCH", 0, 22, 12),
        ("MIN_LAYERSZ", 23, 26, 12),
        ("TILE_ALL", 27, 27),
        ("FLAG", 28, 28),
    ),
    _word("TEX_CONST_4", 4, ("BASE_LO", 5, 31, 5)),
    _word("TEX_CONST_5", 5, ("BASE_HI", 0, 16), ("DEPTH", 17, 29)),
    _word("TEX_CONST_6", 6, ("MIN_LOD_CLAMP", 0, 11), ("PLANE_PITCH", 8, 31)),  # which overlap
)
"""The words of a texture or UAV descriptor that a linear image of two or three dimensions uses."""

BUFFER_DESCRIPTOR = (
    *DESCRIPTOR[:2],
    _word("TEX_CONST_2", 2, ("STRUCTSIZETEXELS", 4, 15), ("STARTOFFSETTEXELS", 16, 21), ("TYPE", 29, 31)),
    *DESCRIPTOR[3:],
)
"""Those of a buffer, whose elements are counted in WIDTH and HEIGHT (Mesa, ``fdl6_buffer_view_init``)."""

UBO_DESCRIPTOR = (
    Word("UBO_0", 0),
    _word("UBO_1", 1, ("BASE_HI", 0, 16), ("SIZE", 17, 31)),  # in vec4
)

SAMPLER = (
    _word(
        "TEX_SAMP_0",
        0,
        ("MIPFILTER_LINEAR_NEAR", 0, 0),
        ("XY_MAG", 1, 2),
        ("XY_MIN", 3, 4),
        ("WRAP_S", 5, 7),
        ("WRAP_T", 8, 10),
        ("WRAP_R", 11, 13),
        ("ANISO", 14, 16),
        ("LOD_BIAS", 19, 31),
    ),
    _word(
        "TEX_SAMP_1",
        1,
        ("CLAMPENABLE", 0, 0),  # after a mix, which stays within the bounds of its texels anyway
        ("COMPARE_FUNC", 1, 3),
        ("CUBEMAPSEAMLESSFILTOFF", 4, 4),
        ("UNNORM_COORDS", 5, 5),
        ("MIPFILTER_LINEAR_FAR", 6, 6),
        ("MAX_LOD", 8, 19),
        ("MIN_LOD", 20, 31),
    ),
    _word(
        "TEX_SAMP_2",
        2,
        ("REDUCTION_MODE", 0, 1),
        ("FASTBORDERCOLOR", 2, 3),
        ("FASTBORDERCOLOREN", 4, 4),
        ("BCOLOR", 7, 31),
    ),
)
"""The words of a sampler."""

BORDER_BYTES = 128  # of a border colour, whose f32 components come first (Mesa, ``fd6_bcolor_entry``)

DESCRIPTOR_BYTES = 64
UBO_BYTES = 8
SAMPLER_BYTES = 16
