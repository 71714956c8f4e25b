"""Parsing in a process of its own: a document that crashes its parser, hangs it or eats the memory costs itself alone.

PDF and HTML are read by large libraries in C, and what goes wrong in one of them is no exception that could be caught;
the parsers of Markdown and Python take time or memory without bounds for what is large and odd enough. So documents go
to worker processes (``worker.py``), each under limits that the kernel enforces. A worker that ends
while it parses is replaced; a document that ends one that had parsed others before is given a fresh one, so that none
is blamed for what its forerunners left. None is blamed for the machine either: a worker that cannot start fails the
run, and a document whose worker was killed from outside is tried again by the next one.

A worker starts in 0.3 s when the first such document comes, is used again and again, and answers a small document in
under a millisecond beyond the parsing.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from multiprocessing import Pipe
from typing import Any, TypeVar

from pydantic import TypeAdapter

from schemas.config import LoadConfig
from schemas.errors import GlossatorError, PermanentError, TransientError
from tasks.child import python_path
from tasks.worker import OUT_OF_MEMORY, PATIENCE, READY

T = TypeVar("T")

HARMLESS = 64 * 2**10
"""Markdown and code of so few bytes are parsed where they are: of all that we could think of, block quotes with lines
that continue them took the longest (4 s to load and chunk), a table of many columns the most memory (60 MB)."""
DOCUMENTS = 500
"""So many are parsed by one worker: what its libraries leak goes with it."""
START_SECONDS = 60.0
GRACE_SECONDS = 10.0
"""So much later than a worker's own limit it is ended from here: it may be stopped, or its limits not be kept."""
ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "SYSTEMROOT")
"""All that a parser is told of it: no key, no token."""

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
_turns = threading.BoundedSemaphore(CORES)


class WorkerEnded(Exception):
    """A worker ended while it parsed; ``told`` is what the document's failure says."""

    def __init__(self, told: GlossatorError) -> None:
        super().__init__(told.what)
        self.told = told


class _Worker:
    """One process, for one document at a time.

    Raises:
        TransientError: it cannot start.
    """

    def __init__(self, function: str, config: LoadConfig) -> None:
        self.kind = (function, config.max_seconds, config.max_memory_mb)
        self.parsed = 0
        self._config = config
        self._late = False
        limits = (str(config.max_seconds), str(config.max_memory_mb))
        environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        environment["PYTHONPATH"] = python_path()
        try:
            self._connection, theirs = Pipe()
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "tasks.worker", str(theirs.fileno()), function, *limits],
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=environment,
                )
        except OSError as error:
            raise self._no_start(error.strerror or str(error)) from error
        try:
            ready = self._connection.poll(START_SECONDS) and self._connection.recv_bytes() == READY
        except (EOFError, OSError):
            ready = False
        if not ready:
            self.close()
            raise self._no_start(f"exit code {self._process.returncode}")

    def ask(self, arguments: tuple[Any, ...], uri: str) -> bytes:
        """Return the function's result as JSON.

        Raises:
            WorkerEnded: the worker is of no more use.
            PermanentError: what the parser said of the document, the worker's traceback with it.
        """
        watch = threading.Timer(PATIENCE * self._config.max_seconds + GRACE_SECONDS, self._end_late)
        watch.start()
        try:
            self._connection.send(arguments)
            answer = self._connection.recv_bytes()
        except (EOFError, OSError) as error:  # It has closed its end: it is ending.
            raise WorkerEnded(self._told(uri)) from error
        finally:
            watch.cancel()
        self.parsed += 1
        if answer.startswith(b'{"refused"'):
            said = json.loads(answer)
            refusal = PermanentError(
                said["refused"]["what"], document=said["refused"]["document"] or uri, hint=said["refused"]["hint"]
            )
            refusal.add_note(said["traceback"])
            raise refusal
        return answer

    def close(self) -> None:
        """End the process: at once, whatever it does."""
        self._connection.close()
        self._process.kill()
        self._process.wait()

    def forget(self) -> None:
        """Let go of a worker that belongs to the process that this one was forked from."""
        self._connection.close()
        self._process.returncode = 0

    def _end_late(self) -> None:
        self._late = True
        self._process.kill()

    def _told(self, uri: str) -> GlossatorError:
        """Return why the worker ended, in the words of its document's failure."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE_SECONDS)
        code, limits = self._process.poll(), self._config
        if self._late or code in {-signal.SIGXCPU, -signal.SIGALRM}:
            return _too_much(f"took longer than load.max_seconds = {limits.max_seconds}", "load.max_seconds", uri)
        if code == OUT_OF_MEMORY:
            what = f"needed more memory than load.max_memory_mb = {limits.max_memory_mb}"
            return _too_much(what, "load.max_memory_mb", uri)
        if code == -signal.SIGKILL:
            hint = "the next run tries again; if the machine was short of memory, lower run.workers"
            return GlossatorError("the parser was killed from outside (SIGKILL)", document=uri, hint=hint)
        ended = "closed its pipe" if code is None else signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return PermanentError(f"the parser crashed ({ended})", document=uri, hint="repair or convert the file")

    def _no_start(self, why: str) -> TransientError:
        return TransientError(
            f"a process that parses documents cannot start ({why})",
            hint="check memory and open files (`ulimit -a`), then run the same command again",
        )


def _too_much(what: str, setting: str, uri: str) -> PermanentError:
    hint = f"repair or divide the file; or raise {setting} and run `glossator quarantine retry`"
    return PermanentError(f"the parser {what}", document=uri, hint=hint)


_idle: list[_Worker] = []
_guard = threading.Lock()


def call(function: str, arguments: tuple[Any, ...], result: TypeAdapter[T], uri: str, limits: LoadConfig) -> T:
    """Call a function in a worker.

    Args:
        function: ``module:name`` of one that parses.
        arguments: its own; they are pickled.
        result: reads its result, which travels as JSON.
        uri: the document, for errors.
        limits: ``max_seconds`` and ``max_memory_mb`` count.

    Raises:
        PermanentError: the parser refused the document, crashed, or took more time or memory than it may.
        GlossatorError: it was killed by somebody else.
        TransientError: no worker can start.
    """
    with _turns:
        worker = _borrow(function, limits)
        fresh = worker.parsed == 0
        try:
            answer = _ask(worker, arguments, uri)
        except WorkerEnded as error:
            if fresh:
                raise error.told from error
            try:
                answer = _ask(_Worker(function, limits), arguments, uri)
            except WorkerEnded as again:
                raise again.told from again
    return result.validate_json(answer)


def _ask(worker: _Worker, arguments: tuple[Any, ...], uri: str) -> bytes:
    try:
        answer = worker.ask(arguments, uri)
    except PermanentError:  # Said by the parser; the worker is well.
        _give_back(worker)
        raise
    except BaseException:
        worker.close()
        raise
    _give_back(worker)
    return answer


def _borrow(function: str, limits: LoadConfig) -> _Worker:
    kind = (function, limits.max_seconds, limits.max_memory_mb)
    with _guard:
        for worker in _idle:
            if worker.kind == kind:
                _idle.remove(worker)
                return worker
    return _Worker(function, limits)


def _give_back(worker: _Worker) -> None:
    if worker.parsed >= DOCUMENTS:
        worker.close()
        return
    with _guard:
        _idle.append(worker)


@atexit.register
def end_workers() -> None:
    """End all workers that wait for a document."""
    with _guard:
        idle = [*_idle]
        _idle.clear()
    for worker in idle:
        worker.close()


def _begin_anew() -> None:
    """In a child: the workers answer to the process that it was forked from."""
    global _guard, _turns
    _guard, _turns = threading.Lock(), threading.BoundedSemaphore(CORES)
    for worker in _idle:
        worker.forget()
    _idle.clear()


os.register_at_fork(after_in_child=_begin_anew)
