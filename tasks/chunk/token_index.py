"""How many tokens lie between two offsets: one tokenisation per document, then binary search.

The tokenizer is by far the slowest part of chunking (2-3.5 MB/s against ~9 MB/s for Markdown's blocks), so the text
goes through it once and most sizes are differences of ranks. Such a difference is what the tokenizer would count for
the span alone, except that a cut inside a word, or a tokenizer that marks a word's preceding space, may add a few
tokens at the edges. ``fits`` therefore counts for itself whenever an edge is not white space or little room is left.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator

import numpy as np

from tasks.embed.tokenizer import Tokenizer

CHARACTERS_PER_TOKEN = 8
"""A span may have this many characters per token of its limit: a megabyte without spaces is one WordPiece token."""

_PIECE = 2**20
_SLACK = 8


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

    def fits(self, start: int, end: int, limit: int) -> bool:
        """Tell whether ``text[start:end]`` has ``limit`` tokens and ``8 * limit`` characters at most, by itself."""
        if end - start > CHARACTERS_PER_TOKEN * limit:
            return False
        estimate = self.size(start, end)
        if estimate > limit:
            return False
        if estimate <= limit - max(_SLACK, limit // 16) and self._open(start - 1) and self._open(end):
            return True
        return self._tokenizer.count(self.text[start:end]) <= limit

    def _open(self, offset: int) -> bool:
        """Tell whether no word can reach across ``offset``. Only white space that every tokenizer splits at counts."""
        return not 0 <= offset < len(self.text) or self.text[offset] in " \t\n"


def _pieces(text: str) -> Iterator[tuple[int, int]]:
    """Part a text for the tokenizer, whose encoding takes ~100 bytes per character while it lives."""
    start = 0
    while start < len(text):
        end = min(start + _PIECE, len(text))
        if end < len(text):
            end = text.rfind("\n", start, end) + 1 or text.rfind(" ", start, end) + 1 or end
        yield start, end
        start = end
