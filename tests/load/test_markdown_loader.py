"""Markdown: text untouched, front matter out of it, titles that are titles."""

from __future__ import annotations

import datetime as dt

import pytest

from schemas.config import LoadConfig
from schemas.documents import LoadedDocument
from schemas.errors import PermanentError
from tasks.load.loader import load_document
from tasks.load.markdown import markdown_title


def load(text: str) -> LoadedDocument:
    return load_document(text.encode(), "notes/a.md", LoadConfig())


def test_front_matter_becomes_metadata_and_leaves_the_text() -> None:
    """docling#4315: YAML front matter becomes a heading."""
    loaded = load(
        "---\ntitle: Leave policy\ntags: [people, leave, people]\nlanguage: en-GB\ndate: 2025-01-06\n"
        "groups: [staff]\nowner: Ffion\n---\n\n# Leave\n\nText.\n"
    )
    assert loaded.text == "\n# Leave\n\nText.\n"
    assert loaded.metadata.title == "Leave policy"
    assert loaded.metadata.tags == ("leave", "people")
    assert loaded.metadata.language == "en"
    assert loaded.metadata.date == dt.date(2025, 1, 6)
    assert loaded.metadata.groups == ("staff",)
    assert loaded.flags == ()


def test_front_matter_values_stay_what_they_say() -> None:
    loaded = load("---\ntitle: 2024\ntags: yes, no\nlang: zh\n---\nText.\n")
    assert (loaded.metadata.title, loaded.metadata.tags, loaded.metadata.language) == ("2024", ("no", "yes"), "zh")


def test_broken_front_matter_is_kept_as_words_but_never_as_a_heading() -> None:
    """docling#4315: without the fence the closing --- would make its last line a level-2 heading."""
    loaded = load("---\ntitle: [unclosed\nowner: x\n---\n# Real title\n")
    assert loaded.flags == ("front-matter-invalid",)
    assert loaded.text == "```yaml\ntitle: [unclosed\nowner: x\n```\n# Real title\n"
    assert loaded.metadata.title == "Real title"


@pytest.mark.parametrize("block", ["groups: [staff\n", "groups: 3: x\n", "groups:\n  staff: yes\n"])
def test_access_that_cannot_be_read_is_never_guessed(block: str) -> None:
    with pytest.raises(PermanentError, match="access groups") as caught:
        load(f"---\n{block}---\nSecret.\n")
    assert caught.value.document == "notes/a.md"


@pytest.mark.parametrize(
    "text",
    [
        "---\n{title: x, groups: [hr], y: ]}\n---\nSecret.\n",
        "---\n? groups\n: [hr\n---\nSecret.\n",
        "---\ngroups: [hr]\n" + "x: y\n" * 20_000 + "---\nSecret.\n",
        "---\ngroups: [hr]\n\nSecret, and no end of the front matter.\n",
        "---\n<<: {groups: [hr]}\n---\nSecret.\n",
        "\n---\ngroups: [hr]\n---\nSecret.\n",
        "  ---\ngroups: [hr]\n---\nSecret.\n",
    ],
)
def test_groups_that_may_have_been_meant_are_never_overlooked(text: str) -> None:
    with pytest.raises(PermanentError, match="access groups"):
        load(text)


def test_prose_about_groups_is_prose() -> None:
    assert "Two groups of people" in load("---\n\nTwo groups of people\n\n---\n\nMore.\n").text
    assert load("# Title\n\ngroups: a and b\n").metadata.groups is None


def test_a_document_that_names_nobody_is_not_one_that_names_no_groups() -> None:
    assert load("---\ngroups: []\n---\nx\n").metadata.groups == ()
    assert load("---\ntitle: t\n---\nx\n").metadata.groups is None


def test_thematic_breaks_around_prose_are_no_front_matter() -> None:
    text = "---\nJust a sentence\n---\nMore.\n"
    assert load(text).text == text


def test_yaml_bombs_and_tags_build_nothing() -> None:
    bomb = "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12))
    loaded = load(f"---\na0: &a0 x\n{bomb}title: !!python/object/apply:os.getcwd []\n---\nx\n")
    assert loaded.text == "x\n"
    assert loaded.metadata.title is None


@pytest.mark.parametrize(
    "text",
    [
        "````\n# not a title\n```\n# nor this\n````\n\n# Title\n",  # longer closing fence
        "- item\n\n  ```sh\n  # not a title\n  ```\n\n# Title\n",  # indented in a list
        "    # not a title\n\n# Title\n",  # indented code
        "~~~\n# not a title\n~~~\n\nTitle\n=====\n",
        "> # quoted\n\n# Title\n",
        "<!-- # hidden -->\n\n# *Title*\n",
        "# [Title](https://x.example/#y) { #title }\n",
    ],
)
def test_a_hash_in_code_or_quotes_is_no_title(text: str) -> None:
    """haystack PR11011, langchain PR13511: `#` inside a code fence becomes a heading."""
    assert markdown_title(text) == "Title"


def test_an_unclosed_fence_swallows_the_rest() -> None:
    """haystack PR11011: unclosed fences."""
    assert markdown_title("text\n\n```\n# not a title\n\n# nor this\n") is None


def test_a_chapter_that_opens_at_level_two_has_that_title() -> None:
    assert markdown_title('<a id="x"></a>\n\n## What Is Ownership?\n\nText.\n') == "What Is Ownership?"
    assert markdown_title("Text first.\n\n## Section\n") is None


def test_the_title_is_found_far_below_and_across_prefix_borders() -> None:
    for filler in (4_090, 4_095, 4_096, 70_000):
        text = "a line of text\n" * (filler // 15) + "\nTitle of it\n===\n"
        assert markdown_title(text) == "Title of it"


def test_text_before_the_first_heading_and_heading_only_documents_are_kept_whole() -> None:
    """haystack PR12762: text before the first heading is lost; heading-only documents vanish."""
    for text in ("Before.\n\n# A\n", "# Only\n", "# A\n## B\n"):
        assert load(text).text == text


def test_line_ends_nul_and_mark_are_normalised() -> None:
    loaded = load_document(b"\xef\xbb\xbf# A\r\nb\rc" + b" word" * 100 + b"\x00\n", "a.md", LoadConfig())
    assert loaded.text == "# A\nb\nc" + " word" * 100 + "\n"


def test_front_matter_is_found_behind_a_mark_and_windows_line_ends() -> None:
    loaded = load_document(b"\xef\xbb\xbf---\r\ntitle: T\r\n---\r\nbody\r\n", "a.md", LoadConfig())
    assert (loaded.metadata.title, loaded.text) == ("T", "body\n")
