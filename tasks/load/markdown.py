"""Markdown: the text as it is, front matter out of it, and the title."""

from __future__ import annotations

import functools
import itertools
import re
from typing import TYPE_CHECKING

from schemas.documents import LoadedDocument, Metadata
from tasks.load.encoding import decode
from tasks.load.front_matter import split_front_matter
from tasks.load.language import language_of
from tasks.load.normalisation import normalise, refuse_binary, title_of

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_ANCHOR = re.compile(r"\s*\{\s*#[^{}]*\}\s*$")
_PREFIX = 4_096
_WORDLESS = frozenset({"html_block", "hr", "paragraph_open", "paragraph_close"})


def load_markdown(data: bytes, uri: str) -> LoadedDocument:
    """Load a Markdown (CommonMark, GFM, MDX) file."""
    decoded = decode(data, uri)
    refuse_binary(decoded.text, uri)
    front = split_front_matter(normalise(decoded.text), uri)
    metadata = Metadata(
        type="markdown",
        title=front.title or markdown_title(front.body),
        language=language_of(front.language, front.body),
        tags=front.tags,
        date=front.date,
        groups=front.groups,
    )
    return LoadedDocument(text=front.body, metadata=metadata, flags=(*decoded.flags, *front.flags))


def markdown_title(text: str) -> str | None:
    """Return the words of the heading that opens the text, else of the first level-1 heading, else None.

    Headings in lists, quotes and code are none. Books number their chapters' files and begin them at level 2: hence
    the first rule. Block structure never depends on later lines, save the line under a setext heading: so the
    heading is looked for in growing prefixes, and a long document with its title at the top is not parsed as a whole.
    """
    size = _PREFIX
    while True:
        prefix = text if size >= len(text) else text[: text.rfind("\n", 0, size) + 1]
        heading = _title_heading(prefix)
        if heading is not None or len(prefix) == len(text):
            return heading
        size *= 16


def _title_heading(text: str) -> str | None:
    opens = True
    tokens = _block_parser().parse(text)
    for token, inline in itertools.pairwise(tokens):
        if token.type == "heading_open" and token.level == 0 and (opens or token.tag == "h1"):
            title = title_of(_plain(_ANCHOR.sub("", inline.content)))
            if title is not None:
                return title
        elif token.type == "inline":
            opens = opens and not _plain(token.content).strip()  # an anchor, a badge: no words yet
        elif token.level == 0 and token.type not in _WORDLESS:
            opens = False
    return None


def _plain(markup: str) -> str:
    """Return the words of inline Markdown: without emphasis, link targets, code ticks and HTML tags."""
    (inline,) = _inline_parser().parseInline(markup)
    words = []
    for token in inline.children or ():
        if token.type in ("text", "code_inline", "text_special"):
            words.append(token.content)
        elif token.type in ("softbreak", "hardbreak"):
            words.append(" ")
    return "".join(words)


@functools.cache
def _block_parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark").enable("table")
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser


@functools.cache
def _inline_parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark")
