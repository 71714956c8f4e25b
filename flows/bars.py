"""Progress bars of a run: one line per stage, with rate and time left, on a terminal only."""

from __future__ import annotations

from collections import Counter
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from schemas.snapshot import STAGES, PartRef, Stage
from tasks.progress import listen, unlisten

_UNITS = {"load": "documents", "chunk": "documents", "contextualize": "documents"}


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f}/s" if task.speed else "", style="dim")


class Bars:
    """A progress listener that draws. The total of a stage grows until all its shards have begun; meanwhile the
    shards to come are taken to be as large as those seen."""

    def __init__(self, console: Console, shards: int) -> None:
        self._shards = shards
        self._seen: Counter[Stage] = Counter()
        self._units: Counter[Stage] = Counter()
        self._rows: dict[Stage, TaskID] = {}
        self._progress = Progress(
            SpinnerColumn(finished_text="[green]✓"),
            TextColumn("{task.description:<14}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[unit]}", style="dim"),
            _Rate(),
            TimeRemainingColumn(compact=True),
            console=console,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> Bars:
        self._progress.start()
        for stage in STAGES[:-1]:
            unit = _UNITS.get(stage, "texts")
            self._rows[stage] = self._progress.add_task(stage, total=None, unit=unit, visible=False)
        listen(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        unlisten(self)
        self._progress.stop()

    def units_expected(self, stage: Stage, units: int) -> None:
        self._seen[stage] += 1
        self._units[stage] += units
        total = self._units[stage] * max(self._shards, self._seen[stage]) / self._seen[stage]
        self._progress.update(self._rows[stage], total=int(total), visible=True)

    def units_done(self, stage: Stage, units: int) -> None:
        self._progress.advance(self._rows[stage], units)

    def shard_done(self, stage: Stage, ref: PartRef, seconds: float) -> None:
        if stage in self._rows and ref.reused:
            self._shards_found(stage)

    def _shards_found(self, stage: Stage) -> None:
        # A shard whose part was there already has nothing to draw; it is not waited for either.
        if self._seen[stage]:
            total = self._units[stage] * max(self._shards - 1, self._seen[stage]) / self._seen[stage]
            self._progress.update(self._rows[stage], total=int(total))

    def store_done(self, name: str, seconds: float) -> None:
        self._progress.console.print(f"[green]✓[/] {name:<14} [dim]{seconds:.1f} s")
