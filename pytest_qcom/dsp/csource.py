"""A listing as C source: the kernel, and what calls it.

Both entries are as tinygrad's ``runtime/ops_dsp.py`` calls them: over FastRPC on a phone (``DSPRenderer``,
``DSPProgram``), and as a program of its own under QEMU (``MockDSPProgram``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_qcom.dsp.hvx import TYPES, VECTOR_BYTES, Kind
from pytest_qcom.dsp.listing import Address, Buffer, Listing, Load, Loop, Statement, Step, Store
from pytest_qcom.errors import KernelError


def program(listing: Listing, entry: str) -> str:
    """The source of a kernel and of its entry.

    Raises:
        KernelError: an unknown entry.
    """
    if entry not in ENTRIES:
        raise KernelError(f"{listing.name}: entry {entry!r}; there are {', '.join(ENTRIES)}")
    return "\n".join([*TYPES, "", *kernel(listing), "", *ENTRIES[entry](listing)]) + "\n"


def kernel(listing: Listing) -> Iterator[str]:
    """The lines of the kernel: a function of its buffers."""
    parameters = ", ".join(
        f"{'' if buffer.written else 'const '}unsigned char *restrict {buffer.name}"
        for buffer in listing.buffers
    )
    yield f"__attribute__((noinline)) static void {listing.name}({parameters}) {{"
    yield from _body(listing.body, set(), "  ")
    yield "}"


def _body(body: Sequence[Statement], outer: set[str], indent: str) -> Iterator[str]:
    known = set(outer)
    for statement in body:
        if isinstance(statement, Loop):
            name = statement.variable
            yield f"{indent}for (int {name} = 0; {name} < {statement.count}; {name}++) {{"
            yield from _body(statement.body, known, f"{indent}  ")
            yield f"{indent}}}"
        elif isinstance(statement, Store):
            yield f"{indent}*(vector *){_address(statement.address)} = {statement.value};"
        else:
            kind, value = _value(statement)
            declared = "" if statement.result in known else f"{kind.c} "
            known.add(statement.result)
            yield f"{indent}{declared}{statement.result} = {value};"


def _value(statement: Load | Step) -> tuple[Kind, str]:
    if isinstance(statement, Load):
        return statement.kind, f"*(const {statement.kind.c} *){_address(statement.address)}"
    return statement.operation.result, statement.operation.c(*statement.operands)


def _address(address: Address) -> str:
    terms = [f"{variable} * {stride}" for variable, stride in address.strides]
    offset = [str(address.offset)] if address.offset else []
    return f"({' + '.join([address.buffer, *terms, *offset])})"


POWER = """\
struct power_request {
  int type, reserved;
  _Bool scale_clocks;
  signed char policy;
  _Bool set_latency;
  int latency_us;
  _Bool set_corners;
  short reserved2;
  signed char target, lowest, highest;
  int reserved3[3];
};"""
"""The second version of the power vote, laid out as tinygrad's ``dcvs_v2_req``."""

FASTRPC = """\
union argument {
  struct { void *data; unsigned int size; } bytes;
  struct { int descriptor; unsigned int offset; } memory;
};
int HAP_power_set(void *, void *);
void *HAP_mmap(void *, int, int, int, int, long);
int HAP_munmap(void *, int);
unsigned long long HAP_perf_get_time_us(void);"""
"""Arguments of a FastRPC call, and the functions that its shell on the DSP offers."""

POWER_VOTE = "{.type = 7, .set_latency = 1, .latency_us = 100, .set_corners = 1, .target = 6}"
"""No scaling of clocks, woken within 100 microseconds, at the corner that tinygrad calls TURBO."""

RUN = 2
"""The method that runs the kernel; 0 opens the library and 1 closes it."""


MAP = f"""\
static unsigned char *map(const union argument *argument, int size, int offset, int needed) {{
  if (size < needed || offset % {VECTOR_BYTES}) return 0;
  unsigned char *base = HAP_mmap(0, size + offset, 3, 0, argument->memory.descriptor, 0);
  return base == (void *)-1 ? 0 : base;
}}"""
"""Memory of a buffer from its start, to read and to write; null where that fails."""


def _fastrpc(listing: Listing) -> Iterator[str]:
    """``entry``: sizes in slots of 8 bytes, offsets, the microseconds that are given back, then each memory.

    A buffer that is too small or not at a vector, or memory that cannot be mapped, is an error of the call,
    and the kernel does not run. No tables: tinygrad's linker script has no place for constants.
    """
    names = [buffer.name for buffer in listing.buffers]
    yield from (POWER, FASTRPC, MAP, "")
    yield "int entry(unsigned long long handle, unsigned int call, union argument *arguments) {"
    yield f"  struct power_request vote = {POWER_VOTE};"
    yield "  HAP_power_set((void *)(unsigned int)handle, &vote);"
    yield f"  if (call >> 24 != {RUN}) return 0;"
    yield "  const long long *sizes = arguments[0].bytes.data;"
    yield "  const int *offsets = arguments[1].bytes.data;"
    for at, buffer in enumerate(listing.buffers):
        mapped = f"map(arguments + {at + 3}, (int)sizes[{at}], offsets[{at}], {buffer.size})"
        yield f"  unsigned char *{buffer.name} = {mapped};"
    yield f"  int complete = {' && '.join(names)};"
    yield "  if (complete) {"
    yield "    unsigned long long start = HAP_perf_get_time_us();"
    yield f"    {listing.name}({', '.join(f'{name} + offsets[{at}]' for at, name in enumerate(names))});"
    yield "    *(unsigned long long *)arguments[2].bytes.data = HAP_perf_get_time_us() - start;"
    yield "  }"
    for at, name in enumerate(names):
        yield f"  if ({name}) HAP_munmap({name}, (int)sizes[{at}] + offsets[{at}]);"
    yield "  return complete ? 0 : -1;"
    yield "}"


READ, WRITE, EXIT = 63, 64, 93
"""System calls of Linux on Hexagon, the generic ones."""

INSTRUCTIONS = 0x6A00C000 | 21 << 16
"""``r0 = c21``, a packet of its own: the register where QEMU counts instructions, nameless to assemblers."""

CALLS = f"""\
static int system_call(int number, int a, int b, int c) {{
  register int r0 __asm__("r0") = a;
  register int r1 __asm__("r1") = b;
  register int r2 __asm__("r2") = c;
  register int r6 __asm__("r6") = number;
  __asm__ volatile("trap0(#1)" : "+r"(r0) : "r"(r1), "r"(r2), "r"(r6) : "memory");
  return r0;
}}
static unsigned int instructions(void) {{
  register unsigned int count __asm__("r0");
  __asm__ volatile(".word {INSTRUCTIONS:#x}" : "=r"(count) : : "memory");
  return count;
}}
static void transfer(int number, int file, void *data, int size) {{
  for (int done = 0, moved; done < size; done += moved) {{
    moved = system_call(number, file, (int)data + done, size - done);
    if (moved <= 0) system_call({EXIT}, 1, 0, 0);
  }}
}}"""


def _stdio(listing: Listing) -> Iterator[str]:
    """``_start``: buffers from standard input; count of instructions and all buffers to standard output."""
    yield from CALLS.splitlines()
    for buffer in listing.buffers:
        yield _memory(buffer)
    yield "void _start(void) {"
    for buffer in listing.buffers:
        yield f"  transfer({READ}, 0, {buffer.name}_memory, {buffer.size});"
    yield "  unsigned int start = instructions();"
    yield f"  {listing.name}({', '.join(f'{buffer.name}_memory' for buffer in listing.buffers)});"
    yield "  unsigned int count = instructions() - start;"
    yield f"  transfer({WRITE}, 1, &count, sizeof count);"
    for buffer in listing.buffers:
        yield f"  transfer({WRITE}, 1, {buffer.name}_memory, {buffer.size});"
    yield f"  system_call({EXIT}, 0, 0, 0);"
    yield "}"


def _memory(buffer: Buffer) -> str:
    return (
        f"static unsigned char {buffer.name}_memory[{buffer.size}] __attribute__((aligned({VECTOR_BYTES})));"
    )


ENTRIES = {"fastrpc": _fastrpc, "stdio": _stdio}
"""What calls a kernel, by how its buffers come."""
