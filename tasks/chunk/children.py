"""A section to children: neighbouring blocks together, as much as fits; what is too large is cut.

The packing goes forward greedily, so that an edit leaves all children before it alone, and those after it as soon as
both packings meet at one block's border. Only the last two children of a section are balanced, so that no crumb is
left at its end.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from schemas.documents import ChunkKind, Span
from tasks.chunk.blocks import Block
from tasks.chunk.breaks import best_break
from tasks.chunk.sections import Section
from tasks.chunk.token_index import CHARACTERS_PER_TOKEN, TokenIndex

_CRUMB = 0.15
"""A child below this share of the limit is joined to a neighbour, even if that must be cut for it."""

_HALF_FULL = 0.5
"""A child of this share may end before a block that has to be cut anyway."""

_CODE_FULL = 0.35
"""Code is cut less evenly: a gap between two functions is worth more than a full child."""

_NARROW = 1.6
"""A rest above this many limits leaves too little choice of where to part it in two: it is cut as if more followed."""

_OPENS = re.compile(r"\s*<[A-Za-z][^<>]*>\s*\Z")
_CLOSES = re.compile(r"\s*(?:</[A-Za-z][\w-]*>|/{3,}|:{3,}|-{3,})\s*\Z")
_SPACES = re.compile(r"\s*")


def children_of(section: Section, index: TokenIndex, limit: int) -> Iterator[Span]:
    """Yield the children of a section in order.

    Each has ``limit`` tokens at most, and 8 characters per token of it; together they hold every character of the
    section that is not white space exactly once.
    """
    packer = _Packer(section, index, limit)
    for start, end in packer.ranges():
        yield Span(start, end, section.breadcrumb, section.level, packer.kind(start, end))


class _Packer:
    def __init__(self, section: Section, index: TokenIndex, limit: int) -> None:
        self._section = section
        self._index = index
        self._text = index.text
        self._limit = limit
        self._blocks = section.blocks
        self._starts = [block.start for block in section.blocks]

    def ranges(self) -> Iterator[tuple[int, int]]:
        start = self._skip_spaces(self._section.start, self._section.end)
        end = self._trim(start, self._section.end)
        while start < end:
            cut = end if self._index.fits(start, end, self._limit) else self._cut(start, end)
            yield start, self._trim(start, cut)
            start = self._skip_spaces(cut, end)

    def kind(self, start: int, end: int) -> ChunkKind:
        """Return what fills most of a range."""
        filled: dict[ChunkKind, int] = {}
        for block in self._blocks[max(bisect_right(self._starts, start) - 1, 0) : bisect_left(self._starts, end)]:
            share = min(block.end, end) - max(block.start, start)
            filled[block.kind] = filled.get(block.kind, 0) + max(share, 0)
        return max(filled, key=lambda kind: filled[kind], default="prose")

    def _cut(self, start: int, end: int) -> int:
        """Return where the child that begins at ``start`` ends; it does not reach ``end``."""
        share = 1.0
        while True:
            cut = self._place(start, end, max(1, int(self._limit * share)))
            stop = self._trim(start, cut)
            if stop - start <= 1 or self._index.fits(start, stop, self._limit):
                return cut
            share *= 0.7  # The text counts more tokens by itself than it has within its word.

    def _place(self, start: int, end: int, tokens: int) -> int:
        index = self._index
        characters = CHARACTERS_PER_TOKEN * tokens
        high = max(min(index.advance(start, tokens), start + characters, end), start + 1)
        total = max(index.size(start, end) / tokens, (end - start) / characters)
        if total <= 2:
            middle = min(self._share(start, end, tokens, total / 2), high)
            low = min(max(index.retreat(end, tokens), end - characters), high - 1)
            cut = self._block_border(start, end, low, high, middle, tokens)
            if cut is not None:
                return cut
        cut = self._block_border(start, end, start, high, high, tokens)
        if cut is not None:
            return cut
        if total <= _NARROW:
            return self._inner_border(start, max(low, (start + middle) // 2), high, middle)
        share = _CODE_FULL if self._straddling(high).kind == "code" else _HALF_FULL
        return self._inner_border(start, self._share(start, end, tokens, share), high, high)

    def _share(self, start: int, end: int, tokens: int, share: float) -> int:
        """Return the offset at which a child from ``start`` has this share of its limit."""
        by_tokens = self._index.advance(start, int(tokens * share))
        by_characters = start + int(CHARACTERS_PER_TOKEN * tokens * share)
        return max(min(by_tokens, by_characters, end), start + 1)

    def _block_border(self, start: int, end: int, low: int, high: int, target: int, tokens: int) -> int | None:
        """Return the border of a block in ``[low, high]`` nearest to ``target`` at which a child may end."""
        first = bisect_left(self._starts, max(low, start + 1))
        after = bisect_right(self._starts, high)
        crumb = self._share(start, end, tokens, _CRUMB)
        half = self._share(start, end, tokens, _HALF_FULL)

        def order(i: int) -> tuple[bool, int, int]:
            apart = self._starts[i] >= half and not self._belong_together(i)
            return not apart, abs(self._starts[i] - target), -i

        for i in sorted(range(first, after), key=order):
            border = self._starts[i]
            before = self._blocks[i - 1]
            if border < crumb or before.heading:
                continue
            if before.kind not in ("code", "table") and self._is_crumb(border, end, tokens):
                continue
            if i == after - 1 and border < half and self._is_large(i, tokens):
                continue
            return border
        return None

    def _belong_together(self, i: int) -> bool:
        """Tell whether block ``i`` is announced by the one before ("for example:"), or only closes it."""
        before, block = self._blocks[i - 1], self._blocks[i]
        return (
            self._text[before.end - 1] in ":："
            or _OPENS.match(self._text, before.start, min(before.end, before.start + 400)) is not None
            or _CLOSES.match(self._text, block.start, min(block.end, block.start + 40)) is not None
        )

    def _is_crumb(self, start: int, end: int, tokens: int) -> bool:
        return self._share(start, end, tokens, _CRUMB) >= end

    def _is_large(self, i: int, tokens: int) -> bool:
        block = self._blocks[i]
        return (
            self._index.size(block.start, block.end) > tokens or block.end - block.start > CHARACTERS_PER_TOKEN * tokens
        )

    def _inner_border(self, start: int, low: int, high: int, target: int) -> int:
        """Return a border within a block, but not directly after the headings at the start."""
        block = self._straddling(target)
        low = max(low, start)
        first = bisect_right(self._starts, start)
        while first < len(self._blocks) and self._blocks[first - 1].heading and self._starts[first] < high:
            low = max(low, self._starts[first])
            first += 1
        low = min(low, high - 1)
        target = max(target, low + 1)
        items = block.items[bisect_right(block.items, low) : bisect_right(block.items, high)]
        return best_break(self._text, low, high, target, block.kind, items)

    def _straddling(self, offset: int) -> Block:
        return self._blocks[max(bisect_left(self._starts, offset) - 1, 0)]

    def _skip_spaces(self, start: int, end: int) -> int:
        match = _SPACES.match(self._text, start, end)
        return match.end() if match else start

    def _trim(self, start: int, end: int) -> int:
        while end > start and self._text[end - 1].isspace():
            end -= 1
        return end
