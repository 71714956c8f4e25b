"""The lines of a PDF page: what MuPDF reads, upright, without copies and without running headers and footers.

Lengths are points (1/72 inch); y grows downwards. A page whose text mostly runs another way (landscape tables,
vertical writing) is turned so that its lines run to the right.
"""

from __future__ import annotations

import itertools
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

_BOLD_FLAG, _MONOSPACED_FLAG = 16, 8
_BOLD_NAME = re.compile(r"bold|black|heavy|semibd|demi", re.IGNORECASE)
_SPACE = re.compile(r"[\s\u00a0\u00ad\u2000-\u200b\u202f\u205f\u3000]+")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# A bullet of a symbol font: of private use, or without any Unicode value.
_SYMBOL_BULLET = re.compile(r"^[\ufffd\ue000-\uf8ff]{1,2} ?(?=\w)")
_LEADERS = re.compile(r"(?:\s?[.…·⋯_]){5,}\s?")
_DIGITS = re.compile(r"\d+|\b[ivxlc]+\b", re.IGNORECASE)
_PAGE_NUMBER = re.compile(
    r"(?:page|p\.|seite|第)?\s*[-–—]?\s*(\d{1,6})\s*[-–—页頁]?\s*(?:(?:of|/|von|共)\s*(\d{1,6})\s*[页頁]?)?",
    re.IGNORECASE,
)
_CJK_LETTER = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]")
_MARGIN_SHARE = 0.12
_SAME_PLACE = 5.0
_MIN_REPEATS = 3


@dataclass(frozen=True, slots=True)
class Line:
    """A run of text on one baseline, as MuPDF parts them: a line of a column, or a cell of a table's row.

    Attributes:
        size: of most of its letters, rounded to half a point.
        soft_hyphen: it ends with one (U+00AD), which is not in ``text``.
        scattered: it was joined of pieces that stand apart, as the cells of a table's row do.
    """

    text: str
    x0: float
    y0: float
    x1: float
    y1: float
    size: float
    bold: bool = False
    monospaced: bool = False
    soft_hyphen: bool = False
    scattered: bool = False

    @property
    def middle(self) -> float:
        return (self.y0 + self.y1) / 2


@dataclass(frozen=True, slots=True)
class Page:
    """The lines of one page, and its size after turning it upright."""

    width: float
    height: float
    lines: tuple[Line, ...]
    upright: bool = True


def is_cjk(character: str) -> bool:
    """Tell whether a character belongs to a script that is written without spaces (or to its punctuation).

    Hangul is written with spaces, but lines break inside its words.
    """
    return _CJK_LETTER.match(character) is not None


def read_page(page: Any) -> Page:
    """Read the lines of a ``pymupdf.Page``."""
    import pymupdf

    flags = pymupdf.TEXT_PRESERVE_WHITESPACE | pymupdf.TEXT_MEDIABOX_CLIP
    content = page.get_text("dict", flags=flags)
    raw = [line for block in content["blocks"] for line in block.get("lines", ())]
    ways: Counter[tuple[int, int]] = Counter()
    for line in raw:
        ways[_way(line["dir"])] += sum(len(span["text"]) for span in line["spans"])
    way = max(ways, key=lambda candidate: (ways[candidate], candidate), default=(1, 0))
    width, height = float(content["width"]), float(content["height"])
    if way[0] == 0:
        width, height = height, width
    lines: dict[Line, None] = {}
    aside: list[Line] = []
    for line in raw:
        read = _read_line(line, way, width, height)
        if read is None:
            continue
        if _way(line["dir"]) == way:
            lines[read] = None
        else:
            aside.append(read)
    kept = _without_shadows(lines)
    # Text that runs another way than its page (stamps in the margin, labels of axes) is read last.
    bottom = max((line.y1 for line in kept), default=0.0)
    for line in aside:
        bottom += 3 * line.size
        kept.append(replace(line, x0=0.0, x1=len(line.text) * line.size / 2, y0=bottom, y1=bottom + line.size))
    return Page(width, height, tuple(kept), upright=way == (1, 0))


def _way(direction: Sequence[float]) -> tuple[int, int]:
    x, y = direction
    if abs(x) >= abs(y):
        return (1, 0) if x >= 0 else (-1, 0)
    return (0, 1) if y > 0 else (0, -1)


def _turn(box: Sequence[float], way: tuple[int, int], width: float, height: float) -> tuple[float, ...]:
    """Turn a box so that ``way`` becomes "to the right"; width and height are those after turning."""
    x0, y0, x1, y1 = box
    match way:
        case (0, 1):
            return y0, height - x1, y1, height - x0
        case (0, -1):
            return width - y1, x0, width - y0, x1
        case (-1, 0):
            return width - x1, height - y1, width - x0, height - y0
    return x0, y0, x1, y1


def _read_line(line: dict[str, Any], way: tuple[int, int], width: float, height: float) -> Line | None:
    spans = [span for span in line["spans"] if span["text"].strip()]
    if not spans:
        return None
    raw = "".join(span["text"] for span in line["spans"])
    text = _SPACE.sub(" ", _CONTROL.sub("", raw)).strip()
    text = _SYMBOL_BULLET.sub("• ", _LEADERS.sub(" … ", text).strip())
    if not text:
        return None
    letters = sum(len(span["text"].strip()) for span in spans)
    sizes: Counter[float] = Counter()
    bold = monospaced = 0
    for span in spans:
        count = len(span["text"].strip())
        sizes[round(span["size"] * 2) / 2] += count
        bold += count if span["flags"] & _BOLD_FLAG or _BOLD_NAME.search(span["font"]) else 0
        monospaced += count if span["flags"] & _MONOSPACED_FLAG else 0
    x0, y0, x1, y1 = _turn(line["bbox"], way, width, height)
    return Line(
        text=text,
        x0=x0,
        y0=y0,
        x1=x1,
        y1=y1,
        size=max(sizes, key=lambda size: (sizes[size], size)),
        bold=bold > 0.9 * letters,
        monospaced=monospaced > 0.9 * letters,
        soft_hyphen=raw.rstrip().endswith("\u00ad"),
    )


def _without_shadows(lines: Iterable[Line]) -> list[Line]:
    """Drop lines printed twice in nearly the same place, which is how some programs make bold type."""
    seen: defaultdict[str, list[Line]] = defaultdict(list)
    kept = []
    for line in lines:
        if any(abs(line.x0 - other.x0) < 2 and abs(line.y0 - other.y0) < 2 for other in seen[line.text]):
            continue
        seen[line.text].append(line)
        kept.append(line)
    return kept


def without_furniture(pages: Sequence[Page]) -> list[Page]:
    """Remove running headers, footers and page numbers.

    A line is one of them if (numbers aside) the same words stand in the same place of the upper or lower eighth on
    three pages that are near each other, on both of two; if it opens or closes half of the pages; or if it is
    nothing but the number of its page. Where most pages have such a line, what stands beside it on the others (a
    chapter's name) goes too.
    """
    places: defaultdict[tuple[bool, str], list[tuple[int, Line]]] = defaultdict(list)
    for number, page in enumerate(pages):
        for line in page.lines:
            if _in_margin(line, page):
                places[line.y0 > page.height / 2, _DIGITS.sub("#", line.text)].append((number, line))
    furniture: set[tuple[int, Line]] = set()
    repeats = min(_MIN_REPEATS, max(2, sum(1 for page in pages if page.lines)))
    for found in places.values():
        if len(found) < repeats:
            continue
        place = statistics.median_low(line.y0 for _, line in found)
        same = [(number, line) for number, line in found if abs(line.y0 - place) <= _SAME_PLACE]
        numbers = sorted({number for number, _ in same})
        near = sum(1 for a, b in itertools.pairwise(numbers) if b - a <= 2)
        if len(numbers) >= repeats and 2 * near >= len(numbers) - 1:
            furniture.update(same)
    furniture |= _repeated_ends(pages, repeats)
    rows: Counter[int] = Counter()
    for _, height in {(number, round(line.y0 / _SAME_PLACE)) for number, line in furniture}:
        rows[height] += 1
    ruled = {height for height, count in rows.items() if count >= max(repeats, 0.6 * len(pages))}
    return [
        replace(
            page,
            lines=tuple(
                line
                for line in page.lines
                if (number, line) not in furniture
                and not (
                    _in_margin(line, page)
                    and (round(line.y0 / _SAME_PLACE) in ruled or _is_page_number(line.text, number + 1, len(pages)))
                )
            ),
        )
        for number, page in enumerate(pages)
    ]


def _repeated_ends(pages: Sequence[Page], repeats: int) -> set[tuple[int, Line]]:
    """Find footers that follow the text directly, wherever it ends, and headers likewise."""
    ends: defaultdict[tuple[bool, str], list[tuple[int, Line]]] = defaultdict(list)
    for number, page in enumerate(pages):
        if len(page.lines) < 2:
            continue
        ordered = sorted(page.lines, key=lambda line: line.middle)
        for line, neighbour in ((ordered[0], ordered[1]), (ordered[-1], ordered[-2])):
            if abs(line.middle - neighbour.middle) > 0.5 * line.size:
                ends[line is ordered[0], _DIGITS.sub("#", line.text)].append((number, line))
    return {place for found in ends.values() if len(found) >= max(repeats, 0.5 * len(pages)) for place in found}


def _in_margin(line: Line, page: Page) -> bool:
    return line.y1 < _MARGIN_SHARE * page.height or line.y0 > (1 - _MARGIN_SHARE) * page.height


def _is_page_number(text: str, number: int, pages: int) -> bool:
    match = _PAGE_NUMBER.fullmatch(text)
    if match is None or int(match[1]) != number:
        return False
    return int(match[2]) == pages if match[2] else pages > 1
