"""What sources look like on a terminal, at 80 columns too."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from flows.source_list import SourceState
from query.layout import counted, hanging, literal
from schemas.report import IndexReport


def show_sources(console: Console, collection: str, states: Sequence[SourceState]) -> None:
    """Show two lines per source: what is published, and where it comes from."""
    if not states:
        console.print(f"Collection [bold]{collection}[/] has no source yet: glossator source add FOLDER")
        return
    width = max(len(state.name) for state in states)
    for state in states:
        failing = f", [red]{state.failing:,} failing[/]" if state.failing else ""
        documents = counted(state.documents, "document") if state.documents else "nothing published"
        console.print(f"[bold]{state.name:<{width}}[/]  {documents}{failing}", soft_wrap=True)
        if state.root is None:
            hanging(console, f"removed, and published again: glossator source remove {state.name}", width + 2)
            continue
        gone = "" if state.there else "  [yellow](not there now)[/]"
        console.print(f"{' ' * width}  {literal(state.root)}{gone}", soft_wrap=True)


def show_removal(console: Console, name: str, root: str | None, documents: int, report: IndexReport | None) -> None:
    """Show what a removal did, and what it left alone."""
    what = f"and its {counted(documents, 'document')} from the index" if documents else "of which nothing was published"
    console.print(f"[green]Removed[/] source [bold]{name}[/] {what}")
    if report is not None:
        left = f"{counted(report.documents.unchanged, 'document')}, {counted(report.chunks, 'chunk')}"
        hanging(console, f"published snapshot {report.snapshot[:12]} (flip {report.flip}) with {left} left", 2)
        hanging(console, "Earlier snapshots still have them while they are kept: glossator rollback", 2, "  ")
    if root is not None:
        console.print(f"  Not touched: {literal(root)}", soft_wrap=True)
