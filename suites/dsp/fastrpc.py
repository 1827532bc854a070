"""A FastRPC shell in miniature: calls a library's entry under QEMU as the DSP's own shell would."""

from __future__ import annotations

import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pytest_qcom.dsp import csource, runner

LIMIT = 4096
"""Bytes of each of three memories, whose descriptors are 0, 1 and 2."""
TICK = 1234
"""Microseconds from one look at the clock to the next."""
VOTE = 36
"""Bytes of a vote for power."""

SHELL = f"""
static unsigned char memory[3][{LIMIT}] __attribute__((aligned(128)));
static unsigned char votes[2][{VOTE}];
static int voted, mapped, unmapped;
static unsigned long long clock;

int HAP_power_set(void *context, void *vote) {{
  for (int byte = 0; byte < {VOTE}; byte++) votes[voted][byte] = ((unsigned char *)vote)[byte];
  voted += context == (void *)0x5eed;
  return 0;
}}
void *HAP_mmap(void *at, int size, int protection, int flags, int descriptor, long offset) {{
  if (descriptor < 0 || descriptor > 2 || size > {LIMIT} || protection != 3) return (void *)-1;
  mapped += size;
  return memory[descriptor];
}}
int HAP_munmap(void *at, int size) {{
  for (int descriptor = 0; descriptor < 3; descriptor++) unmapped += at == memory[descriptor] ? size : 0;
  return 0;
}}
unsigned long long HAP_perf_get_time_us(void) {{ return clock += {TICK}; }}

static struct {{ int call, sizes[3], offsets[3], descriptors[3]; }} request;
static struct {{ int result, voted, mapped, unmapped; unsigned long long microseconds; }} report;

void _start(void) {{
  (void)instructions;
  transfer({csource.READ}, 0, &request, sizeof request);
  transfer({csource.READ}, 0, memory, sizeof memory);
  long long sizes[3];
  union argument arguments[6];
  arguments[0].bytes.data = sizes;
  arguments[1].bytes.data = request.offsets;
  arguments[2].bytes.data = &report.microseconds;
  for (int buffer = 0; buffer < 3; buffer++) {{
    sizes[buffer] = request.sizes[buffer];
    arguments[buffer + 3].memory.descriptor = request.descriptors[buffer];
  }}
  report.result = entry(0x5eed, request.call << 24 | 0x20103, arguments);
  reference(0x5eed, 0, 0);
  report.voted = voted;
  report.mapped = mapped;
  report.unmapped = unmapped;
  transfer({csource.WRITE}, 1, &report, sizeof report);
  transfer({csource.WRITE}, 1, votes, sizeof votes);
  transfer({csource.WRITE}, 1, memory, sizeof memory);
  system_call({csource.EXIT}, 0, 0, 0);
}}
"""


@dataclass(frozen=True)
class Report:
    """What a call gave: its result, what was mapped and unmapped in bytes, votes for power, all memory."""

    result: int
    mapped: int
    unmapped: int
    microseconds: int
    votes: tuple[bytes, ...]
    memory: NDArray[np.uint8]


def reference() -> str:
    """The entry that tinygrad itself writes, of a kernel without buffers that does nothing."""
    from tinygrad.runtime.ops_dsp import DSPRenderer

    renderer = object.__new__(DSPRenderer)  # one that compiles nothing
    entry = renderer._render_entry("idle", []).replace("int entry(", "int reference(")
    return "\n".join([*renderer._render_defines([]), "static void idle(void) {}", entry])


def build(source: str, folder: Path) -> Path:
    """The program of a library's source and the shell."""
    from tinygrad.runtime.ops_dsp import DSPCompiler

    program = folder / "shell"
    program.write_bytes(
        DSPCompiler(mock=True).compile("\n".join([source, csource.CALLS, reference(), SHELL]))
    )
    program.chmod(0o700)
    return program


def call(
    program: Path,
    memory: NDArray[np.uint8],
    sizes: tuple[int, ...],
    offsets: tuple[int, ...],
    descriptors: tuple[int, ...] = (0, 1, 2),
    method: int = csource.RUN,
) -> Report:
    """Calls the entry once."""
    emulator = shutil.which(runner.EMULATOR) or shutil.which(runner.OTHER_EMULATOR)
    assert emulator is not None
    given = struct.pack("<10i", method, *sizes, *offsets, *descriptors) + memory.tobytes()
    said = subprocess.run(
        [emulator, program], input=given, capture_output=True, check=True, timeout=60
    ).stdout
    result, voted, mapped, unmapped, microseconds = struct.unpack_from("<4iQ", said)
    votes = tuple(said[24 + VOTE * index : 24 + VOTE * (index + 1)] for index in range(voted))
    left = np.frombuffer(said[24 + 2 * VOTE :], np.uint8).reshape(3, LIMIT)
    return Report(result, mapped, unmapped, microseconds, votes, left)
