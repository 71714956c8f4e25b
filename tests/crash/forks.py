"""Children that have everything imported: a fork takes milliseconds, a new interpreter seconds.

A fork copies one thread only. So the process that forks must never have used what works in threads (Polars, Arrow,
gRPC, Milvus Lite): whatever uses them runs in a child. Importing them starts a few that only tidy up memory and are
known to bear it; ``begin`` refuses to fork a process that has any other. OpenBLAS and OpenMP need ``ONE_THREAD`` for
that.
"""

from __future__ import annotations

import importlib
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
"""Environment of a process that forks."""
HARMLESS = ("jemalloc_bg_thd", "polars-ooc-clea")
"""Threads of memory allocators, which set themselves right after a fork, and of a library's temporary files."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended.

    Attributes:
        signal: that killed it, 0 for none.
        value: what its function returned; None when it was killed.
    """

    signal: int
    value: Any


class ChildFailed(AssertionError):
    """A child raised; the message is its traceback."""


@dataclass(frozen=True, slots=True)
class Child:
    """A child that runs."""

    pid: int
    pipe: int
    log: Path

    def kill(self) -> None:
        """End it as a power cut of this one process would."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> Ended:
        """Wait for its end.

        Raises:
            ChildFailed
        """
        with os.fdopen(self.pipe, "rb") as pipe:
            data = pipe.read()
        _, status = os.waitpid(self.pid, 0)
        if os.WIFSIGNALED(status):
            return Ended(os.WTERMSIG(status), None)
        said = self.log.read_text(errors="replace")[-2_000:]
        good, value = pickle.loads(data) if data else (False, f"exit {status}: {said}")
        if not good:
            raise ChildFailed(value)
        return Ended(0, value)


def start(work: Callable[[], Any], log: Path) -> Ended:
    """Run a function in a child and wait for its end.

    Args:
        log: takes the child's standard output and error.

    Raises:
        ChildFailed
    """
    return begin(work, log).wait()


def begin(work: Callable[[], Any], log: Path) -> Child:
    """Start a child that runs a function, as ``start`` does, and do not wait."""
    if len(threads()) > 1:
        raise AssertionError(f"a process of several threads cannot be copied: {threads()}")
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reads)
        _live(work, writes, log)
    os.close(writes)
    return Child(child, reads, log)


def _live(work: Callable[[], Any], pipe: int, log: Path) -> None:
    """Run a function and end the process, whatever happens."""
    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        try:
            answer = (True, work())
        except BaseException:
            answer = (False, traceback.format_exc())
        sys.stdout.flush()
        data = memoryview(pickle.dumps(answer))
        while data:
            data = data[os.write(pipe, data) :]
    finally:
        os._exit(0)


def threads() -> list[str]:
    """Return the names of this process's threads, those that Python does not know of included, less the harmless."""
    names = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):
            names.append((task / "comm").read_text().strip())
    return sorted(name for name in names if name not in HARMLESS)


def import_all(names: Iterable[str]) -> None:
    """Import modules that a child has found itself needing, so that the next one has them."""
    for name in names:
        if name not in sys.modules and not name.startswith("__"):
            with suppress(Exception):  # Some exist only inside others.
                importlib.import_module(name)
