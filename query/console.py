"""What answers look like on a terminal, at 80 columns too."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from query.retriever import Hit, SearchResult
from query.snapshot_reader import Passage

SNIPPET = 240


def place(passage: Passage) -> str:
    """Return where a passage stands: URI, page and heading path."""
    pages = ""
    if passage.page_from is not None:
        same = passage.page_from == passage.page_to
        pages = f", page {passage.page_from}" if same else f", pages {passage.page_from}-{passage.page_to}"
    path = " › ".join(passage.breadcrumb)
    return f"{passage.document.uri}{pages}{f' · {path}' if path else ''}"


def show_hits(console: Console, result: SearchResult) -> None:
    """Show what a search found."""
    if not result.hits:
        console.print("Nothing found.")
    for hit in result.hits:
        heading = Text(f"{hit.rank:>2}. ", style="bold")
        heading.append(place(hit.passage), style="bold cyan")
        console.print(heading)
        console.print(Padding(Text(_snippet(hit.passage.text)), (0, 0, 0, 4)))
        console.print(Padding(Text(f"{hit.passage.chunk_id}  {_sides(hit)}", style="dim"), (0, 0, 1, 4)))
    show_notes(console, result.notes)


def _sides(hit: Hit) -> str:
    dense = f"dense {hit.dense.rank}" if hit.dense else "dense -"
    bm25 = f"BM25 {hit.bm25.rank}" if hit.bm25 else "BM25 -"
    return f"score {hit.score:.4f} ({dense}, {bm25})"


def _snippet(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SNIPPET else f"{line[:SNIPPET].rstrip()}…"


def show_notes(console: Console, notes: tuple[str, ...]) -> None:
    """Show what a reader should know about how a result came about."""
    for note in notes:
        console.print(f"[yellow]note:[/] {escape(note)}")


def show_passage(console: Console, passage: Passage) -> None:
    """Show one chunk in its document."""
    table = Table.grid(padding=(0, 2))
    for name, value in (
        ("chunk", f"{passage.chunk_id} ({passage.index + 1} of {passage.total}, {passage.kind})"),
        ("document", f"{passage.document.uri} (source {passage.document.source}, id {passage.document.doc_id})"),
        ("title", passage.document.title or "-"),
        ("place", place(passage)),
        ("span", f"text[{passage.start}:{passage.end}]"),
        ("context", passage.context or "-"),
    ):
        table.add_row(Text(name, style="dim"), Text(value))
    console.print(table)
    console.print(Padding(Text(passage.text), (1, 0, 0, 0)))
