"""What the history of a collection looks like on a terminal, at 80 columns too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from query.layout import hanging, printable
from schemas.snapshot import SHORT, Flip

if TYPE_CHECKING:  # A rollback shall not wait for what a comparison imports.
    from tasks.publish.diff import SnapshotDiff
    from tasks.publish.history import SnapshotEntry
    from tasks.publish.sweep import SweepReport

MOST_DOCUMENTS = 40
MOST_FLIPS = 3

_SWEPT = (
    ("snapshots", "snapshots"),
    ("rows", "rows of dropped snapshots"),
    ("orphans", "rows of runs that never published"),
    ("collections", "Milvus collections"),
    ("folders", "catalogs, BM25 indexes and passages"),
    ("parts", "parts"),
    ("records", "records"),
    ("temporary", "interrupted writes"),
)
_MARKS = {"added": "+", "changed": "~", "renamed": ">", "redone": "=", "removed": "-"}


def show_snapshots(console: Console, collection: str, entries: Sequence[SnapshotEntry], flip: Flip | None) -> None:
    """Show a line per snapshot, and the hold if there is one."""
    if not entries:
        console.print(f"Collection [bold]{collection}[/] has no snapshot yet: glossator index FOLDER")
        return
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for heading in ("snapshot", "created (UTC)", "flips"):
        table.add_column(heading, no_wrap=True)
    for heading in ("documents", "chunks"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    for entry in entries:
        table.add_row(
            Text(entry.name[:SHORT], style="bold" if entry.current else ""),
            f"{entry.created:%Y-%m-%d %H:%M}",
            _flips(entry.flips),
            f"{entry.documents:,}",
            f"{entry.chunks:,}",
            _state(entry),
        )
    console.print(table)
    if flip is not None and flip.hold:
        since = f"since {flip.created:%Y-%m-%d %H:%M} UTC by {flip.author}: {flip.reason} -> glossator resume"
        hanging(console, since, 2, Text("Publishing is held", style="yellow"))


def _flips(numbers: Sequence[int]) -> str:
    shown = " ".join(f"#{number}" for number in numbers[-MOST_FLIPS:])
    return f"… {shown}" if len(numbers) > MOST_FLIPS else shown or "-"


def _state(entry: SnapshotEntry) -> Text:
    words = Text()
    if entry.current:
        words.append("current ", style="green")
    if entry.pinned:
        words.append(f"pinned: {entry.pinned.reason}" if entry.pinned.reason else "pinned", style="cyan")
    elif not entry.current:
        words.append("kept" if entry.retained else "dropped", style="dim")
    return words


def show_diff(console: Console, diff: SnapshotDiff) -> None:
    """Show counts, then a line per document."""
    console.print(f"[bold]{diff.before[:SHORT]}[/] → [bold]{diff.after[:SHORT]}[/]")
    words = ", ".join(f"{count:,} {name}" for name, count in diff.counts.items() if count)
    console.print(f"  documents: {words or 'none'}")
    console.print(f"  chunks: {diff.chunks_added:,} added, {diff.chunks_removed:,} removed")
    order = sorted(diff.documents, key=lambda document: list(_MARKS).index(document.change))
    for document in order[:MOST_DOCUMENTS]:
        was = f" (was {document.was})" if document.was else ""
        name = printable(f"{document.source}/{document.uri}{was}")
        line = Text(f"  {_MARKS[document.change]} {document.change:<8} {name}")
        line.append(f"  +{document.chunks_added} -{document.chunks_removed}", style="dim")
        console.print(line, soft_wrap=True)
    if len(order) > MOST_DOCUMENTS:
        console.print(f"  … and {len(order) - MOST_DOCUMENTS:,} more: glossator diff --json")


def show_rollback(console: Console, before: Flip | None, flip: Flip) -> None:
    """Show where the pointer went, and what holds from now on."""
    come_from = f" from {before.snapshot[:SHORT]}" if before else ""
    console.print(f"[green]Rolled back[/]{come_from} to [bold]{flip.snapshot[:SHORT]}[/] (flip {flip.number})")
    console.print("  Publishing is held until: glossator resume")


def show_resume(console: Console, flip: Flip) -> None:
    """Show that the hold is over."""
    console.print(f"[green]Resumed[/] from [bold]{flip.snapshot[:SHORT]}[/] (flip {flip.number})")
    console.print("  The next run publishes what the sources hold then.")


def _too_young() -> str:
    from tasks.publish.sweep import SweepPolicy

    policy = SweepPolicy()
    minutes, days = policy.grace.seconds // 60, policy.parts.days
    return (
        f"all there is belongs to a kept snapshot, or is too young. A dropped snapshot goes {minutes} minutes after "
        f"the flip that dropped it; passages that none needs go {policy.passages.days * 24} hours after their last "
        f"use, other parts {days} days after it."
    )


def show_sweep(console: Console, report: SweepReport) -> None:
    """Show what went, or would go."""
    verb = "Would delete" if report.dry_run else "Deleted"
    lines = [(getattr(report, name), what) for name, what in _SWEPT if getattr(report, name).count]
    if not lines:
        hanging(console, _too_young(), 2, "Nothing to delete:")
    else:
        console.print(f"[green]{verb}[/] {report.bytes / 1e6:,.1f} MB")
        for tally, what in lines:
            size = f" ({tally.bytes / 1e6:,.1f} MB)" if tally.bytes else ""
            console.print(f"  {tally.count:>7,} {what}{size}")
    if report.hints.count:
        files = "1 file was" if report.hints.count == 1 else f"{report.hints.count:,} files were"
        again = "would be read again" if report.dry_run else "will be read again by the next index"
        console.print(f"  {files} read last more than 7 days ago, and {again}")
    for name in report.unreadable:
        console.print(
            f"[yellow]The files of dropped snapshot {name[:SHORT]} were damaged[/]: its rows count as orphans"
        )
    if not report.finished:
        console.print("[yellow]Not finished[/]: somebody else began to publish; the next sweep goes on")
