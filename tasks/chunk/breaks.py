"""Where a block that is too large may be cut: the border that hurts least within a window of characters.

Each kind of block has its own order of borders, strongest first: a table breaks between rows, code at the blank
lines before what is indented least, prose after a sentence (English or Chinese). What has none of them breaks at a
space, at a punctuation mark, and at last between any two code points that are not one character for a reader.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from schemas.documents import ChunkKind

_MAX_CLUSTER = 32
_ZERO_WIDTH_JOINER = "\u200d"

# A border is where a match ends.
_CLOSING = r"[\"'”’」』）》】)\]*_`»]*"
_EMPTY_LINE = re.compile(r"\n[>\s]*\n\s*")
_LINE = re.compile(r"\n\s*")
_SPACE = re.compile(r"\s+")
_MARK = re.compile(r"[^\w\s]+")
_PROSE = (
    _EMPTY_LINE,
    re.compile(rf"[.!?…:。！？；：]{_CLOSING}[^\S\n]*\n\s*"),
    re.compile(rf"[.!?…]{_CLOSING}\s+|[。！？；]{_CLOSING}\s*"),
    _LINE,
    re.compile(r"[,;:]\s+|[，、：]\s*"),
    _SPACE,
    _MARK,
)
_BORDERS: dict[ChunkKind, tuple[re.Pattern[str], ...]] = {
    "prose": _PROSE,
    "list": (re.compile(r"\n\s*(?=(?:[-*+]|\d{1,9}[.)])\s)"), *_PROSE),
    "table": (_LINE, re.compile(r"\|\s*"), *_PROSE[2:]),
    "code": (_EMPTY_LINE, _LINE, _SPACE, _MARK),
}


def best_break(text: str, low: int, high: int, target: int, kind: ChunkKind, preferred: Iterable[int] = ()) -> int:
    """Return the strongest border in ``(low, high]``, of equals the one nearest to ``target``.

    Args:
        preferred: borders known beforehand, stronger than all others.
    """
    found = _nearest(text, preferred, low, high, target)
    if found is None and kind == "code":
        found = _nearest(text, _outermost_gaps(text, low, high), low, high, target)
    for border in _BORDERS[kind]:
        if found is not None:
            return found
        found = _nearest(text, (match.end() for match in border.finditer(text, low, high)), low, high, target)
    return _before_cluster(text, low, target) if found is None else found


def _outermost_gaps(text: str, low: int, high: int) -> list[int]:
    """Return where a blank line is followed by the least indented line that does not just close something."""
    gaps: dict[int, list[int]] = {}
    for match in _EMPTY_LINE.finditer(text, low, high):
        if match.end() < len(text) and text[match.end()] not in "})]":
            indentation = match.end() - text.rindex("\n", match.start(), match.end())
            gaps.setdefault(indentation, []).append(match.end())
    return gaps[min(gaps)] if gaps else []


def _nearest(text: str, offsets: Iterable[int], low: int, high: int, target: int) -> int | None:
    within = (o for o in offsets if low < o <= high and not _inside_cluster(text, o))
    return min(within, key=lambda o: (abs(o - target), -o), default=None)


def _before_cluster(text: str, low: int, offset: int) -> int:
    """Move a cut before the character that it would tear apart, unless that has no beginning nearby."""
    for cut in range(offset, max(low, offset - _MAX_CLUSTER), -1):
        if not _inside_cluster(text, cut):
            return cut
    return offset


def _inside_cluster(text: str, offset: int) -> bool:
    """Tell whether a cut here would part a base from its marks (UAX #29, without its Hangul and flag rules)."""
    if not 0 < offset < len(text):
        return False
    before, after = text[offset - 1], text[offset]
    if after.isascii():
        return False
    return (
        unicodedata.category(after) in ("Mn", "Me", "Mc")
        or after == _ZERO_WIDTH_JOINER
        or before == _ZERO_WIDTH_JOINER
        or "\U0001f3fb" <= after <= "\U0001f3ff"
        or ("\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff")
    )
