"""Contexts, judged by hand."""

from __future__ import annotations

import pytest

from schemas.config import ChunkConfig
from schemas.documents import Span
from tasks.chunk.chunker import chunk_document
from tasks.contextualize.structural import structural_context, table_header, table_headers
from tasks.embed.model import locate_model
from tasks.embed.tokenizer import HashTokenizer, open_tokenizer

MINILM = open_tokenizer(locate_model("all-MiniLM-L6-v2"))
WORDS = open_tokenizer(locate_model("hash:384"))


def context(
    chunk: str = "body",
    *,
    title: str | None = None,
    breadcrumb: tuple[str, ...] = (),
    kind: str = "prose",
    definitions: tuple[str, ...] = (),
    limit: int = 64,
    columns: str | None = None,
) -> str:
    span = Span(0, len(chunk), breadcrumb, len(breadcrumb), kind)  # type: ignore[arg-type]
    return structural_context(title, span, chunk, definitions, WORDS, limit, columns=columns)


def test_title_and_headings_stand_on_one_line() -> None:
    assert context(title="Manual", breadcrumb=("Setup", "Linux")) == "Manual > Setup > Linux"


def test_nothing_to_say_is_nothing() -> None:
    assert context() == ""


@pytest.mark.parametrize(
    ("chunk", "expected"),
    [
        ("## Linux\n\nbody", "Manual > Setup"),
        ("## **Linux** {#linux} ##\n\nbody", "Manual > Setup"),
        ("Linux\n-----\n\nbody", "Manual > Setup"),
        ("# Setup\n\n## Linux\n\nbody", "Manual"),
        ("## Elsewhere\n\n## Linux\n\nbody", "Manual > Setup"),
        ("Linux is mentioned, not a heading.", "Manual > Setup > Linux"),
        ("body\n\n## Linux", "Manual > Setup > Linux"),
    ],
)
def test_headings_that_the_chunk_begins_with_are_not_repeated(chunk: str, expected: str) -> None:
    assert context(chunk, title="Manual", breadcrumb=("Setup", "Linux")) == expected


def test_a_title_equal_to_the_first_heading_is_not_repeated() -> None:
    assert context(title="The  manual", breadcrumb=("The Manual", "Setup")) == "The Manual > Setup"
    assert context("# The Manual\n\nbody", title="The manual", breadcrumb=("The Manual",)) == ""


def test_a_definition_that_the_chunk_names_is_not_repeated() -> None:
    code = "def connect(self):\n    pass"
    assert context(code, breadcrumb=("Client", "connect"), kind="code") == "Client"
    assert context("    pass", breadcrumb=("Client", "connect"), kind="code") == "Client > connect"


def test_as_many_definitions_as_fit_in_their_order() -> None:
    names = ("Client", "connect", "close", "helper")
    assert context(title="T", definitions=names) == "T\nDefines: Client, connect, close, helper"
    # T, Defines, the colon, two names and a comma are six tokens; a third name needs two more.
    assert context(title="T", definitions=names, limit=7) == "T\nDefines: Client, connect"
    assert context(title="T", definitions=names, limit=3) == "T"


def test_the_middle_of_a_long_path_is_dropped_first() -> None:
    headings = tuple(f"level{i} a b c" for i in range(6))
    assert context(title="Title", breadcrumb=headings, limit=11) == "Title > level4 a b c > level5 a b c"
    assert context(title="Title", breadcrumb=headings, limit=7) == "Title > level5 a b c"


def test_an_overlong_heading_is_cut_at_a_word_with_an_ellipsis() -> None:
    """docling-core#327: headings that exceed the budget. Neither an error nor a lost chunk."""
    assert context(breadcrumb=(" ".join(["word"] * 50),), limit=6) == "word word word word word…"
    chinese = context(breadcrumb=("标题" * 50,), limit=7)
    assert chinese == "标题标题标题…"


def test_an_overlong_title_leaves_room_for_the_heading() -> None:
    found = context(title=" ".join(["word"] * 50), breadcrumb=("Setup",), limit=9)
    assert found.startswith("word ") and found.endswith("… > Setup")


@pytest.mark.parametrize("limit", [0, 1])
def test_where_nothing_fits_the_context_is_empty(limit: int) -> None:
    assert context(title="several words here", breadcrumb=("and a heading",), definitions=("x",), limit=limit) == ""


def test_columns_stand_after_the_path() -> None:
    assert context(title="T", columns="a | b", kind="table") == "T\nColumns: a | b"


def test_wide_columns_leave_room_for_the_path() -> None:
    found = context(title="T", columns=" | ".join(f"c{i}" for i in range(90)), kind="table", limit=20)
    assert found.startswith("T\nColumns: c0 | c1 |")
    assert WORDS.count(found) <= 20


def test_a_context_does_not_depend_on_bodies_elsewhere() -> None:
    text = "# A\n\n{}\n\n## B\n\nThe same body.\n"
    contexts = set()
    for body in ("short", "quite another text " * 30):
        document = text.format(body)
        chunked = chunk_document(document, "markdown", None, MINILM, ChunkConfig())
        last = chunked.children[-1]
        contexts.add(structural_context("T", last, document[last.start : last.end], (), MINILM, 64))
    assert contexts == {"T > A"}


@pytest.mark.parametrize(
    ("table", "header"),
    [
        ("| a | b |\n|---|---|\n| 1 | 2 |", "a | b"),
        ("a | b\n:-: | -\n1 | 2", "a | b"),
        ("| **Name** | `x\\|y` | [L](u) |\n|---|---|---|\n", "Name | x\\|y | L"),
        ("| a | b |\n| 1 | 2 |\n", None),
        ("text\n---\n", None),
        ("| a | b |", None),
    ],
)
def test_a_header_is_the_row_above_the_delimiters(table: str, header: str | None) -> None:
    assert table_header(f"before\n\n{table}", len("before\n\n")) == header


def test_a_header_is_told_to_all_later_parts_of_its_own_table_only() -> None:
    rows = "".join(f"| name {i} | {i} |\n" for i in range(30))
    text = f"# A\n\n| N | V |\n|---|---|\n{rows}\n# B\n\n| 1 | 2 |\n| 3 | 4 |\n\n| X | Y |\n|---|---|\n{rows}"
    chunked = chunk_document(text, "markdown", None, WORDS, ChunkConfig(child_tokens=40))
    headers = table_headers(text, chunked.children)
    for child, header in zip(chunked.children, headers, strict=True):
        body = text[child.start : child.end]
        own = "N | V" if child.breadcrumb == ("A",) else "X | Y"
        assert header == (None if body.startswith("#") or "|---" in body else own)
    assert len(headers) > 8


class Counting(HashTokenizer):
    """Counts the characters that it is given."""

    characters = 0

    def count(self, text: str) -> int:
        self.characters += len(text)
        return super().count(text)


def test_a_header_of_thousands_of_columns_costs_no_more_than_what_is_told_of_it() -> None:
    tokenizer = Counting()
    columns = " | ".join(f"c{number}" for number in range(20_000))
    told = structural_context("Sheet", Span(0, 4), "body", columns.split(" | "), tokenizer, 20, columns=columns)
    assert told == "Sheet\nColumns: c0 | c1 | c2 | c3\nDefines: c0, c1, c2, c3"
    assert tokenizer.characters < 2_000
