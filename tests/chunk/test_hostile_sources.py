"""Markdown and Python that nobody writes cost themselves alone, at loading and at chunking, and say why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.config import LoadConfig
from schemas.documents import DocumentType
from schemas.errors import PermanentError
from tasks.chunk.structure import read_structure, read_structure_within
from tasks.isolation import HARMLESS, end_workers
from tasks.load.isolation import load
from tasks.load.loader import load_document
from tests.fixtures import contents, lake_beside, make_corpus, run

LIMITS = LoadConfig(max_seconds=1, max_memory_mb=256)
LITERAL = "x = [" + "1, " * 1_000_000 + "]\n"
STRINGS = "f'" + "{a}" * 300_000 + "'\n"
MINUSES = "-" * 200_000 + "1\n"
BRACKETS = "[" * 1_000_000 + "\n"
QUOTES = "# Notes\n\n" + ">" * 100 + "a\n" * 100_000
CLASSES = "".join(" " * depth + f"class C{depth}:\n" for depth in range(90)) + " " * 90 + "a = 1\n"
TIME = "the parser took longer than load.max_seconds = 1"
MEMORY = "the parser needed more memory than load.max_memory_mb = 256"


@pytest.fixture(autouse=True, scope="module")
def ended() -> Iterator[None]:
    yield
    end_workers()


@pytest.mark.parametrize(
    ("uri", "text", "what"),
    [("literal.py", LITERAL, MEMORY), ("brackets.md", BRACKETS, TIME)],
    ids=["literal", "brackets"],
)
def test_what_eats_time_or_memory_is_refused_at_loading(uri: str, text: str, what: str) -> None:
    with pytest.raises(PermanentError) as caught:
        load(text.encode(), uri, LIMITS)
    assert (caught.value.what, caught.value.document) == (what, uri)
    assert "glossator quarantine retry" in str(caught.value.hint)


@pytest.mark.parametrize(("text", "what"), [(LITERAL, MEMORY), (STRINGS, TIME)], ids=["literal", "strings"])
def test_what_eats_time_or_memory_is_refused_at_chunking(text: str, what: str) -> None:
    with pytest.raises(PermanentError) as caught:
        read_structure_within(LIMITS, text, "code", "python", "large.py")
    assert (caught.value.what, caught.value.document) == (what, "large.py")


def test_nesting_beyond_the_parser_is_no_want_of_memory() -> None:
    """Python's parser throws MemoryError for both; such a file is indexed by lines, without a title."""
    assert load(MINUSES.encode(), "minuses.py", LIMITS).metadata.title is None
    structure = read_structure_within(LIMITS, MINUSES, "code", "python", "minuses.py")
    assert [(unit.start, unit.end) for unit in structure.units] == [(0, len(MINUSES))]


@pytest.mark.parametrize(
    ("type_", "syntax", "text"),
    [
        ("code", "python", CLASSES + "\n" * HARMLESS + "def last(): pass\n"),
        ("code", "go", "func First() {}\n\n" * 5_000),
        ("markdown", None, "# Ä\n\n- one\n- two\n\n```\ncode\n```\n\n|a|\n|-|\n|b|\n\n" * 2_000),
    ],
)
def test_a_worker_reads_the_structure_that_this_process_would(
    type_: DocumentType, syntax: str | None, text: str
) -> None:
    assert len(text) > HARMLESS
    there = read_structure_within(LoadConfig(), text, type_, syntax, "a")
    assert there == read_structure(text, type_, syntax)
    assert len(there.blocks or there.units) > 1


@pytest.mark.parametrize("uri", ["large.py", "large.md"])
def test_a_worker_loads_the_text_that_this_process_would(uri: str) -> None:
    data = b'"""# Tide tables."""\n\n' + b"high = 1  # and low\n" * 5_000
    assert len(data) > HARMLESS
    assert load(data, uri, LoadConfig()) == load_document(data, uri, LoadConfig())


def test_a_run_quarantines_them_and_indexes_the_rest(tmp_path: Path) -> None:
    docs = make_corpus(tmp_path / "docs", {"good.md": "# Good\n\nRead.\n", "quotes.md": QUOTES, "literal.py": LITERAL})
    report = run(docs, "load.max_seconds=1", "load.max_memory_mb=256")
    assert contents(lake_beside(docs)).uris == {"good.md"}
    failed = {failure.uri: (failure.stage, failure.kind, failure.message) for failure in report.failed}
    hint = " -> repair or divide the file; or raise load.{} and run `glossator quarantine retry`"
    assert failed == {
        "literal.py": ("load", "PermanentError", MEMORY + hint.format("max_memory_mb")),
        "quotes.md": ("chunk", "PermanentError", "cannot be divided into chunks: " + TIME + hint.format("max_seconds")),
    }
    assert not any(failure.transient for failure in report.failed)
