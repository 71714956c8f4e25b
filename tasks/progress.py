"""Progress of a run, told to whoever listens: the command line's bars, Prefect's artifacts, a test's counter."""

from __future__ import annotations

from typing import Protocol

from schemas.snapshot import PartRef, Stage


class Listener(Protocol):
    """Hears of work as it is done. Called from several threads."""

    def shard_done(self, stage: Stage, ref: PartRef, seconds: float) -> None:
        """A shard is done; ``ref.reused`` tells that its part was there already."""
        ...

    def store_done(self, name: str, seconds: float) -> None:
        """The catalog, the BM25 index or the vectors of the candidate are done."""
        ...

    def units_done(self, stage: Stage, units: int, of: int) -> None:
        """``units`` more of ``of`` rows of the shard at hand are done."""
        ...


_listeners: list[Listener] = []


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


def store_done(name: str, seconds: float) -> None:
    """Tell that a store of the candidate is done."""
    for listener in tuple(_listeners):
        listener.store_done(name, seconds)


def tick(stage: Stage, units: int, of: int) -> None:
    """Tell that a stage has done part of a shard."""
    for listener in tuple(_listeners):
        listener.units_done(stage, units, of)
