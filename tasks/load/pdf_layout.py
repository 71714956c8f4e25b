"""Reading order: the lines of a page to columns, each read from top to bottom, and the rows of each column.

The page is parted at the gutter that has most words on both sides of it. Lines across the gutter (titles, wide
figures' captions) part the page into bands; a band with prose on both sides is read left column first, and each
column is looked at in the same way again. Where a side holds no prose (numbers, labels) the band is a table or a
form, and is read in rows.
"""

from __future__ import annotations

import bisect
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from tasks.load.pdf_lines import Line

_MIN_LINES = 3
_MIN_WIDTH_SHARE = 0.2
_MIN_CHARACTERS = 14
_MIN_CJK_CHARACTERS = 7
_GUTTER = 0.35
_MAX_DEPTH = 6


@dataclass(frozen=True, slots=True)
class Row:
    """Lines of one column that stand side by side, from left to right (right to left where the script runs so)."""

    cells: tuple[Line, ...]

    @property
    def y0(self) -> float:
        return min(cell.y0 for cell in self.cells)

    @property
    def y1(self) -> float:
        return max(cell.y1 for cell in self.cells)


def columns(lines: Sequence[Line], depth: int = 0) -> list[list[Line]]:
    """Part lines into columns in reading order. Each is read from top to bottom."""
    ordered = sorted(lines, key=lambda line: (line.y0, line.x0))
    gutter = _gutter(ordered) if depth < _MAX_DEPTH and len(ordered) >= 2 * _MIN_LINES else None
    if gutter is None:
        return [ordered] if ordered else []
    result: list[list[Line]] = []
    rest: list[Line] = []  # what is not in columns, in one piece, so that a table stays together
    band: list[Line] = []

    def close_band() -> None:
        left = [line for line in band if line.x1 <= gutter]
        right = [line for line in band if line.x1 > gutter]
        if _side_by_side(left, right):
            result.extend([rest.copy()] if rest else [])
            rest.clear()
            result.extend(columns(left, depth + 1))
            result.extend(columns(right, depth + 1))
        else:
            rest.extend(band)
        band.clear()

    for line in ordered:
        if line.x0 < gutter < line.x1:
            close_band()
            rest.append(line)
        else:
            band.append(line)
    close_band()
    if rest:
        result.append(rest)
    return result


def _gutter(lines: Sequence[Line]) -> float | None:
    """Return the x of the gap with most characters on its poorer side, or None."""
    typical = statistics.median(line.size for line in lines)
    by_end = sorted(lines, key=lambda line: line.x1)
    by_start = sorted(lines, key=lambda line: line.x0)
    starts = [line.x0 for line in by_start]
    after = [0]
    for line in reversed(by_start):
        after.append(after[-1] + len(line.text))
    after.reverse()  # after[i]: characters of the lines from by_start[i] on
    best: float | None = None
    best_score, before = (0, 0), 0
    for index, line in enumerate(by_end):
        before += len(line.text)
        if index + 1 < len(by_end) and by_end[index + 1].x1 - line.x1 < 0.01:
            continue
        start = bisect.bisect_left(starts, line.x1 + _GUTTER * typical)
        # The sum decides between places that leave the poorer side as it is: nothing should stand across.
        score = (min(before, after[start]), before + after[start])
        if score[0] and score > best_score:
            best_score, best = score, line.x1 + 0.01
    return best


def _side_by_side(left: Sequence[Line], right: Sequence[Line]) -> bool:
    """Tell two columns of prose from a table, by what stands where both have something."""
    if not left or not right:
        return False
    width = max(line.x1 for line in right) - min(line.x0 for line in left)
    top = max(min(line.y0 for line in side) for side in (left, right))
    bottom = min(max(line.y1 for line in side) for side in (left, right))
    for side in (left, right):
        beside = [line for line in side if top <= line.middle <= bottom]
        if len(rows(beside)) < _MIN_LINES:
            return False
        if max(line.x1 for line in side) - min(line.x0 for line in side) < _MIN_WIDTH_SHARE * width:
            return False
        cjk = any("\u2e80" <= line.text[-1] <= "\uffef" for line in beside)
        enough = _MIN_CJK_CHARACTERS if cjk else _MIN_CHARACTERS
        # Counted in characters: bullets and boxes to tick are lines of their own beside the text that they mark.
        long = sum(len(line.text) for line in beside if len(line.text) >= enough)
        if 2 * long < sum(len(line.text) for line in beside):
            return False
    return True


def rows(column: Sequence[Line]) -> list[Row]:
    """Group the lines of a column that overlap by half their height into rows."""
    found: list[list[Line]] = []
    for line in column:
        if found:
            first = found[-1][0]
            overlap = min(first.y1, line.y1) - max(first.y0, line.y0)
            if overlap > 0.5 * min(first.y1 - first.y0, line.y1 - line.y0):
                found[-1].append(line)
                continue
        found.append([line])
    return [Row(tuple(sorted(cells, key=_along, reverse=_runs_left(cells)))) for cells in found]


def _along(line: Line) -> float:
    return line.x0


def _runs_left(cells: Sequence[Line]) -> bool:
    """Tell whether most letters are Hebrew or Arabic."""
    text = "".join(cell.text for cell in cells)
    return 2 * sum("\u0590" <= letter <= "\u08ff" or "\ufb1d" <= letter <= "\ufefc" for letter in text) > len(text)
