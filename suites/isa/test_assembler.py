"""Assembler: labels, names, the spelling of every form that kernels use, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_qcom.errors import EncodeError
from pytest_qcom.isa.assembler import Assembler, assemble, with_attributes
from pytest_qcom.isa.decoder import decode
from pytest_qcom.isa.encoder import encode
from pytest_qcom.isa.instruction import Instr, Kind, Operand
from pytest_qcom.isa.program import Program
from pytest_qcom.isa.registers import Reg
from pytest_qcom.isa.text import text
from suites.isa import oracle


def one(*arguments: str | int | Reg | Operand, **attributes: int | bool | str) -> Instr:
    assembler = Assembler()
    mnemonic, *operands = arguments
    assembler.emit(str(mnemonic), *operands, **attributes)
    return assembler.instrs[0]


SPELLINGS = [
    (("mad.f16", "hr0.x", "hr1.x", "(r)hr2.x", "(r)hr0.x"), {"rpt": 3, "sy": True},
     "(sy)(rpt3)mad.f16 hr0.x, hr1.x, (r)hr2.x, (r)hr0.x"),
    (("mad.f32", "r0.x", "c1.y", "r2.x", "(neg)r3.x"), {}, "mad.f32 r0.x, c1.y, r2.x, (neg)r3.x"),
    (("add.f", "hr0.x", "hr1.x", "(neg)hr2.x"), {}, "add.f hr0.x, hr1.x, (neg)hr2.x"),
    (("add.f", "r0.x", "r1.x", "(1.0)"), {}, "add.f r0.x, r1.x, (1.0)"),
    (("add.f", "hr0.x", "hr1.x", "(1.0)"), {}, "add.f hr0.x, hr1.x, h(1.0)"),
    (("add.s", "r0.x", "r1.x", 1023), {"nop": 3}, "(nop3) add.s r0.x, r1.x, 1023"),
    (("add.u", "hr0.x", "hr1.x", -1024), {}, "add.u hr0.x, hr1.x, h(-1024)"),
    (("cmps.s.eq", "p0.x", "r1.x", 300), {}, "cmps.s.eq p0.x, r1.x, 300"),
    (("cmps.u.lt", "r4.x", "r2.x", "c20.x"), {}, "cmps.u.lt r4.x, r2.x, c20.x"),
    (("shl.b", "r0.x", "r1.x", 3), {"jp": True, "ss": True}, "(ss)(jp)shl.b r0.x, r1.x, 3"),
    (("and.b", "r0.x", "r1.x", "c2.x"), {"nop": 1}, "(nop1) and.b r0.x, r1.x, c2.x"),
    (("mov.f32f32", "r0.x", "(1.5)"), {}, "mov.f32f32 r0.x, (1.500000)"),
    (("mov.f16f16", "hr0.x", "h(0.5)"), {}, "mov.f16f16 hr0.x, h(0.500000)"),
    (("mov.u32u32", "r0.x", 0x12345678), {}, "mov.u32u32 r0.x, 0x12345678"),
    (("mov.s32s32", "r0.x", -5), {}, "mov.s32s32 r0.x, -5"),
    (("mov.u32u32", "r1.x", "c<a0.x + 17>"), {}, "mov.u32u32 r1.x, c<a0.x + 17>"),
    (("mov.u32u32", "r<a0.x + 4>", "r2.x"), {}, "mov.u32u32 r<a0.x + 4>, r2.x"),
    (("cov.f32f16", "(even)hr0.x", "r0.x"), {}, "cov.f32f16 (even)hr0.x, r0.x"),
    (("cov.s32s16", "hr0.x", "(r)r1.x"), {"rpt": 3}, "(rpt3)cov.s32s16 hr0.x, (r)r1.x"),
    (("mova", "a0.x", "hr0.x"), {}, "mova a0.x, hr0.x"),
    (("mova1", "a1.x", 5), {}, "mova1 a1.x, 5"),
    (("swz.u32u32", "r0.x", "r1.x", "r1.x", "r0.x"), {}, "swz.u32u32 r0.x, r1.x, r1.x, r0.x"),
    (("sad.s32", "r2.y", "c20.y", "(neg)r4.y", "r4.x"), {"nop": 1},
     "(nop1) sad.s32 r2.y, c20.y, (neg)r4.y, r4.x"),
    (("shlg", "r0.z", 2, "r24.y", 128), {}, "shlg r0.z, 2, r24.y, 128"),
    (("shrm", "r0.z", 3, "r0.x", 12), {}, "shrm r0.z, 3, r0.x, 12"),
    (("shrg", "hr0.x", 16, "(r)r1.x", 0), {"rpt": 3}, "(rpt3)shrg hr0.x, 16, (r)r1.x, 0"),
    (("dp4acc.mixed.low", "r0.x", "r1.x", "r2.x", "r3.x"), {}, "dp4acc.mixed.low r0.x, r1.x, r2.x, r3.x"),
    (("rcp", "r0.x", "r1.x"), {"ss": True}, "(ss)rcp r0.x, r1.x"),
    (("isam.1d", "hr0.x", "r4.x"), {"type": "f16", "tex": 3, "samp": 1},
     "isam.1d (f16)(xyzw)hr0.x, r4.x, s#1, t#3"),
    (("isam.1d", "(u32)(xy)r0.x", "r4.x", "s#0", "t#1"), {}, "isam.1d (u32)(xy)r0.x, r4.x, s#0, t#1"),
    (("quad_shuffle.brcst", "(u32)(x)r0.x", "r1.x", "r2.x"), {},
     "quad_shuffle.brcst (u32)(x)r0.x, r1.x, r2.x"),
    (("ldg.f32", "r0.x", "r2.x", 4), {"offset": -16}, "ldg.f32 r0.x, g[r2.x-16], 4"),
    (("ldg.u16", "hr0.x", "g[r2.x+8]"), {}, "ldg.u16 hr0.x, g[r2.x+8], 1"),
    (("ldg.a.f32", "r0.x", "g[r2.x+(((r1.w<<3)+2)<<2)]", 3), {},
     "ldg.a.f32 r0.x, g[r2.x+(((r1.w<<3)+2)<<2)], 3"),
    (("stg.f16", "r2.x", "hr0.x"), {"count": 4}, "stg.f16 g[r2.x], hr0.x, 4"),
    (("stg.u32", "g[r2.x+4095]", "r0.x", 1), {"sy": True}, "(sy)stg.u32 g[r2.x+4095], r0.x, 1"),
    (("ldl.u32", "r0.x", "l[r1.x+16]", 4), {}, "ldl.u32 r0.x, l[r1.x+16], 4"),
    (("stl.f16", "l[r1.x]", "hr2.x", 4), {}, "stl.f16 l[r1.x], r2.x, 4"),
    (("stib.b.typed.2d.f32.4.imm", "r3.z", "r1.x", 0), {}, "stib.b.typed.2d.f32.4.imm r3.z, r1.x, 0"),
    (("getfiberid.u32", "r0.y"), {}, "getfiberid.u32 r0.y"),
    (("shfl.rdown.u16", "hr0.x", "hr1.x", 5), {}, "shfl.rdown.u16 hr0.x, hr1.x, 5"),
    (("shfl.xor.u32", "r0.x", "r1.x", "r2.x"), {}, "shfl.xor.u32 r0.x, r1.x, r2.x"),
    (("atomic.add.untyped.1d.u32.1.l", "r0.x", "l[r1.x]", "r2.x"), {},
     "atomic.add.untyped.1d.u32.1.l r0.x, l[r1.x], r2.x"),
    (("bar.g",), {"sy": True}, "(sy)bar.g"),
    (("fence.g.l.r.w",), {}, "fence.g.l.r.w"),
    (("nop",), {"rpt": 5, "ss": True}, "(ss)(rpt5)nop"),
    (("(sy)(jp)nop",), {}, "(sy)(jp)nop"),
    (("br", "!p0.y", 14), {}, "br !p0.y, #14"),
    (("brao", "p0.x", "!p0.y", "#-3"), {}, "brao p0.x, !p0.y, #-3"),
    (("predt",), {}, "predt"),
    (("end",), {}, "end"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "attributes", "shown"), SPELLINGS, ids=[row[2] for row in SPELLINGS])
def test_spellings(arguments: tuple[str, ...], attributes: dict[str, int | bool | str], shown: str) -> None:
    instr = one(*arguments, **attributes)
    assert text(instr) == shown
    assert oracle.disassemble([encode(instr)]) == [shown]
    assert assemble(shown) == instr


def test_operands_may_be_registers_and_operands() -> None:
    by_name = one("add.f", "r0.x", "(neg)r1.y", "c3.z")
    operand = Operand(Kind.GPR, 5, neg=True)
    assert one("add.f", Reg.parse("r0.x"), operand, Operand(Kind.CONST, 14)) == by_name


def test_labels_forward_and_back() -> None:
    assembler = Assembler()
    assembler.label("loop")
    assembler.emit("cmps.s.eq", "p0.x", "r0.x", 4)
    assembler.emit("br", "p0.x", "out")
    assembler.emit("jump", "loop")
    assembler.label("out")
    assembler.emit("end")
    program = assembler.program()
    assert [program.target(1), program.target(2)] == [3, 0]
    assert program.listing() == ("l0:\ncmps.s.eq p0.x, r0.x, 4\nbr p0.x, #l3\njump #l0\nl3:\nend\n")
    assert Assembler().parse(program.listing()).program() == program
    assert Assembler().parse(program.text()).program() == program


def test_named_registers() -> None:
    assembler = Assembler()
    assembler.name(acc="hr8.x", coord="r4.x", scale="c2.y")
    assembler.emit("mad.f16", "acc", "hr1.x", "(r)hr2.x", "(r)acc", rpt=3)
    assembler.emit("isam.1d", "acc", "coord", type="f16")
    assembler.emit("mul.f", "r0.x", "r1.x", "(neg)scale")
    assembler.emit("stg.f16", "g[coord+8]", "acc", 4)
    assert [text(instr) for instr in assembler.instrs] == [
        "(rpt3)mad.f16 hr8.x, hr1.x, (r)hr2.x, (r)hr8.x",
        "isam.1d (f16)(xyzw)hr8.x, r4.x, s#0, t#0",
        "mul.f r0.x, r1.x, (neg)c2.y",
        "stg.f16 g[r4.x+8], hr8.x, 4",
    ]


def test_comments_and_blank_lines() -> None:
    program = Assembler().parse("\n  nop ; wait\n// nothing\nend\n").program()
    assert program.text() == "nop\nend\n"


ERRORS = [
    ("frobnicate r0.x", "line 1: mnemonic 'frobnicate' is unknown"),
    ("getfiberid r0.x", "line 1: mnemonic 'getfiberid' is incomplete; write getfiberid.(u8_32|f16|f32|"),
    ("dp4acc r0.x, r1.x, r2.x, r3.x", "write dp4acc(.unsigned|.mixed)(.high|.low)"),
    ("add.ff r0.x, r1.x, r2.x", "did you mean add.f"),
    ("add.f r0.x, r1.x", "line 1: add.f with 2 operands; it takes 3: dst, src1, src2"),
    ("add.f r0.x, r1.x, hr2.x",
     "line 1: add.f with half and full sources (r1.x, hr2.x); all must have one width"),
    ("add.u r0.x, r1.x, 1024",
     "line 1: add.u: immediate is 1024, the encoding holds -1024 to 1023; choose a value in range"),
    ("add.u r0.x, r1.x, c512.x", "line 1: c512.x: constant is 2048, the encoding holds 0 to 2047"),
    ("add.u r64.x, r1.x, r2.x", "line 1: r64.x: register is 256, the encoding holds 0 to 255"),
    ("add.u r0.x, r1.x, r2.q", "line 1: operand 'r2.q' is none of"),
    ("shlg r0.x, 4096, r1.x, r2.x", "line 1: shlg: immediate is 4096, the encoding holds 0 to 4095"),
    ("mad.f32 r0.x, r1.x, c2.x, r3.x",
     "line 1: mad.f32: second source c2.x must be a plain register; move it to one"),
    ("mad.f32 r0.x, hr1.x, hr2.x, hr3.x", "line 1: mad.f32 takes full sources; use r registers"),
    ("mad.f16 hr0.x, hr1.x, (abs)hr2.x, hr3.x", "must be a plain register"),
    ("mad.f32 r0.x, (abs)r1.x, r2.x, r3.x",
     "line 1: mad.f32: source (abs)r1.x has (abs), which cat3 lacks; drop it"),
    ("add.f r0.x, (r)r1.x, r2.x",
     "line 1: add.f with (r) but without (rptN); its bits would mean (nopN), drop it"),
    ("(rpt1)(nop2) add.f r0.x, r1.x, r2.x",
     "line 1: add.f with (rpt1) and (nop2); they share bits, use one"),
    ("(nop4) add.f r0.x, r1.x, r2.x",
     "line 1: add.f with (nop4); at most (nop3) fits, use a nop instruction"),
    ("(rpt4)add.f r0.x, r1.x, r2.x",
     "line 1: add.f: rpt is 4, its 2 bits hold 0 to 3; choose a value in range"),
    ("(rpt8)nop", "line 1: nop: rpt is 8, its 3 bits hold 0 to 7; choose a value in range"),
    ("mov.f32f16 hr0.x, r0.x", "line 1: mov.f32f16 has types that are not equal; use mov or cov"),
    ("cov.f32f16 r0.x, r0.x",
     "line 1: mov: r0.x is full, type f16 is not; use the other register file"),
    ("mov.u16u16 hr0.x, 65536", "line 1: immediate 65536 does not fit u16; it holds 16 bits"),
    ("mov.f16f16 hr0.x, h(70000.0)", "line 1: 'h(70000.0)' is no f16 number; write (1.5) or h(1.5)"),
    ("(ss)ldg.f32 r0.x, g[r2.x], 1",
     "line 1: ldg takes none of (ss)(rptN)(nopN)(sat)(ul)(ei); put an (ss)nop before it"),
    ("ldg.f32 hr0.x, g[r2.x], 1",
     "line 1: ldg: hr0.x does not hold type f32; use the other register file"),
    ("ldg.f32 r0.x, g[hr2.x], 1", "line 1: ldg: hr2.x is a half register; addresses are full"),
    ("ldg.f32 r0.x, g[r2.x+4096], 1", "line 1: ldg: offset is 4096, its 13 bits hold -4096 to 4095"),
    ("ldg.f32 r0.x, g[r2.x], 8", "line 1: ldg: count is 8, its 3 bits hold 0 to 7"),
    ("stg.f32 g[r2.x-4097], r0.x, 1", "line 1: stg: offset is -4097, its 13 bits hold -4096 to 4095"),
    ("isam.1d (f32)(xyzw)hr0.x, r4.x, s#0, t#0",
     "line 1: isam: destination hr0.x does not hold type f32; use the other register file"),
    ("isam.1d (f32)(xyzw)r0.x, r4.x, s#16, t#0", "line 1: isam: samp is 16, its 4 bits hold 0 to 15"),
    ("isam.1d (f32)(wx)r0.x, r4.x, s#0, t#0",
     "line 1: write mask (wx) is none; write letters of xyzw in order"),
    ("(ss)isam.1d (f32)(x)r0.x, r4.x, s#0, t#0",
     "line 1: isam takes none of (ss)(rptN)(nopN)(sat)(ul)(ei); put an (ss)nop before it"),
    ("shfl.xor.u32 r0.x, r1.x, 256", "line 1: shfl: immediate is 256, the encoding holds 0 to 255"),
    ("shfl.4.u32 r0.x, r1.x, 1",
     "line 1: shfl: shuffle is 4, which has no meaning; choose one of 1, 2, 3, 6, 7"),
    ("dp4acc.mixed.low r0.x, r1.x, r2.x, c0.x",
     "line 1: dp4acc takes no constants; move it to a register"),
    ("br p1.x, #3", "line 1: br: operand 'p1.x' does not fit; write p1, target"),
    ("loop:\nloop:", "line 2: label 'loop' is set twice, at 0 and 0"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "message"), ERRORS, ids=[row[0] for row in ERRORS])
def test_errors_say_what_to_do(source: str, message: str) -> None:
    with pytest.raises(EncodeError) as caught:
        Assembler().parse(source)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unset_label() -> None:
    assembler = Assembler()
    assembler.emit("jump", "nowhere")
    assembler.label("here")
    with pytest.raises(EncodeError) as caught:
        assembler.program()
    assert str(caught.value) == "label 'nowhere', used at instruction 0, is not set; labels are here"


def test_unknown_attributes() -> None:
    with pytest.raises(EncodeError, match=r"^add\.f has no field tex; it has conv, dst, ei, full"):
        one("add.f", "r0.x", "r1.x", "r2.x", tex=1)
    with pytest.raises(EncodeError, match=r"^attribute type='f64' is no number; types are f16, f32"):
        one("isam.1d", "r0.x", "r4.x", type="f64")


def test_names_are_not_reused() -> None:
    assembler = Assembler()
    assembler.name(acc="r0.x")
    with pytest.raises(EncodeError, match=r"^name 'acc' is r0\.x and r1\.x; choose another$"):
        assembler.name(acc="r1.x")


def test_changed_attributes() -> None:
    branch = assemble("br p0.x, #3")
    assert text(with_attributes(branch, target=-7)) == "br p0.x, #-7"
    with pytest.raises(EncodeError, match="target is 2147483648, its 32 bits hold"):
        with_attributes(branch, target=1 << 31)


@settings(max_examples=200)
@given(st.integers(-5000, 5000))
def test_immediates_encode_what_was_asked_or_raise(value: int) -> None:
    """No immediate is ever cut: it comes back from the word, or it is refused."""
    for line, low, high in (
        ("cmps.s.eq p0.x, r1.x, {}", -1024, 1023),
        ("shrg r0.x, {}, r1.x, r2.x", 0, 4095),
        ("ldg.f32 r0.x, g[r2.x{:+d}], 1", -4096, 4095),
        ("shfl.up.u32 r0.x, r1.x, {}", 0, 255),
    ):
        spelled = line.format(value)
        if low <= value <= high:
            shown = spelled.replace("+0]", "]")
            assert oracle.disassemble([encode(assemble(spelled))]) == [shown]
        else:
            with pytest.raises(EncodeError):
                assemble(spelled)


def test_decoded_programs_assemble_again() -> None:
    """The seed of every kernel: text to program to image to program to the same text."""
    lines = (
        "(sy)(ss)nop",
        "mul.f hr0.x, hr1.x, hc2.y",
        "(rpt2)mov.u32u32 r0.x, (r)r4.x",
        "stg.u8 g[r0.x], hr1.x, 1",
        "end",
    )
    source = "\n".join(lines) + "\n"
    program = Assembler().parse(source).program()
    assert Program.decode(program.encode()).text() == source
    assert [decode(encode(instr)) for instr in program.instrs] == list(program.instrs)


LINES = [
    line.split(" | ")[2]
    for line in (Path(__file__).parent / "golden.txt").read_text().splitlines()
    if not line.startswith("#")
]


@settings(max_examples=300)
@given(
    st.sampled_from(LINES),
    st.integers(0, 200),
    st.integers(0, 3),
    st.text("rhcpa0129.xyzw(),[]<>+-#s {}_", max_size=4),
)
def test_damaged_text_is_an_error_or_text(line: str, at: int, cut: int, added: str) -> None:
    """Whatever is typed: one of our errors, or an instruction whose text reads back."""
    at %= len(line) + 1
    damaged = line[:at] + added + line[at + cut :]
    try:
        instrs = Assembler().parse(damaged).program().instrs
    except EncodeError as error:
        assert "\n" not in str(error)
        return
    for instr in instrs:
        shown = text(instr)
        assert oracle.disassemble([encode(instr)]) == [shown]
