"""What chunking promises for every text, every type and every size."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.config import ChunkConfig
from schemas.documents import ChunkedDocument, DocumentType
from tasks.chunk.chunker import chunk_document
from tasks.chunk.token_index import CHARACTERS_PER_TOKEN
from tasks.contextualize.structural import structural_context, table_headers
from tasks.embed.model import locate_model
from tasks.embed.tokenizer import Tokenizer, open_tokenizer

MINILM = open_tokenizer(locate_model("all-MiniLM-L6-v2"))
WORDS = open_tokenizer(locate_model("hash:384"))
TYPES: list[DocumentType] = ["markdown", "html", "pdf", "text", "code"]

# Fragments that mean something to one of the readers, and whatever else there is. Loaders let no surrogate through.
FRAGMENTS = st.sampled_from(
    [
        "# One", "## Two\n", "Title\n=====", "Sub\n---", "```py\n", "```\n", "~~~~\n", "| a | b |\n|---|---|\n",
        "| 1 | 2 |\n", "- item\n", "1. item\n", "   more\n", "> quote\n", "---\n", "a: b\n", "\n\n", "\n", " ", "\t",
        "    code\n", "<div>\n", "</div>\n", "::: tip\n", ":::\n", "/// note\n", "///\n", "{{#include x.rs}}\n",
        "[x]: http://y\n", "word ", "A sentence. ", "中文句子。", "词" * 40, "x" * 300, "!" * 50, "é\u0301\u0302",
        "👩‍👩‍👧", "\u3000", "\x0c", "\x1c", "\u2028", "\r", "\x00", "\ufeff", "def f():\n    return 1\n\n",
        "class A:\n    def g(self):\n        pass\n", "fn main() {\n}\n", "@d\n", "# c\n", "if x: y\n",
        "a = 1; b = 2\n",
    ]
)  # fmt: skip
CHARACTERS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
PIECES = st.builds(lambda piece, times: piece * times, FRAGMENTS | CHARACTERS, st.sampled_from([1, 1, 1, 2, 9, 40]))
TEXTS = (st.lists(PIECES, max_size=5) | st.lists(PIECES, min_size=15, max_size=50)).map("".join)
CONFIGS = st.builds(
    ChunkConfig,
    child_tokens=st.integers(16, 64) | st.just(180),
    parent_tokens=st.integers(64, 200) | st.just(1_500),
)


def check(text: str, chunked: ChunkedDocument, tokenizer: Tokenizer, config: ChunkConfig) -> None:
    """Assert all that holds for any result."""
    position = 0
    for child in chunked.children:
        body = text[child.start : child.end]
        assert child.start < child.end
        assert not text[position : child.start].strip(), "characters between two children are lost"
        assert child.start >= position, "children overlap"
        assert body == body.strip() != ""
        assert tokenizer.count(body) <= config.child_tokens
        assert len(body) <= CHARACTERS_PER_TOKEN * config.child_tokens
        position = child.end
    assert not text[position:].strip()

    assert len(chunked.parent_of) == len(chunked.children)
    assert list(chunked.parent_of) == sorted(chunked.parent_of)
    assert set(chunked.parent_of) == set(range(len(chunked.parents)))
    position = 0
    for i, parent in enumerate(chunked.parents):
        members = [c for c, p in zip(chunked.children, chunked.parent_of, strict=True) if p == i]
        assert position <= parent.start == members[0].start
        assert parent.end == members[-1].end
        assert len(members) == 1 or tokenizer.count(text[parent.start : parent.end]) <= config.parent_tokens
        position = parent.end


@pytest.mark.parametrize("tokenizer", [MINILM, WORDS], ids=["minilm", "words"])
@given(text=TEXTS, type_=st.sampled_from(TYPES), syntax=st.sampled_from([None, "python", "rust"]), config=CONFIGS)
@settings(max_examples=250, deadline=None)
def test_every_character_lies_in_one_child_that_fits(
    tokenizer: Tokenizer, text: str, type_: DocumentType, syntax: str | None, config: ChunkConfig
) -> None:
    check(text, chunk_document(text, type_, syntax, tokenizer, config), tokenizer, config)


PARAGRAPH = st.text(st.sampled_from("abcde fgh ij,."), min_size=1, max_size=400).map(lambda s: "w" + s)
SECTIONS = st.lists(
    st.tuples(st.integers(1, 4), st.lists(PARAGRAPH, min_size=1, max_size=6)), min_size=2, max_size=8
)  # fmt: skip


@given(sections=SECTIONS, data=st.data())
@settings(max_examples=150, deadline=None)
def test_an_edited_paragraph_changes_no_child_of_another_section(
    sections: list[tuple[int, list[str]]], data: st.DataObject
) -> None:
    def chunks(sections: list[tuple[int, list[str]]]) -> dict[str, list[tuple[tuple[str, ...], str]]]:
        text = "".join(
            f"{'#' * level} Section {i}\n\n" + "\n\n".join(paragraphs) + "\n\n"
            for i, (level, paragraphs) in enumerate(sections)
        )
        found: dict[str, list[tuple[tuple[str, ...], str]]] = {}
        for child in chunk_document(text, "markdown", None, MINILM, ChunkConfig(child_tokens=32)).children:
            found.setdefault(child.breadcrumb[-1], []).append((child.breadcrumb, text[child.start : child.end]))
        return found

    before = chunks(sections)
    edited = data.draw(st.integers(0, len(sections) - 1))
    level, paragraphs = sections[edited]
    at = data.draw(st.integers(0, len(paragraphs) - 1))
    changed = [*paragraphs[:at], data.draw(PARAGRAPH), *paragraphs[at + 1 :]]
    after = chunks([*sections[:edited], (level, changed), *sections[edited + 1 :]])
    own = f"Section {edited}"
    assert before.pop(own) and after.pop(own)
    assert before == after


TITLES = st.text(max_size=80) | st.just("A very long heading " * 30) | st.just("标题" * 100)


@given(
    title=st.none() | TITLES,
    text=TEXTS,
    heading=TITLES.map(lambda t: " ".join(t.split())),
    definitions=st.lists(st.from_regex(r"[A-Za-z_]\w{0,20}", fullmatch=True), max_size=60),
    limit=st.integers(0, 80),
    tokenizer=st.sampled_from([MINILM, WORDS]),
)
@settings(max_examples=250, deadline=None)
def test_a_context_never_exceeds_its_limit(
    title: str | None, text: str, heading: str, definitions: list[str], limit: int, tokenizer: Tokenizer
) -> None:
    text = f"# {heading}\n\n{text}"
    chunked = chunk_document(text, "markdown", None, tokenizer, ChunkConfig(child_tokens=24))
    headers = table_headers(text, chunked.children)
    for child, columns in zip(chunked.children, headers, strict=True):
        body = text[child.start : child.end]
        context = structural_context(title, child, body, definitions, tokenizer, limit, columns=columns)
        assert tokenizer.count(context) <= limit
        assert context == context.strip()
