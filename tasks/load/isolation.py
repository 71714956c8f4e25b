"""Parsing in a process of its own: a document that crashes its parser, hangs it or eats the memory costs itself alone.

PDF and HTML are read by large libraries in C. What goes wrong in one of them is no exception that could be caught, so
their documents go to worker processes (``worker.py``), each under limits that the kernel enforces. A worker that ends
while it parses is replaced; a document that ends one that had parsed others before is given a fresh one, so that none
is blamed for what its forerunners left.

A worker starts in 0.3 s when the first such document comes, is used again and again, and answers a small document in
under a millisecond beyond the parsing.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from multiprocessing import Pipe

from schemas.config import LoadConfig
from schemas.documents import LoadedDocument
from schemas.errors import PermanentError
from tasks.load.loader import document_type, load_document

ISOLATED = frozenset({"pdf", "html"})
FUNCTION = "tasks.load.loader:load_document"
DOCUMENTS = 500
"""So many are parsed by one worker: what its libraries leak goes with it."""
PATIENCE = 4
"""Seconds of the clock for each second of processor time that a document may take: others need the processor too."""

CORES = os.cpu_count() or 1
_turns = threading.BoundedSemaphore(CORES)


class WorkerEnded(Exception):
    """A worker ended while it parsed.

    Attributes:
        why: in words that continue "the parser".
        advice: what may help.
    """

    def __init__(self, why: str, advice: str) -> None:
        super().__init__(why)
        self.why = why
        self.advice = advice


class _Worker:
    """One process, for one document at a time."""

    def __init__(self, function: str, config: LoadConfig) -> None:
        self.kind = (function, config.max_seconds, config.max_memory_mb)
        self.parsed = 0
        self._config = config
        self._connection, theirs = Pipe()
        limits = (str(config.max_seconds), str(config.max_memory_mb))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tasks.load.worker", str(theirs.fileno()), function, *limits],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment,
            )

    def load(self, data: bytes, uri: str) -> LoadedDocument:
        """Parse a document.

        Raises:
            WorkerEnded: the worker is of no more use.
            Exception: what the parser threw, the worker's traceback with it.
        """
        limit = self._config.max_seconds
        try:
            self._connection.send((data, uri, self._config))
            if not self._connection.poll(PATIENCE * limit):
                raise self._too_long()
            how, what = self._connection.recv()
        except (EOFError, OSError) as error:  # It has closed its end: it is ending.
            raise self._ended() from error
        self.parsed += 1
        if how == "memory":
            raise self._too_large()
        if how == "refused":
            refusal, told = what
            refusal.add_note(told)
            raise refusal
        loaded: LoadedDocument = what
        return loaded

    def close(self) -> None:
        """End the process: at once, whatever it does."""
        self._connection.close()
        self._process.kill()
        self._process.wait()

    def forget(self) -> None:
        """Let go of a worker that belongs to the process that this one was forked from."""
        self._connection.close()
        self._process.returncode = 0

    def _ended(self) -> WorkerEnded:
        code = self._process.wait()
        if code == -signal.SIGXCPU:
            return self._too_long()
        ended = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return WorkerEnded(f"crashed ({ended})", "repair or convert the file")

    def _too_long(self) -> WorkerEnded:
        limit = self._config.max_seconds
        return WorkerEnded(
            f"took longer than load.max_seconds = {limit}",
            "repair or divide the file; or raise load.max_seconds and run `glossator quarantine retry`",
        )

    def _too_large(self) -> WorkerEnded:
        limit = self._config.max_memory_mb
        return WorkerEnded(
            f"needed more memory than load.max_memory_mb = {limit}",
            "repair or divide the file; or raise load.max_memory_mb and run `glossator quarantine retry`",
        )


_idle: list[_Worker] = []
_guard = threading.Lock()


def is_isolated(uri: str) -> bool:
    """Tell whether a file of this name is parsed in a worker, so that several can be at a time."""
    return document_type(uri) in ISOLATED


def load(data: bytes, uri: str, config: LoadConfig) -> LoadedDocument:
    """Load one file, in a worker where its type asks for one. Arguments and errors are those of ``load_document``.

    Raises:
        PermanentError: the parser crashed, or took more time or memory than the configuration allows.
    """
    if not is_isolated(uri) or len(data) > config.max_bytes:
        return load_document(data, uri, config)
    with _turns:
        worker = _borrow(config)
        fresh = worker.parsed == 0
        try:
            return _parse(worker, data, uri)
        except WorkerEnded as error:
            if not fresh:
                with suppress(WorkerEnded):
                    return _parse(_Worker(FUNCTION, config), data, uri)
            raise PermanentError(f"the parser {error.why}", document=uri, hint=error.advice) from error


def _parse(worker: _Worker, data: bytes, uri: str) -> LoadedDocument:
    try:
        loaded = worker.load(data, uri)
    except WorkerEnded:
        worker.close()
        raise
    except Exception:  # What the parser threw; the worker is well.
        _give_back(worker)
        raise
    _give_back(worker)
    return loaded


def _borrow(config: LoadConfig) -> _Worker:
    kind = (FUNCTION, config.max_seconds, config.max_memory_mb)
    with _guard:
        for worker in _idle:
            if worker.kind == kind:
                _idle.remove(worker)
                return worker
    return _Worker(FUNCTION, config)


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
