"""Blocks and headings, judged by CommonMark's own examples."""

from __future__ import annotations

import re

import pytest
from markdown_it import MarkdownIt

from tasks.chunk.blocks import markdown_blocks, paragraph_blocks
from tasks.chunk.titles import plain_title
from tests.shared import SHARED

SPEC = SHARED / "nasty/md/commonmark_spec.txt"
EXAMPLE = re.compile(r"^`{32} example\n(.*?)^\.\n.*?^`{32}$", re.DOTALL | re.MULTILINE)


def headings(text: str) -> list[tuple[int, str]]:
    return [(block.heading, block.title) for block in markdown_blocks(text) if block.heading]


def reference_headings(text: str) -> list[tuple[int, str]]:
    """What markdown-it-py's complete parser calls a heading outside lists and quotations."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    return [
        (int(token.tag[1]), plain_title(tokens[i + 1].content))
        for i, token in enumerate(tokens)
        if token.type == "heading_open" and token.level == 0
    ]


@pytest.mark.shared
def test_headings_of_all_commonmark_examples_are_those_of_the_full_parser() -> None:
    if not SPEC.is_file():
        pytest.skip(f"the CommonMark specification is not at {SPEC}")
    spec = SPEC.read_text(encoding="utf-8")
    examples = [match[1].replace("→", "\t") for match in EXAMPLE.finditer(spec)]
    assert len(examples) > 600
    different = [e for e in examples if not e.startswith("---\n") and headings(e) != reference_headings(e)]
    assert different == []
    assert ("Precedence" in [title for _, title in headings(spec)]) and "foo" not in [t for _, t in headings(spec)]


@pytest.mark.shared
def test_no_line_of_a_commonmark_example_lies_outside_the_blocks() -> None:
    if not SPEC.is_file():
        pytest.skip(f"the CommonMark specification is not at {SPEC}")
    for match in EXAMPLE.finditer(SPEC.read_text(encoding="utf-8")):
        text, position = match[1], 0
        for block in markdown_blocks(text):
            assert not text[position : block.start].strip(), text
            position = block.end
        assert not text[position:].strip(), text


@pytest.mark.parametrize(
    "fenced",
    [
        "```\n# no\n```",
        "````\n```\n# no\n```\n# no\n`````",
        "   ```sh\n   # no\n   ```",
        "~~~\n# no\n```\n# no\n~~~",
        "```\n# no\n\n# no",
        "- item\n\n  ```\n# outside the item, so the fence ended\n",
        "    # no\n",
        "<pre>\n# no\n</pre>",
        "<!--\n# no\n-->",
    ],
    ids=["plain", "longer closing", "indented", "tildes", "unclosed", "in a list", "indented code", "pre", "comment"],
)
def test_a_hash_in_code_is_no_heading(fenced: str) -> None:
    """haystack PR11011, langchain PR13511: `#` inside a code fence becomes a heading."""
    expected = [(1, "outside the item, so the fence ended")] if "outside" in fenced else []
    assert headings(fenced) == expected
    assert headings(f"# yes\n\n{fenced}")[0] == (1, "yes")


@pytest.mark.parametrize(
    "front",
    [
        "---\ntitle: A page\ntags: [a, b]\n---\n",
        "---\n# comment\ntitle: x\n\nnested:\n  - y\n---\n",
        "+++\ntitle = 'x'\n+++\n",
        "---\ntitle: [unbalanced\n...\n",
    ],
)
def test_front_matter_is_no_heading(front: str) -> None:
    """docling#4315: YAML front matter becomes a heading. Loaders keep in the text what they could not read."""
    assert headings(f"{front}\n# First\n\ntext\n") == [(1, "First")]
    blocks = list(markdown_blocks(f"{front}# First"))
    assert blocks[0].start == 0
    assert blocks[0].end == len(front) - 1


def test_a_thematic_break_on_top_is_not_front_matter() -> None:
    text = "---\n\nIntro\n\n# First\n\n---\n\n# Second\n"
    assert [title for _, title in headings(text)] == ["First", "Second"]


@pytest.mark.parametrize(
    "text",
    [
        "::: tip Note\nText\n:::\n",
        ":::danger IMPORTANT\nText\n:::\n",
        "/// note | Title\n\nText\n\n///\n",
        "{{#include ../a.rs}}\n\n{{#rustdoc_include b.rs:here}}\n",
        '!!! warning "Title"\n    Text\n',
        "[label]: http://example.org 'title'\n",
    ],
)
def test_markup_of_other_dialects_stays_whole(text: str) -> None:
    blocks = list(markdown_blocks(text))
    assert "\n\n".join(text[b.start : b.end] for b in blocks).split() == text.split()
    assert not any(block.heading for block in blocks)


def test_kinds_and_items() -> None:
    text = "# T\n\npara\n\n- one\n- two\n  - inner\n- three\n\n| a |\n|---|\n| 1 |\n\n```\nx\n```\n\n***\n"
    blocks = list(markdown_blocks(text))
    assert [block.kind for block in blocks] == ["prose", "prose", "list", "table", "code", "prose"]
    assert [text[i : i + 5].strip() for i in blocks[2].items] == ["- one", "- two", "- thr"]
    assert [block.mark for block in blocks] == [False] * 5 + [True]


def test_setext_headings_have_levels_one_and_two() -> None:
    assert headings("Title\n===\n\nSub\nmore\n---\n") == [(1, "Title"), (2, "Sub more")]


def test_plain_text_has_no_headings() -> None:
    blocks = list(paragraph_blocks("# not a heading\nline\n \n\n    next\n"))
    assert [(block.start, block.heading) for block in blocks] == [(0, 0), (24, 0)]


@pytest.mark.parametrize(
    ("source", "title"),
    [
        ("**Bold** and _it_ and ***both***", "Bold and it and both"),
        ("`fastapi run` { #fastapi-run }", "fastapi run"),
        ("Title {#anchor .class}", "Title"),
        ("`__init__` and snake_case_name", "__init__ and snake_case_name"),
        ("``a ` b``", "a ` b"),
        ("[Link](http://x/(y)) and [ref][r]", "Link and ref"),
        ("[![alt](i.png)](http://x)", "alt"),
        (r"Stars \*kept\* &amp; entities", "Stars *kept* & entities"),
        ('<a id="x"></a>Title<!-- c -->', "Title"),
        ("RefCell<T> <https://x.y>", "RefCell https://x.y"),
        ("2 * 3 * 4", "2 * 3 * 4"),
        ("关于 **版本**", "关于 版本"),
    ],
)
def test_titles_lose_their_markup_only(source: str, title: str) -> None:
    assert plain_title(source) == title


def test_a_title_is_capped() -> None:
    assert plain_title("word " * 1000).endswith(" word…")
    assert len(plain_title("x" * 10**6)) == 200
