"""Passage to units that can be quoted on their own: sentences, list items, table rows, lines of code.

A unit is a span of the passage, without the white space around it; units never overlap. What says nothing by itself
(headings, the header and ruler of a table, fences of code) is no unit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

Span = tuple[int, int]

_LONGEST = 500  # Text without full stops (a PDF's lists, logs) is divided at the last comma or space before.
_LONGEST_ITEM = 300

_LINE = re.compile(r"[^\n]+")
_HEADING = re.compile(r"\s{0,3}#{1,6}\s")
_RULE = re.compile(r"[\s|:=*_+-]+")
_FENCE = re.compile(r"\s*(?:```|~~~)")
_ITEM = re.compile(r"\s*(?:[-*+](?!\d)|[•·]|\d{1,3}(?:[.)](?!\d)|、)|[（(]?[一二三四五六七八九十]+[)）、])\s*")
_ROW = re.compile(r"\s*\|")

_SENTENCE_END = re.compile(r"[。！？…।]+[」』”’）】]*|[.!?]+[\"'”’)\]]*(?=\s|$)")
_LAST_WORD = re.compile(r"[^\W_]+(?:\.[^\W_]+)*$")
_ABBREVIATIONS = frozenset(
    ["e.g", "i.e", "vs", "dr", "mr", "mrs", "ms", "st", "approx", "ca", "cf", "z.b", "d.h", "bzw"]
)
_BEFORE_NUMBERS = frozenset(["no", "nos", "fig", "figs", "p", "pp", "vol", "sec", "ch", "eq", "nr"])
_BREAK = re.compile(r"[,;:，；：、\s]")


def units(text: str, kind: str) -> list[Span]:
    """Return the units of a passage in order.

    Args:
        kind: of the chunk; lines of ``code`` are never joined to sentences.
    """
    found: list[Span] = []
    for start, end, whole in _blocks(text, code=kind == "code"):
        pieces = [(start, end)] if whole else _sentences(text, start, end)
        for piece in pieces:
            found += (span for span in _short(text, *piece) if re.search(r"\w", text[span[0] : span[1]]))
    return found


def _blocks(text: str, *, code: bool) -> Iterator[tuple[int, int, bool]]:
    """Yield begin, end, and whether it is one unit, of each paragraph, item, row or line of code."""
    lines = [match.span() for match in _LINE.finditer(text)]
    fenced = False
    block: Span | None = None
    block_is_item = False
    for place, (start, end) in enumerate(lines):
        line = text[start:end]
        if _FENCE.match(line):
            fenced = not fenced
        joined = place > 0 and text[lines[place - 1][1] : start].count("\n") == 1
        plain = line.strip() and not _FENCE.match(line) and not _starts_own(line) and not code and not fenced
        if block and joined and plain:
            block = (block[0], end)
            continue
        if block:
            yield (*block, block_is_item and block[1] - block[0] <= _LONGEST_ITEM)
            block = None
        if not line.strip() or _FENCE.match(line) or _RULE.fullmatch(line):
            continue
        if code or fenced:
            yield start, end, True
        elif _HEADING.match(line) or _heads_table(text, lines, place):
            continue
        elif _ROW.match(line):
            yield start, end, True
        else:
            block, block_is_item = (start, end), bool(_ITEM.match(line))
    if block:
        yield (*block, block_is_item and block[1] - block[0] <= _LONGEST_ITEM)


def _starts_own(line: str) -> bool:
    return bool(_HEADING.match(line) or _ITEM.match(line) or _ROW.match(line) or _RULE.fullmatch(line))


def _heads_table(text: str, lines: list[Span], place: int) -> bool:
    """Tell whether a line has a ruler below: the header of a table, or an underlined heading."""
    if place + 1 == len(lines):
        return False
    start, end = lines[place + 1]
    ruler = text[start:end].strip()
    return len(ruler) >= 3 and _RULE.fullmatch(ruler) is not None and text[lines[place][1] : start].count("\n") == 1


def _sentences(text: str, start: int, end: int) -> Iterator[Span]:
    begin = start
    for match in _SENTENCE_END.finditer(text, start, end):
        if match[0].startswith(".") and _goes_on(text[begin : match.start()], text[match.end() : end]):
            continue
        yield begin, match.end()
        begin = match.end()
    yield begin, end


def _goes_on(before: str, after: str) -> bool:
    """Tell whether a full stop belongs to an abbreviation or an initial, or the sentence goes on in lower case."""
    following = after.lstrip()
    if following and following[0].islower():
        return True
    match = _LAST_WORD.search(before[-24:])
    if not match or not following:
        return False
    word = match[0]
    return (
        word.lower() in _ABBREVIATIONS
        or (word.lower() in _BEFORE_NUMBERS and following[0].isdecimal())
        or (len(word) == 1 and word.isupper())
    )


def _short(text: str, start: int, end: int) -> Iterator[Span]:
    """Yield a span without the white space around it, in pieces of at most _LONGEST."""
    while True:
        while start < end and text[start].isspace():
            start += 1
        while end > start and text[end - 1].isspace():
            end -= 1
        if end - start <= _LONGEST:
            break
        breaks = [match.end() for match in _BREAK.finditer(text, start + _LONGEST // 2, start + _LONGEST)]
        cut = breaks[-1] if breaks else start + _LONGEST
        yield start, start + len(text[start:cut].rstrip())
        start = cut
    if start < end:
        yield start, end
