"""Progress of a run on a terminal: one line per stage with rate and time left, one per store; nothing elsewhere."""

from __future__ import annotations

import threading
from collections import Counter
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TaskID, TextColumn
from rich.table import Column
from rich.text import Text

from schemas.snapshot import STAGES, PartRef, Stage
from tasks.progress import listen, unlisten

_UNITS = {"load": "documents", "chunk": "documents", "contextualize": "documents"}


class _Amount(ProgressColumn):
    """Done of all, ``~`` before a total that is an estimate; nothing where there is nothing to count."""

    def render(self, task: Task) -> Text:
        if not task.fields["unit"]:
            return Text()
        total = "?" if task.total is None else f"{'~' if task.fields['estimated'] else ''}{task.total:,.0f}"
        return Text(f"{task.completed:,.0f}/{total}", justify="right")


class _Rate(ProgressColumn):
    """Units a second since the stage began."""

    def render(self, task: Task) -> Text:
        elapsed = task.finished_time if task.finished else task.elapsed
        if not (task.fields["unit"] and elapsed and task.completed):
            return Text()
        rate = task.completed / elapsed
        return Text(f"{rate:,.0f}/s" if rate < 1e5 else f"{rate / 1e3:,.0f}k/s", style="dim", justify="right")


class _Time(ProgressColumn):
    """Seconds that are left, as far as one can tell; then those that it took."""

    def render(self, task: Task) -> Text:
        if task.finished:
            return Text(_clock(task.finished_time), style="dim")
        if task.time_remaining:
            return Text(f"{_clock(round(task.time_remaining))} left")
        return Text(_clock(task.elapsed), style="dim")


def _clock(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s" if isinstance(seconds, float) and seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


class Bars:
    """A progress listener that draws. The total of a stage is known when all its shards have begun; until then the
    shards to come are taken to be as large as those seen."""

    def __init__(self, console: Console, shards: int) -> None:
        self._lock = threading.Lock()
        self._shards = shards
        self._seen: Counter[Stage] = Counter()
        self._found: Counter[Stage] = Counter()
        self._units: Counter[Stage] = Counter()
        self._rows: dict[str, TaskID] = {}
        self._progress = Progress(
            SpinnerColumn(finished_text="[green]✓"),
            TextColumn("{task.description}", table_column=Column(width=13)),
            BarColumn(bar_width=10),
            _Amount(table_column=Column(width=20, justify="right")),
            TextColumn("{task.fields[unit]}", style="dim", table_column=Column(width=9)),
            _Rate(table_column=Column(width=8, justify="right")),
            _Time(table_column=Column(width=11)),
            console=console,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> Bars:
        self._progress.start()
        self._row("starting")
        listen(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        unlisten(self)
        self._hide("starting")
        self._progress.stop()

    def units_expected(self, stage: Stage, units: int) -> None:
        with self._lock:
            self._seen[stage] += 1
            self._units[stage] += units
            self._estimate(stage)

    def units_done(self, stage: Stage, units: int) -> None:
        with self._lock:
            self._progress.advance(self._row(stage), units)

    def shard_done(self, stage: Stage, ref: PartRef, seconds: float) -> None:
        if ref.reused and stage in STAGES[:-1]:  # It had nothing to draw, and is not waited for.
            with self._lock:
                self._found[stage] += 1
                if self._seen[stage]:
                    self._estimate(stage)

    def store_begun(self, name: str) -> None:
        with self._lock:
            self._row(name)

    def store_done(self, name: str, seconds: float) -> None:
        with self._lock:
            self._progress.update(self._row(name), total=1, completed=1)

    def _estimate(self, stage: Stage) -> None:
        seen = self._seen[stage]
        shards = max(self._shards - self._found[stage], seen)
        total = round(self._units[stage] * shards / seen)
        self._progress.update(self._row(stage), total=total, estimated=shards > seen)

    def _row(self, name: str) -> TaskID:
        if name not in self._rows:
            self._hide("starting")
            unit = _UNITS.get(name, "texts") if name in STAGES else ""
            self._rows[name] = self._progress.add_task(name, total=None, unit=unit, estimated=False)
        return self._rows[name]

    def _hide(self, name: str) -> None:
        if name in self._rows:
            self._progress.update(self._rows[name], visible=False)
