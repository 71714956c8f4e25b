"""How many tokens lie between two offsets: one tokenisation per document, then binary search.

The tokenizer is by far the slowest part of chunking (2-3.5 MB/s against ~9 MB/s for Markdown's blocks), so the text
goes through it once, and most sizes are differences of ranks. Such a difference is what the tokenizer counts for the
span alone, but for its outermost words: a tokenizer may join a word with the space before it, or with a word behind a
line end. We rely on nothing but that it parts words at U+0020 and makes one token per byte at most; where even that
many would fit, nothing is counted again.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator

import numpy as np

from tasks.embed.tokenizer import Tokenizer

CHARACTERS_PER_TOKEN = 8
"""A span may have this many characters per token of its limit: a megabyte without spaces is one WordPiece token."""

_PIECE = 2**17


class TokenIndex:
    """Offsets of a text's tokens.

    Attributes:
        text: the whole text.
    """

    def __init__(self, text: str, tokenizer: Tokenizer) -> None:
        self.text = text
        self._tokenizer = tokenizer
        self._starts = array("i")
        for start, end in _pieces(text):
            self._starts.frombytes((tokenizer.starts(text[start:end]) + start).astype(np.intc).tobytes())

    def rank(self, offset: int) -> int:
        """Return the number of tokens that begin before ``offset``."""
        return bisect_left(self._starts, offset)

    def size(self, start: int, end: int) -> int:
        """Return the number of tokens that begin in ``text[start:end]``."""
        return self.rank(end) - self.rank(start)

    def advance(self, start: int, tokens: int) -> int:
        """Return the furthest end such that ``text[start:end]`` holds the beginnings of ``tokens`` tokens at most."""
        rank = self.rank(start) + max(tokens, 0)
        return self._starts[rank] if rank < len(self._starts) else len(self.text)

    def retreat(self, end: int, tokens: int) -> int:
        """Return the smallest start such that ``text[start:end]`` holds the beginnings of ``tokens`` tokens at most."""
        rank = self.rank(end) - tokens - 1
        return self._starts[rank] + 1 if rank >= 0 else 0

    def may_fit(self, start: int, end: int, limit: int) -> bool:
        """Tell quickly whether ``fits`` is likely; when it is not, ``fits`` is False."""
        return end - start <= CHARACTERS_PER_TOKEN * limit and self.size(start, end) <= limit

    def fits(self, start: int, end: int, limit: int) -> bool:
        """Tell whether ``text[start:end]`` has ``limit`` tokens and ``8 * limit`` characters at most, by itself."""
        if not self.may_fit(start, end, limit):
            return False
        if self.size(start, end) + self._outermost(start, end) <= limit:
            return True
        return self._tokenizer.count(self.text[start:end]) <= limit

    def _outermost(self, start: int, end: int) -> int:
        """Return the most tokens that the first and the last word of a span can have."""
        first = self.text.find(" ", start, end)
        last = self.text.rfind(" ", start, end)
        if first < 0:
            return _bytes(self.text[start:end])
        return _bytes(self.text[start:first]) + _bytes(self.text[last + 1 : end])


def _bytes(word: str) -> int:
    return len(word) if word.isascii() else 4 * len(word)


def _pieces(text: str) -> Iterator[tuple[int, int]]:
    """Part a text for the tokenizer, whose encodings take up to ~500 bytes per character while they live."""
    start = 0
    while start < len(text):
        end = min(start + _PIECE, len(text))
        if end < len(text):
            end = text.rfind("\n", start, end) + 1 or text.rfind(" ", start, end) + 1 or end
        yield start, end
        start = end
