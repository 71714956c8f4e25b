"""Progress of a run, told to whoever listens: the command line's bars, Prefect's artifacts, a test's counter."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from schemas.errors import GlossatorError
from schemas.snapshot import PartRef, Stage


class Listener(Protocol):
    """Hears of work as it is done. Called from several threads."""

    def shard_done(self, stage: Stage, ref: PartRef, seconds: float) -> None:
        """A shard is done; ``ref.reused`` tells that its part was there already."""
        ...

    def store_begun(self, name: str) -> None:
        """Work on the catalog, the BM25 index or the vectors of the candidate begins."""
        ...

    def store_done(self, name: str, seconds: float) -> None:
        """The catalog, the BM25 index or the vectors of the candidate are done."""
        ...

    def units_expected(self, stage: Stage, units: int) -> None:
        """Work on a shard begins: it has so many documents or texts."""
        ...

    def units_done(self, stage: Stage, units: int) -> None:
        """So many more documents or texts are done."""
        ...


_listeners: list[Listener] = []
_stopping = threading.Event()


class Stopped(GlossatorError):
    """The run was asked to stop."""


def stop() -> None:
    """Ask all work of this process to end with the unit that it is at: threads hear of no signal."""
    _stopping.set()


def listen(listener: Listener) -> None:
    """Add a listener."""
    _listeners.append(listener)


def unlisten(listener: Listener) -> None:
    """Remove a listener."""
    _listeners.remove(listener)


def advance(stage: Stage, ref: PartRef, seconds: float) -> None:
    """Tell that a stage has finished a shard."""
    for listener in tuple(_listeners):
        listener.shard_done(stage, ref, seconds)


@contextmanager
def building(name: str) -> Iterator[None]:
    """Tell that work on a store of the candidate begins, and, unless it failed, when it is done."""
    begun = time.perf_counter()
    for listener in tuple(_listeners):
        listener.store_begun(name)
    yield
    for listener in tuple(_listeners):
        listener.store_done(name, time.perf_counter() - begun)


def expect(stage: Stage, units: int) -> None:
    """Tell that work on a shard of so many documents or texts begins."""
    for listener in tuple(_listeners):
        listener.units_expected(stage, units)


def tick(stage: Stage, units: int = 1) -> None:
    """Tell that so many more documents or texts are done.

    Raises:
        Stopped: work shall not go on.
    """
    if _stopping.is_set():
        raise Stopped("interrupted")
    for listener in tuple(_listeners):
        listener.units_done(stage, units)
