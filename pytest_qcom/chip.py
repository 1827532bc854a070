"""The Adreno 630 as data: sizes, limits, clocks, latencies and the semantics that nobody documents.

Every fact carries its value, unit, source and certainty. Read a number as ``A630.waves.per_sp.value``; list
all of them with :meth:`Chip.facts`. Latency *classes* stand in the instruction table
(:class:`~pytest_qcom.isa.instruction.Latency`); what a class costs stands here and nowhere else.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Certainty(enum.Enum):
    """How far a fact may be trusted on silicon."""

    DOCUMENTED = "documented"  # Mesa's or Qualcomm's source states it
    MEASURED = "measured"  # observed on a device, or by calling Mesa
    INFERRED = "inferred"  # follows from the above, never tested by itself
    ASSUMED = "assumed"  # a choice between open possibilities


@dataclass(frozen=True, slots=True)
class Fact(Generic[T]):
    """One fact: ``value`` in ``unit``, where it comes from and how certain it is."""

    value: T
    unit: str
    source: str
    certainty: Certainty = Certainty.DOCUMENTED


def _documented(value: T, unit: str, source: str) -> Fact[T]:
    return Fact(value, unit, "Mesa, " + source, Certainty.DOCUMENTED)


def _tinymesa(value: T, unit: str, symbol: str) -> Fact[T]:
    return Fact(value, unit, "measured with tinymesa, " + symbol, Certainty.MEASURED)


def _tc3(value: T, unit: str, what: str) -> Fact[T]:
    return Fact(value, unit, "measured on tc3, " + what, Certainty.MEASURED)


def _inferred(value: T, unit: str, source: str) -> Fact[T]:
    return Fact(value, unit, source, Certainty.INFERRED)


@dataclass(frozen=True, slots=True)
class Clocks:
    """Clocks of the GPU."""

    core: Fact[float]
    top: Fact[float]
    always_on: Fact[float]


@dataclass(frozen=True, slots=True)
class Cores:
    """How many of what computes."""

    shader_processors: Fact[int]
    issue_partitions: Fact[int]  # a shader processor
    lanes: Fact[int]  # fibers that a partition executes a cycle, one instruction of a 64-fiber wave


@dataclass(frozen=True, slots=True)
class Waves:
    """What bounds the waves in flight."""

    fibers: Fact[int]  # of a THREAD64 wave
    per_sp: Fact[int]
    granularity: Fact[int]  # waves launch in groups of this many
    fibers_per_sp: Fact[int]
    branchstack: Fact[int]  # entries a shader processor
    workgroup: Fact[int]  # largest workgroup


@dataclass(frozen=True, slots=True)
class Registers:
    """The register file."""

    vec4: Fact[int]  # of a fiber slot of the file, times fibers times granularity
    full: Fact[int]  # r0 to r47, scalars
    half: Fact[int]  # hr0 to hr47, scalars
    shared_first: Fact[int]  # r48
    shared: Fact[int]  # r48 to r55, scalars
    predicates: Fact[int]
    halves_per_full: Fact[int]


@dataclass(frozen=True, slots=True)
class Memories:
    """On-chip memories and alignments."""

    local_bytes: Fact[int]
    local_unit: Fact[int]
    constant_vec4: Fact[int]
    constant_unit: Fact[int]
    instruction_unit: Fact[int]
    instruction_cache: Fact[int]
    instruction_preload: Fact[int]
    private_align: Fact[int]
    texture_l1: Fact[int]
    l2: Fact[int]


@dataclass(frozen=True, slots=True)
class Images:
    """Limits of textures and images."""

    side: Fact[int]
    field: Fact[int]
    pitch_align: Fact[int]
    subtexel_bits: Fact[int]
    address_align: Fact[int]
    textures: Fact[int]
    samplers: Fact[int]
    writable: Fact[int]


@dataclass(frozen=True, slots=True)
class Code:
    """How a program lies in memory."""

    bytes_per_instruction: Fact[int]
    align: Fact[int]
    pad: Fact[int]
    repeat: Fact[int]
    nop: Fact[int]
    trailing: Fact[int]
    branch_low: Fact[int]
    branch_high: Fact[int]


@dataclass(frozen=True, slots=True)
class Delays:
    """Issue slots that must lie strictly between the end of a producer and the start of a consumer."""

    alu_to_alu: Fact[int]
    non_alu: Fact[int]
    mad_addend: Fact[int]
    mismatch: Fact[int]
    predicate: Fact[int]
    address: Fact[int]


@dataclass(frozen=True, slots=True)
class Latencies:
    """Cycles from issue to result, for the timing model and for what a late result is late by."""

    alu: Fact[int]
    sfu: Fact[tuple[int, int, int]]  # with one, two and four waves
    local: Fact[int]
    texture: Fact[tuple[int, int, int, int]]  # cached, 1 to 4 components, THREAD64
    texture128: Fact[tuple[int, int, int, int]]
    constant_load: Fact[tuple[int, int]]  # base and a component
    constant_load128: Fact[tuple[int, int]]
    memory: Fact[tuple[int, int]]
    memory128: Fact[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Rates:
    """Steady throughput of the pipes."""

    mad_half64: Fact[float]
    mad_full64: Fact[float]
    mad_half128: Fact[float]
    mad_full128: Fact[float]
    full_cycles128: Fact[float]
    mad_cycles128: Fact[float]
    sfu_lanes: Fact[int]
    texels: Fact[int]
    texture_bandwidth: Fact[float]


@dataclass(frozen=True, slots=True)
class Choice:
    """Semantics that nobody documents: the question, what the virtual device does, what else it could be."""

    name: str
    question: str
    chosen: str
    otherwise: str
    source: str
    certainty: Certainty = Certainty.ASSUMED


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How far a special function may be from the exact value.

    Attributes:
        ulp32: bound in units in the last place of float32, or ``None`` where the bound is absolute.
        absolute: absolute bound over ``domain``.
    """

    function: str
    ulp32: float | None
    absolute: float | None
    domain: str
    source: str
    certainty: Certainty = Certainty.ASSUMED


@dataclass(frozen=True, slots=True)
class Chip:
    """A chip. ``choices`` and ``accuracies`` are what a device test would settle."""

    name: str
    chip_id: Fact[int]
    clocks: Clocks
    cores: Cores
    waves: Waves
    registers: Registers
    memories: Memories
    images: Images
    code: Code
    delays: Delays
    latencies: Latencies
    rates: Rates
    choices: tuple[Choice, ...]
    accuracies: tuple[Accuracy, ...]

    def facts(self) -> Iterator[tuple[str, Fact[Any]]]:
        """All facts with their path (``delays.alu_to_alu``), in the order of declaration."""
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, Fact):
                yield item.name, value
            elif is_dataclass(value):
                for inner in fields(value):
                    yield f"{item.name}.{inner.name}", getattr(value, inner.name)

    def choice(self, name: str) -> Choice:
        """The semantic choice called ``name``.

        Raises:
            KeyError: when there is none.
        """
        return {choice.name: choice for choice in self.choices}[name]


_FIGURES = "MAD throughput of tinygrad PR 16229"

A630 = Chip(
    name="Adreno 630",
    chip_id=_documented(0x06030001, "", "freedreno_devices.py, FD630"),
    clocks=Clocks(
        core=_inferred(
            675e6, "Hz", "345.6 GFLOPS = 512 flop/cycle x 675 MHz exactly (MAD throughput of THREAD64)"
        ),
        top=Fact(
            710e6,
            "Hz",
            "Linux, sdm845.dtsi, gpu_opp_table: the highest operating point",
            Certainty.DOCUMENTED,
        ),
        always_on=_documented(19.2e6, "Hz", "a6xx CP_ALWAYS_ON_COUNTER; tinygrad divides by it"),
    ),
    cores=Cores(
        shader_processors=_tinymesa(2, "", "fd_dev_info.num_sp_cores"),
        issue_partitions=_inferred(2, "a shader processor", "wave pairs and the MAD throughput of THREAD64"),
        lanes=_inferred(64, "fibers/cycle", "MAD throughput of THREAD64: 256 lanes/cycle in 4 partitions"),
    ),
    waves=Waves(
        fibers=_tinymesa(64, "fibers", "fd_dev_info.threadsize_base"),
        per_sp=_tinymesa(16, "waves", "fd_dev_info.max_waves"),
        granularity=_tinymesa(2, "waves", "fd_dev_info.wave_granularity"),
        fibers_per_sp=_tinymesa(2048, "fibers", "fd_dev_info.fibers_per_sp"),
        branchstack=_tinymesa(64, "entries", "ir3_compiler.branchstack_size"),
        workgroup=_tinymesa(1024, "fibers", "ir3_compiler.max_variable_workgroup_size"),
    ),
    registers=Registers(
        vec4=_tinymesa(96, "vec4", "fd_dev_info.a6xx.reg_size_vec4"),
        full=_documented(192, "scalars", "ir3.h GPR_REG_SIZE"),
        half=_documented(192, "scalars", "ir3.h ir3_reg_file_offset, split registers"),
        shared_first=_documented(192, "scalar number", "ir3.h SHARED_REG_START, r48.x"),
        shared=_documented(32, "scalars", "ir3.h SHARED_REG_SIZE, r48.x to r55.w"),
        predicates=_tinymesa(4, "registers", "ir3_compiler.num_predicates"),
        halves_per_full=_tinymesa(2, "half vec4 a full vec4", "ir3_get_reg_dependent_max_waves"),
    ),
    memories=Memories(
        local_bytes=_tinymesa(32768, "bytes a shader processor", "fd_dev_info.cs_shared_mem_size"),
        local_unit=_tinymesa(1024, "bytes", "ir3_get_reg_independent_max_waves"),
        constant_vec4=_tinymesa(256, "vec4", "ir3_compiler.max_const_compute"),
        constant_unit=_tinymesa(4, "vec4", "ir3_compiler.const_upload_unit"),
        instruction_unit=_documented(128, "bytes", "ir3.c ir3_collect_info, SP_CS_INSTR_SIZE"),
        instruction_cache=_tinymesa(8192, "bytes", "fd_dev_info.a6xx.instr_cache_size, 64 x 128 bytes"),
        instruction_preload=_documented(8192, "bytes", "fd6_program.c, instr_cache_size caps the preload"),
        private_align=_tinymesa(512, "bytes a fiber", "ir3_compiler.pvtmem_per_fiber_align"),
        texture_l1=_inferred(1024, "bytes a shader processor", "Adreno 640, measured by Chips and Cheese"),
        l2=_inferred(131072, "bytes", "Adreno 640, measured by Chips and Cheese"),
    ),
    images=Images(
        side=_documented(16384, "texels", "freedreno_screen.c, largest 2D texture of a4xx and later"),
        field=_documented(32767, "texels", "a6xx.xml A6XX_TEX_CONST_1 WIDTH and HEIGHT, 15 bits"),
        pitch_align=_documented(64, "bytes", "a6xx.xml A6XX_TEX_CONST_2 PITCHALIGN counts from 64"),
        subtexel_bits=_documented(8, "bits", "tu_device.cc, subTexelPrecisionBits"),
        address_align=_documented(32, "bytes", "a6xx.xml A6XX_TEX_CONST_4, five low bits are ignored"),
        textures=_documented(255, "slots", "a6xx.xml SP_CS_CONFIG NTEX, 8 bits"),
        samplers=_documented(31, "slots", "a6xx.xml SP_CS_CONFIG NSAMP, 5 bits"),
        writable=_documented(127, "slots", "a6xx.xml SP_CS_CONFIG NUAV, 7 bits"),
    ),
    code=Code(
        bytes_per_instruction=_documented(8, "bytes", "ir3.xml, 64-bit instructions"),
        align=_tinymesa(16, "instructions", "ir3_compiler.instr_align"),
        pad=_documented(4, "instructions", "ir3.c ir3_collect_info, least padding behind end"),
        repeat=_documented(3, "repeats", "ir3-cat2.xml and others, two-bit REPEAT of the ALU"),
        nop=_documented(3, "slots", "ir3-cat2.xml, (nopN) on cat2 and cat3 without repeat"),
        trailing=_documented(5, "repeats", "ir3_legalize.c, (rpt5)nop is the longest that is emitted"),
        branch_low=_documented(-(1 << 31), "instructions", "ir3-cat0.xml IMMED, signed 32 bits"),
        branch_high=_documented((1 << 31) - 1, "instructions", "ir3-cat0.xml IMMED, signed 32 bits"),
    ),
    delays=Delays(
        alu_to_alu=_tinymesa(3, "slots", "ir3_compiler.delay_slots.alu_to_alu"),
        non_alu=_tinymesa(6, "slots", "ir3_compiler.delay_slots.non_alu"),
        mad_addend=_tinymesa(2, "slots", "ir3_compiler.delay_slots.cat3_src2_read, of mad and madsh"),
        mismatch=_documented(3, "slots", "ir3_delay.c ir3_delayslots, half and full on one storage"),
        predicate=_tinymesa(6, "slots", "ir3_delayslots, a compare to p0 and its branch"),
        address=_tinymesa(6, "slots", "ir3_delayslots, a0.x and a relative access"),
    ),
    latencies=Latencies(
        alu=_documented(4, "cycles", "ir3_delay.c, alu_to_alu slots and the issue itself"),
        sfu=_documented((8, 9, 10), "cycles with 1, 2, 4 waves", "ir3.h soft_ss_delay"),
        local=_documented(10, "cycles", "ir3.h soft_ss_delay"),
        texture=_documented((51, 53, 62, 64), "cycles, 1 to 4 components", "ir3.h soft_sy_delay, cached"),
        texture128=_documented((58, 60, 77, 79), "cycles, 1 to 4 components", "ir3.h soft_sy_delay, cached"),
        constant_load=_documented((18, 4), "cycles, and a component", "ir3.h soft_sy_delay, ldc"),
        constant_load128=_documented((21, 8), "cycles, and a component", "ir3.h soft_sy_delay, ldc"),
        memory=_documented((109, 1), "cycles, and a component", "ir3.h soft_sy_delay, cached"),
        memory128=_documented((172, 1), "cycles, and a component", "ir3.h soft_sy_delay, cached"),
    ),
    rates=Rates(
        mad_half64=_tc3(345.6e9, "flop/s", _FIGURES),
        mad_full64=_tc3(345.7e9, "flop/s", _FIGURES),
        mad_half128=_tc3(690.4e9, "flop/s", _FIGURES),
        mad_full128=_tc3(468.1e9, "flop/s", _FIGURES),
        full_cycles128=_tc3(690.4 / 468.1, "cycles of 128 fibers", "THREAD128 MADs, full against half"),
        mad_cycles128=_documented(2.0, "cycles of 128 fibers", "ir3.c, full instructions of double waves"),
        sfu_lanes=_inferred(8, "fibers/cycle a partition", "Adreno 640, rcp 55 GOPS over 12 partitions"),
        texels=_tc3(16, "half4 texels/cycle a shader processor", "texture bandwidth sweep"),
        texture_bandwidth=_tc3(147.8e9, "bytes/s", "texture bandwidth sweep, 32 loads in flight, THREAD128"),
    ),
    choices=(
        Choice(
            "mad-rounding",
            "Is the product of mad.f32 and mad.f16 rounded before the addition?",
            "yes: product and sum are each rounded and flushed, in the width of the instruction",
            "a fused multiply-add with one rounding",
            "Mesa, ir3_compiler_nir.c emit_alu, comment on ffma",
            Certainty.DOCUMENTED,
        ),
        Choice(
            "flush",
            "Which float values are flushed to zero?",
            "subnormal inputs and results of float arithmetic, f16 and f32; moves keep bits",
            "outputs only",
            "Mesa, tu_device.cc float controls: no denorm-preserve mode",
        ),
        Choice(
            "flush-sign",
            "Does a flushed value keep its sign?",
            "yes",
            "positive zero",
            "not documented",
        ),
        Choice(
            "cov-rounding",
            "How does cov round with round field 0?",
            "towards zero, so an f32 above 65504 converts to f16 65504; (even) rounds to nearest even",
            "to nearest even",
            "Mesa, ir3 round_t names 0 ROUND_ZERO, create_cov leaves 0 for f2f16_rtz and sets EVEN for "
            "f2f16_rtne, and its list of Vulkan tests that fail on an A630 (freedreno-a630-fails.txt) has "
            "none of rounding; tinygrad's commit 1c16b6e skipped test_gemm_fp16 on a device as not precise "
            "enough, which rounding to nearest would pass",
            Certainty.INFERRED,
        ),
        Choice(
            "cov-int-float",
            "How does an integer to float cov round with round field 0?",
            "towards zero",
            "to nearest even",
            "Mesa's freedreno-a630-fails.txt has piglit's fs-uint-to-float-of-extract-int16 and -int8, "
            "which wanted 2^32 for 2^32 - 1 (piglit now takes 2^32 - 256 too, towards zero); later versions "
            "of create_cov set EVEN here where a program asks for it",
            Certainty.MEASURED,
        ),
        Choice(
            "cov-saturation",
            "What does a float to integer cov give out of range?",
            "the nearest integer of the type, NaN gives 0",
            "wrapping, or the most negative value",
            "not documented",
        ),
        Choice(
            "f16-infinity",
            "Does f16 arithmetic overflow to infinity?",
            "yes",
            "to 65504: SP_NC_MODE_CNTL_2.F16_NO_INF",
            "a MAD loop measured on tc3 ends in 0x7c00 under tinygrad's launch",
            Certainty.MEASURED,
        ),
        Choice(
            "folded-width",
            "At which width does an ALU instruction with mixed widths compute?",
            "at the width of its sources; the result is converted to the destination's",
            "at full width",
            "Mesa, ir3_output_conv_type",
            Certainty.INFERRED,
        ),
        Choice(
            "folded-rounding",
            "How is a folded f32 to f16 result rounded?",
            "as cov with round field 0",
            "to nearest even",
            "Mesa, ir3_cf.c is_safe_conv",
        ),
        Choice(
            "min-max-nan",
            "What do min and max give with one NaN?",
            "the other operand",
            "NaN",
            "Mesa maps NIR fmin and fmax one to one",
        ),
        Choice(
            "shift-amount",
            "What does a shift by the width or more do?",
            "takes the amount modulo the width",
            "gives 0, or the sign",
            "Mesa adds no mask to NIR's shifts",
            Certainty.INFERRED,
        ),
        Choice(
            "clz-zero",
            "What does clz.b give for 0?",
            "-1",
            "the width",
            "Mesa, lowering of ufind_msb and find_lsb",
            Certainty.INFERRED,
        ),
        Choice(
            "sad",
            "What does sad.s32 compute on the A630?",
            "|a - b| + c",
            "a + b + c, as Mesa has iadd3 on later chips: has_sad is not set for the A630",
            "the vendor's compiler adds a carry of 1 to the high half of an address as sad.s32 hi, "
            "(neg)carry",
            Certainty.INFERRED,
        ),
        Choice(
            "image-outside",
            "What does a read outside an image give, and a write do?",
            "zeros in all four components; the write is dropped",
            "the edge texel",
            "Mesa, a6xx_isam_mode; sampler clamps to a zero border",
            Certainty.INFERRED,
        ),
        Choice(
            "filter-order",
            "In which order are neighbours mixed when a texture is filtered, and how are the mixes rounded?",
            "in x, then in y, then in z, with weights of 8 bits; each product and sum rounded to f32",
            "all at once, in fixed point",
            "tu_device.cc, subTexelPrecisionBits; the order is not documented",
            Certainty.INFERRED,
        ),
        Choice(
            "image-store-rounding",
            "How does an image store round f32 to f16?",
            "to nearest even",
            "towards zero",
            "not documented",
        ),
        Choice(
            "branchstack",
            "In which unit does the branch stack bound the waves?",
            "waves = 2 x floor(64 / n) with n as declared, as Mesa 25.2.7 computes",
            "the halved hardware field",
            "Mesa, ir3_get_reg_independent_max_waves; later versions differ",
        ),
        Choice(
            "constant-length",
            "Does CONSTLEN bound constant reads?",
            "no: tinygrad writes 0 and its kernels read constants on devices",
            "reads beyond it give 0",
            "works on devices",
            Certainty.INFERRED,
        ),
        Choice(
            "repeated-move",
            "Does (rptN)mov without (r) repeat its first source?",
            "yes: only a source with (r) advances",
            "the source advances with the destination",
            "Mesa, ir3 register encoding; published notes contradict one another",
            Certainty.DOCUMENTED,
        ),
        Choice(
            "texel-flush",
            "Is a subnormal f16 texel that isam reads as f16 flushed?",
            "yes, keeping its sign; read as f32 it is exact",
            "the bits are kept",
            "not documented",
        ),
        Choice(
            "constant-demotion",
            "How does a half float constant round under constant demotion?",
            "as cov with round field 0, towards zero",
            "to nearest even",
            "not documented",
        ),
        Choice(
            "far-angles",
            "What are sin and cos of an angle from 2^30 on?",
            "those of zero; from 2^20 to there they lose accuracy",
            "anything: the Vulkan bound ends at pi",
            "not documented",
        ),
        Choice(
            "local-order",
            "Does bar alone order local stores before local loads?",
            "yes",
            "a fence is needed",
            "tinygrad's barriers have execution scope only and work",
            Certainty.INFERRED,
        ),
        Choice(
            "detail-of-gradients",
            "Which level of detail do derivatives of coordinates give?",
            "the logarithm of the longer one's length in texels, exact, to the nearest 1/256",
            "an approximation of the length, which Vulkan allows to be off by a factor between 1/2 and 2",
            "Vulkan, Scale Factor Operation; tu_device.cc mipmapPrecisionBits",
        ),
        Choice(
            "detail-halfway",
            "Which level is nearest halfway between two?",
            "the larger image",
            "the smaller image",
            "Vulkan prefers it; TPL1_MODE_CNTL.NEARESTMIPSNAP is not looked at",
        ),
        Choice(
            "cube-corners",
            "What do filters read beyond the corner of a cube's face, where three faces meet?",
            "the mean of their three texels, of integers the face's own texel",
            "one of the three",
            "Vulkan recommends it, Cube Map Edge Handling",
        ),
        Choice(
            "shadow-reference",
            "Is the number that a shadow sampler compares held between 0 and 1?",
            "for normalised texels, not for floats",
            "never",
            "Vulkan, Depth Compare Operation: for formats of fixed point",
        ),
        Choice(
            "small-slices",
            "How far apart are slices of a level of a three-dimensional image?",
            "a quarter of the level before, MIN_LAYERSZ at least",
            "as their rows need",
            "fd6_layout.c and the comment on MIN_LAYERSZ in a6xx.xml",
            Certainty.INFERRED,
        ),
    ),
    accuracies=(
        Accuracy("rcp", 1.0, None, "all", "OpenCL and Vulkan bounds; virtual: correctly rounded"),
        Accuracy("rsq", 2.0, None, "positive", "OpenCL and Vulkan bounds"),
        Accuracy("sqrt", 2.5, None, "positive", "OpenCL and Vulkan bounds"),
        Accuracy("exp2", 3.0, None, "|x| < 1; 3 + 2|x| beyond", "Vulkan bound"),
        Accuracy("log2", 3.0, None, "outside [0.5, 2]; absolute 2^-21 inside", "Vulkan bound"),
        Accuracy("sin", None, 2.0**-11, "[-pi, pi], radians", "Vulkan bound"),
        Accuracy("cos", None, 2.0**-11, "[-pi, pi], radians", "Vulkan bound"),
    ),
)
