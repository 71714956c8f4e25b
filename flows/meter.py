"""Counts what a run really did, from the events of its steps (a cached task sends none)."""

from __future__ import annotations

import threading
from collections import defaultdict

from schemas.snapshot import PartRef, Stage


class Meter:
    """A progress listener that adds up seconds and embedded texts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seconds: dict[str, float] = defaultdict(float)
        self.embedded = 0

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds per stage, summed over shards that were worked on at the same time."""
        return {stage: round(seconds, 3) for stage, seconds in self._seconds.items()}

    def shard_done(self, stage: Stage, ref: PartRef, seconds: float) -> None:
        with self._lock:
            self._seconds[stage] += seconds
            if stage == "embed" and not ref.reused:
                self.embedded += ref.counts["computed"]

    def store_begun(self, name: str) -> None:
        pass

    def store_done(self, name: str, seconds: float) -> None:
        with self._lock:
            self._seconds[name] += seconds

    def units_expected(self, stage: Stage, units: int) -> None:
        pass

    def units_done(self, stage: Stage, units: int) -> None:
        pass
