"""Which blocks of a PDF are headings, and of what level: by its outline, by the size and weight of its type.

Type that is larger than the body's, or bold and standing alone, makes a *style*. Styles are ranked from the largest;
where the outline (bookmarks) names headings of a style, the outline's level is the level of that style.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tasks.load.pdf_blocks import Block, is_list_item

Style = tuple[float, bool]

_MAX_LEVEL = 6
_MAX_LINES = 4
_MAX_CHARACTERS = 200
_LARGER = 1.13
_BOLD_LARGER = 1.04
_NUMBERED = re.compile(r"\d+(?:\.\d+)*\.?\s+\S")
_NOT_WORD = re.compile(r"[\W_]+")


@dataclass(frozen=True, slots=True)
class OutlineEntry:
    """A bookmark: level from 1, title, page from 0."""

    level: int
    title: str
    page: int


def heading_levels(blocks: Sequence[Block], outline: Sequence[OutlineEntry]) -> dict[int, int]:
    """Return the level (1 to 6) of each block, by index, that is a heading."""
    body = _body_size(blocks)
    stated = _stated_levels(blocks, outline)
    styles = {index: style for index, block in enumerate(blocks) if (style := _style(block, body)) is not None}
    votes: defaultdict[Style, Counter[int]] = defaultdict(Counter)
    for index, level in stated.items():
        if index in styles:
            votes[styles[index]][level] += 1
    levels = _rank(Counter(styles.values()), votes)
    return {index: levels[style] for index, style in styles.items()} | stated


def _rank(uses: Mapping[Style, int], votes: Mapping[Style, Counter[int]]) -> dict[Style, int]:
    """Give each style its level: the outline's, else its rank. Styles used once are those of a title page; however
    many they are, the largest has level 1 and the others level 2, beside the largest style that comes again."""
    levels: dict[Style, int] = {}
    above: Style | None = None  # the last style that comes again
    title_page = False
    for style in sorted(uses, reverse=True):
        if style in votes:
            level, _ = max(votes[style].items(), key=lambda vote: (vote[1], -vote[0]))
        elif above is not None:
            # Half a point is how one size is rounded on two pages, not two kinds of headings.
            same = above[1] == style[1] and above[0] - style[0] <= 0.5
            level = levels[above] + (0 if same else 1)
        else:
            level = 2 if title_page else 1
        levels[style] = min(level, _MAX_LEVEL)
        if uses[style] > 1 or style in votes:
            above = style
        else:
            title_page = True
    return levels


def _body_size(blocks: Sequence[Block]) -> float:
    """Return the size that most characters of prose have."""
    sizes: Counter[float] = Counter()
    for block in blocks:
        if block.kind == "prose":
            for placed in block.lines:
                sizes[placed.line.size] += len(placed.line.text)
    return max(sizes, key=lambda size: (sizes[size], -size), default=10.0)


def _style(block: Block, body: float) -> Style | None:
    text = " ".join(placed.line.text for placed in block.lines)
    letters = sum(map(str.isalpha, text))
    if block.kind != "prose" or len(block.lines) > _MAX_LINES or len(text) > _MAX_CHARACTERS:
        return None
    if letters < 2 or 2 * letters < len(text.replace(" ", "")) or text.endswith((",", ";", "，", "；")):
        return None
    if any(placed.line.scattered for placed in block.lines):
        return None  # the head of a table that could not be told from text
    bold = all(placed.line.bold for placed in block.lines)
    size = min(placed.line.size for placed in block.lines)
    if size >= _LARGER * body or (bold and size >= _BOLD_LARGER * body):
        return (size, bold)
    if bold and size >= 0.95 * body and (_NUMBERED.match(text) or not is_list_item(text)):
        return (body, True) if not text.endswith((".", "。", ":", "：")) or len(text) < 60 else None
    return None


def _stated_levels(blocks: Sequence[Block], outline: Sequence[OutlineEntry]) -> dict[int, int]:
    by_page: defaultdict[int, list[tuple[int, str]]] = defaultdict(list)
    for index, block in enumerate(blocks):
        if block.kind == "prose" and len(block.lines) <= _MAX_LINES:
            text = _squash("".join(placed.line.text for placed in block.lines))
            if text and len(text) <= _MAX_CHARACTERS:
                by_page[block.lines[0].page].append((index, text))
    stated: dict[int, int] = {}
    for entry in outline:
        title = _squash(entry.title)
        for index, text in by_page[entry.page]:
            # Outlines leave out numbers ("3.1"), and marks of footnotes.
            if index not in stated and title and title in text and len(text) <= len(title) + 6:
                stated[index] = min(entry.level, _MAX_LEVEL)
                break
    return stated


def _squash(text: str) -> str:
    return _NOT_WORD.sub("", text).lower()
