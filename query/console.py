"""What answers look like on a terminal, at 80 columns too."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from query.extractive import Citation, ExtractiveAnswer
from query.golden import Evaluation
from query.retriever import Hit, SearchResult
from query.snapshot_reader import Passage

SNIPPET = 240


def place(passage: Passage) -> str:
    """Return where a passage stands: URI, page and heading path."""
    pages = ""
    if passage.page_from is not None:
        same = passage.page_from == passage.page_to
        pages = f", page {passage.page_from}" if same else f", pages {passage.page_from}-{passage.page_to}"
    return _place(passage.document.uri, pages, passage.breadcrumb)


def _place(uri: str, pages: str, breadcrumb: tuple[str, ...]) -> str:
    path = " › ".join(breadcrumb)
    return f"{uri}{pages}{f' · {path}' if path else ''}"


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


def show_answer(console: Console, answer: ExtractiveAnswer, notes: tuple[str, ...]) -> None:
    """Show quotes, then where each stands."""
    for quote in answer.quotes:
        text = Text(" ".join(quote.text.split()))
        text.append(f" [{quote.citation.number}]", style="bold cyan")
        console.print(Padding(text, (0, 0, 1, 2)))
    for quote in answer.quotes:
        console.print(_citation(quote.citation))
    if answer.note:
        console.print(Text(answer.note, style="yellow"))
    show_notes(console, notes)


def _citation(citation: Citation) -> Text:
    pages = f", page {citation.page}" if citation.page is not None else ""
    line = Text(f"[{citation.number}] ", style="bold cyan")
    line.append(_place(citation.uri, pages, citation.breadcrumb))
    line.append(f"  {citation.chunk_id[:12]} text[{citation.start}:{citation.end}]", style="dim")
    return line


def show_scores(console: Console, evaluation: Evaluation) -> None:
    """Show recall per mode, and which questions were missed."""
    table = Table("mode", f"recall@{evaluation.k}", "found", "missed", box=None, padding=(0, 2))
    for score in evaluation.scores:
        missed = ", ".join(score.missed) or "-"
        table.add_row(score.mode, f"{score.recall:.3f}", str(len(score.found)), missed)
    console.print(table)
    for name, ids in (("quote not in its document", evaluation.unlocated), ("document gone", evaluation.expired)):
        if ids:
            console.print(f"[yellow]{name}:[/] {', '.join(ids)}")
