"""The executor: real ir3 machine code, compiled by LLVM to run the fibers of a wave as vectors.

:class:`Executor` is the whole interface. Inside: ``translate`` turns a program into LLVM IR with the
semantics of the instruction table (``llvm_builder``, ``segment``, ``dataflow``), ``runtime`` is the shared
generated code for memory, images, lanes and scheduling, ``kernels`` compiles and caches, ``launch`` runs a
dispatch on threads and ``failures`` explains what stopped a wave.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pytest_qcom.errors import LaunchError, QcomError
from pytest_qcom.virtual.dispatch import Dispatch, Execution
from pytest_qcom.virtual.executor.cache import default_directory
from pytest_qcom.virtual.executor.failures import failure
from pytest_qcom.virtual.executor.kernels import Library
from pytest_qcom.virtual.executor.launch import Launch, Mapped, Workspace
from pytest_qcom.virtual.executor.races import Watch
from pytest_qcom.virtual.executor.target import compiler

__all__ = ["DEFAULT_BUDGET", "DEFAULT_TOTAL", "Executor"]

DEFAULT_BUDGET = 1 << 28
"""Issue cycles that a wave may take: 0.4 s on the device at its core clock, if it ran alone."""

DEFAULT_TOTAL = 1 << 34
"""Issue cycles that all waves of a launch may take together: some seconds on the device. A launch whose
waves would each end in time may have billions of them."""


class Executor:
    """Runs dispatches.

    Args:
        threads: host threads; by default one for each processor that this process may use. Results and
            totals do not depend on it.
        cache_dir: where compiled programs are kept, by default :func:`cache.default_directory`.
        budget: issue cycles after which a wave counts as hung.
        races: look for races between workgroups: on one thread, and several times as slow. Such a launch
            runs as if every wait were there.
        total: issue cycles after which a launch counts as hung, each wave's start counted as 256.
        portable: rely on no floating-point special of this host; slower, the same results.
        late: says of a launch whether its program waits too little somewhere, so that its results must be
            as late as they would be on the device; by default nothing is ever late.
    """

    def __init__(
        self,
        threads: int | None = None,
        cache_dir: Path | None = None,
        budget: int = DEFAULT_BUDGET,
        portable: bool = False,
        late: Callable[[Dispatch], bool] | None = None,
        total: int = DEFAULT_TOTAL,
        races: bool = False,
    ) -> None:
        self.threads = threads or len(os.sched_getaffinity(0))
        self.budget, self.total = budget, total
        self._late, self._races = late, races
        self._library = Library(compiler(portable), cache_dir or default_directory())
        self._workspaces = [Workspace() for _ in range(self.threads)]
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()  # one dispatch at a time: the workspaces are its

    def run(self, dispatch: Dispatch, memory: Mapped) -> Execution:
        """Runs a dispatch to its end; its effects are in the memory that ``memory`` lists as mapped.

        Raises:
            DecodeError: the code holds a word that is no instruction.
            LaunchError: the launch has no workgroups, or they have no fibers.
            GpuFault: an access outside of mapped, local or private memory, an unbound image, an instruction
                that the virtual A630 does not execute.
            GpuHang: a loop or a launch that used up its budget, a program without end, a barrier that not
                all reach.
            RaceError: workgroups that race, where races are looked for; memory holds what one order gave.
        """
        if min(*dispatch.groups, *dispatch.local_size) < 1:
            raise LaunchError(
                f"launch of {dispatch.groups} workgroups of {dispatch.local_size} fibers: every size is at "
                "least 1; correct the launch"
            )
        with self._lock:
            races = self._races
            late = not races and self._late is not None and self._late(dispatch)
            kernel = self._library.kernel(dispatch, late, races)
            launch = Launch(dispatch, memory, kernel, self.budget, self.total)
            watch = Watch(launch) if races else None
            count = 1 if races else launch.worth(self.threads)
            workspaces = self._workspaces[:count]
            start = time.perf_counter()
            execution = launch.run(workspaces, self._workers() if count > 1 else None)
            if not late and not races:  # code with late results is many small loops: nothing to optimise
                self._library.ran(dispatch, time.perf_counter() - start)
            error: QcomError | None = failure(launch, workspaces, memory)
            if error is None and watch is not None:
                error = watch.error(memory)
        if error is not None:
            raise error
        return execution

    def _workers(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads - 1, thread_name_prefix="qcom")
        return self._pool
