"""A text as its blocks: headings, paragraphs, fences, tables, lists, with their offsets.

Markdown is read by the block rules of markdown-it-py (CommonMark 0.31 and GFM tables) and nothing else: what is
inside a fence can never be a heading, and inline markup, which chunking has no use for, costs nothing. The rules are
driven one top-level block at a time, so that offsets come from the parser's own line marks (the text is never
normalised under our feet) and a document of 200 MB never has all its tokens in memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.token import Token

from schemas.documents import ChunkKind
from tasks.chunk.titles import plain_title


@dataclass(frozen=True, slots=True)
class Block:
    """One block of a text.

    Attributes:
        start, end: code points; end lies after the last line's last character.
        kind: what it is.
        heading: level of a heading (1-6), else 0.
        title: a heading's plain words.
        mark: it says nothing by itself: a rule, a container's closing line.
        items: where a list's items begin.
    """

    start: int
    end: int
    kind: ChunkKind = "prose"
    heading: int = 0
    title: str = ""
    mark: bool = False
    items: tuple[int, ...] = ()


_KINDS: dict[str, ChunkKind] = {
    "fence": "code",
    "code_block": "code",
    "table_open": "table",
    "bullet_list_open": "list",
    "ordered_list_open": "list",
}
# A key, or a comment, must follow: `---` alone is a thematic break. Loaders take front matter out; where they could
# not read it, it stays in the text, and its closing line would turn the last key into a setext heading.
_FRONT_MATTER = re.compile(r"(---|\+\+\+)[ \t]*\n(?=\s*(?:[\w\"'][^\n:=]{0,80}[:=]|#))")
_CLOSING = re.compile(r"^(?:---|\.\.\.|\+\+\+)[ \t]*$", re.MULTILINE)
_BLANK_LINES = re.compile(r"\n\s*\n")


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark").enable("table")


def markdown_blocks(text: str) -> Iterator[Block]:
    """Yield the top-level blocks of a Markdown text in order. Only blank lines lie between them."""
    parser = _parser()
    rules = parser.block.ruler.getRules("")
    tokens: list[Token] = []
    state = StateBlock(text, parser, {}, tokens)
    line = 0
    front = _front_matter_end(text)
    if front:
        yield Block(0, front)
        line = text.count("\n", 0, front) + 1
    while (line := state.skipEmptyLines(line)) < state.lineMax:
        state.line = line
        for rule in rules:
            if rule(state, line, state.lineMax, False):
                break
        yield _block(state, tokens, line, state.line)
        tokens.clear()
        line = state.line


def _front_matter_end(text: str) -> int:
    opening = _FRONT_MATTER.match(text)
    if opening is None:
        return 0
    closing = _CLOSING.search(text, opening.end())
    return closing.end() if closing else 0


def _block(state: StateBlock, tokens: list[Token], first: int, after: int) -> Block:
    while after - 1 > first and state.isEmpty(after - 1):
        after -= 1
    start, end = state.bMarks[first], state.eMarks[after - 1]
    if not tokens:  # A link reference definition leaves no token, but its words are part of the text.
        return Block(start, end)
    token = tokens[0]
    if token.type == "heading_open":
        return Block(start, end, heading=int(token.tag[1]), title=plain_title(tokens[1].content))
    if token.type == "hr":
        return Block(start, end, mark=True)
    kind = _KINDS.get(token.type, "prose")
    items: tuple[int, ...] = ()
    if kind == "list":
        items = tuple(state.bMarks[t.map[0]] for t in tokens if t.level == 1 and t.type == "list_item_open" and t.map)
    mark = kind == "prose" and end - start < 16 and not any(c.isalnum() for c in state.src[start:end])
    return Block(start, end, kind, mark=mark, items=items)


def paragraph_blocks(text: str, kind: ChunkKind = "prose") -> Iterator[Block]:
    """Yield what lies between blank lines, without any reading of markup."""
    start = 0
    for gap in _BLANK_LINES.finditer(text):
        if gap.start() > start:
            yield Block(start, gap.start(), kind)
        start = gap.end()
    if start < len(text):
        yield Block(start, len(text), kind)
