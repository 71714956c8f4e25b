"""What answers look like on a terminal, at 80 columns too."""

from __future__ import annotations

import re

from rich.console import Console
from rich.text import Text

from query.extractive import Citation, ExtractiveAnswer
from query.golden import Evaluation
from query.layout import counted, hanging
from query.retriever import Hit, SearchResult
from query.snapshot_reader import Passage

SNIPPET = 240
NEAREST = 3
_LONGEST_WORD = 24  # Chinese has no spaces: cut anywhere.
_HEADINGS = re.compile(r"\A(?:[ \t]*#{1,6}[ \t].*\n+)+")
ID = 12
"""Characters of a chunk's id that are shown; ``show`` takes the beginning of one."""


def place(passage: Passage) -> str:
    """Return where a passage stands: source and URI, page and heading path."""
    pages = ""
    if passage.page_from is not None:
        same = passage.page_from == passage.page_to
        pages = f", page {passage.page_from}" if same else f", pages {passage.page_from}-{passage.page_to}"
    return _place(passage.document.source, passage.document.uri, pages, passage.breadcrumb)


def _place(source: str, uri: str, pages: str, breadcrumb: tuple[str, ...]) -> str:
    path = " › ".join(breadcrumb)
    return f"{source}/{uri}{pages}{f' · {path}' if path else ''}"


def show_hits(console: Console, result: SearchResult) -> None:
    """Show what a search found."""
    if not result.hits:
        console.print("Nothing found.")
    for hit in result.hits:
        heading = Text(place(hit.passage), style="bold cyan")
        hanging(console, heading, 4, Text(f"{hit.rank:>2}. ", style="bold"))
        hanging(console, snippet(hit.passage.text), 4)
        hanging(console, Text(f"{_span(hit.passage)}  {_sides(hit)}", style="dim"), 4)
        console.print()
    show_notes(console, result.notes)


def _sides(hit: Hit) -> str:
    dense = f"dense {hit.dense.rank}" if hit.dense else "dense -"
    bm25 = f"BM25 {hit.bm25.rank}" if hit.bm25 else "BM25 -"
    return f"score {hit.score:.3f} ({dense}, {bm25})"


def _span(of: Passage | Citation) -> str:
    return f"{of.chunk_id[:ID]} text[{of.start}:{of.end}]"


def snippet(text: str) -> str:
    """Return the beginning of a passage in one line, without the headings that its place names already."""
    line = " ".join(_HEADINGS.sub("", text).split()) or " ".join(text.split())
    if len(line) <= SNIPPET:
        return line
    cut = line[: SNIPPET + 1]
    words = cut.rpartition(" ")[0]
    return f"{words if len(words) > SNIPPET - _LONGEST_WORD else cut[:SNIPPET]} …"


def show_notes(console: Console, notes: tuple[str, ...]) -> None:
    """Show what a reader should know about how a result came about."""
    for note in notes:
        hanging(console, note, 6, Text("note:", style="yellow"))


def show_passage(console: Console, passage: Passage) -> None:
    """Show one chunk in its document."""
    for name, value in (
        ("chunk", f"{passage.chunk_id} ({passage.index + 1} of {passage.total}, {passage.kind})"),
        ("document", f"{passage.document.uri} (source {passage.document.source}, id {passage.document.doc_id})"),
        ("title", passage.document.title or "-"),
        ("place", place(passage)),
        ("span", f"text[{passage.start}:{passage.end}]"),
        ("context", passage.context or "-"),
    ):
        hanging(console, value, 10, Text(name, style="dim"))
    console.print()
    for line in passage.text.split("\n"):
        hanging(console, line, 0)


def show_answer(console: Console, answer: ExtractiveAnswer, result: SearchResult) -> None:
    """Show quotes, then where each stands; where nothing answers, say so, and which passages are nearest."""
    for quote in answer.quotes:
        text = Text(" ".join(quote.text.split()))
        text.append(f" [{quote.citation.number}]", style="bold cyan")
        hanging(console, text, 2)
        console.print()
    for quote in answer.quotes:
        _show_citation(console, quote.citation)
    if answer.note:
        hanging(console, Text(answer.note, style="yellow"), 0)
    if not answer.found and result.hits:
        console.print("The nearest passages:")
        for hit in result.hits[:NEAREST]:
            hanging(console, place(hit.passage), 4, "  -")
    show_notes(console, result.notes)


def _show_citation(console: Console, citation: Citation) -> None:
    pages = f", page {citation.page}" if citation.page is not None else ""
    where = _place(citation.source, citation.uri, pages, citation.breadcrumb)
    hanging(console, where, 4, Text(f"[{citation.number}]", style="bold cyan"))
    hanging(console, Text(_span(citation), style="dim"), 4)


def show_scores(console: Console, evaluation: Evaluation) -> None:
    """Show recall per mode, and which questions were missed."""
    recall = f"recall@{evaluation.k}"
    console.print(Text(f"mode    {recall:>9}  found  missed", style="bold"))
    for score in evaluation.scores:
        head = f"{score.mode:<8}{score.recall:>9.3f}{len(score.found):>7}  "
        hanging(console, ", ".join(score.missed) or "-", len(head), head)
    if evaluation.unlocated:
        hanging(console, f"quote not in its document: {', '.join(evaluation.unlocated)}", 2)
    if evaluation.expired:
        hanging(console, f"not judged: {', '.join(evaluation.expired)}", 2)
        show_notes(console, (describe_absent(evaluation),))


def describe_absent(evaluation: Evaluation) -> str:
    """Return how many questions could not be judged, and why."""
    gone, asked = len(evaluation.expired), len(evaluation.expired) + evaluation.judged
    are = "refers to a document that is" if gone == 1 else "refer to documents that are"
    first = f"{evaluation.absent[0]} (question {evaluation.expired[0]})"
    return f"{gone:,} of {counted(asked, 'golden question')} {are} not in the index, the first is {first}"
