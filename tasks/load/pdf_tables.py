"""Tables of a PDF page as Markdown pipe tables.

Two kinds: *ruled* tables, whose lines MuPDF's find_tables reads (slow: it is asked only where a page has both
horizontal and vertical rules), and *aligned* tables, which are nothing but cells that stand below each other (the
financial statements of this world): found here among the rows of a column.
"""

from __future__ import annotations

import itertools
import re
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.load.pdf_layout import Row
from tasks.load.pdf_lines import Line, is_cjk

_CELL_GAP = 1.0
_MIN_ROWS = 3
_MAX_CELL = 80
_MAX_HEADER_ROWS = 4
_MAX_LONE = 3
_RULE = 1.5
_LINE_STEP = 1.5
_MIN_RULE = 12.0
_SHADING = 0.8
_MAX_RULES = 400
_PREFIX = re.compile(r"[$€£¥₹(]|US\$|RMB|USD")
_SUFFIX = re.compile(r"[)%]|\)%|bps|pts")
MARKER = re.compile(r"(?:[•●▪■◦○‣⁃∙·➢✓✔►\ufffd\ue000-\uf8ff*–—-]|\(?\d{1,3}[.)]|\(?(?:[A-Za-z]|[ivxIVX]{1,5})\))")
_NUMBER = re.compile(r"[-–—(+$€£¥]*\s*\d[\d.,\s]*\s*[)%‰]*\s*[A-Za-z%]{0,3}|[-–—]+|n/?a", re.IGNORECASE)
_YEAR = re.compile(r"(?:19|20)\d\d")


@dataclass(frozen=True, slots=True)
class Table:
    """A table and where it stands."""

    markdown: str
    x0: float
    y0: float
    x1: float
    y1: float


def markdown_table(grid: Sequence[Sequence[str]]) -> str:
    """Return a pipe table (GitHub Flavored Markdown); the first row is its header."""
    head, *body = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in grid]
    return "\n".join([head, "|" + " --- |" * len(grid[0]), *body])


# --- ruled ---------------------------------------------------------------------------------------------------


def ruled_tables(page: Any) -> list[Table]:
    """Return the tables of a ``pymupdf.Page`` that have both horizontal and vertical rules."""
    if not _has_grid(page):
        return []
    tables = []
    for found in page.find_tables(strategy="lines").tables:
        grid = [[" ".join((cell or "").split()) for cell in row] for row in found.extract()]
        grid = [row for row in grid if any(row)]
        filled = [index for index in range(max(map(len, grid), default=0)) if any(row[index] for row in grid)]
        grid = [[row[index] for index in filled] for row in grid]
        # One row or column is a box around text; a grid that is mostly empty is the frame of a drawing.
        if (
            len(grid) < 2
            or len(filled) < 2
            or sum(1 for row in grid for cell in row if cell) < 0.3 * len(grid) * len(filled)
        ):
            continue
        tables.append(Table(markdown_table(grid), *map(float, found.bbox)))
    return tables


def _has_grid(page: Any) -> bool:
    across: set[int] = set()
    down: set[int] = set()
    for drawing in page.get_cdrawings():
        fill = drawing.get("fill") if drawing.get("type") == "f" else None
        if fill is not None and sum(fill) > _SHADING * len(fill):
            continue  # every second row of a statement is shaded; that is no grid
        for item in drawing["items"]:
            if item[0] == "l":
                (x0, y0), (x1, y1) = item[1], item[2]
            elif item[0] == "re":
                x0, y0, x1, y1 = item[1]
                if drawing.get("type") != "f":  # a stroked box: four rules
                    across.update((round(y0), round(y1)))
                    down.update((round(x0), round(x1)))
                    continue
            else:
                continue
            if abs(y1 - y0) <= _RULE and abs(x1 - x0) >= _MIN_RULE:
                across.add(round(y0))
            elif abs(x1 - x0) <= _RULE and abs(y1 - y0) >= _MIN_RULE / 2:
                down.add(round(x0))
    # More rules than any table has are a chart or a map, and find_tables takes minutes for them.
    return len(across) >= _MIN_ROWS and len(down) >= 2 and len(across) + len(down) <= _MAX_RULES


# --- aligned -------------------------------------------------------------------------------------------------


def merge_cells(row: Row) -> Row:
    """Join what MuPDF parted inside a cell: words, a list's marker and its text, a currency sign and its number."""
    merged: list[Line] = []
    for cell in row.cells:
        if merged:
            last = merged[-1]
            gap = max(cell.x0 - last.x1, last.x0 - cell.x1)
            if (
                (gap < _CELL_GAP * min(last.size, cell.size) and not _PREFIX.fullmatch(cell.text))
                or _PREFIX.fullmatch(last.text)
                or _SUFFIX.fullmatch(cell.text)
                or (len(merged) == 1 and MARKER.fullmatch(last.text))
            ):
                merged[-1] = join_lines(last, cell)
                continue
        merged.append(cell)
    return Row(tuple(merged))


def join_lines(left: Line, right: Line) -> Line:
    """Join two pieces of a row, with a space where there was room for one."""
    tight = right.x0 - left.x1 < 0.15 * right.size or _PREFIX.fullmatch(left.text) or _SUFFIX.fullmatch(right.text)
    longer = max(left, right, key=lambda line: len(line.text))
    return Line(
        text=left.text + ("" if tight and right.x0 >= left.x0 else " ") + right.text,
        x0=min(left.x0, right.x0),
        y0=min(left.y0, right.y0),
        x1=max(left.x1, right.x1),
        y1=max(left.y1, right.y1),
        size=longer.size,
        bold=left.bold and right.bold,
        monospaced=left.monospaced and right.monospaced,
        soft_hyphen=right.soft_hyphen,
    )


def aligned_tables(rows: Sequence[Row]) -> list[tuple[int, int, str]]:
    """Return (first row, row after the last, Markdown) of each aligned table among the merged rows of a column."""
    tables = []
    start = 0
    while start < len(rows):
        if len(rows[start].cells) < 2:
            start += 1
            continue
        end = _run_end(rows, start)
        markdown = _aligned(rows[start:end])
        if markdown is not None:
            tables.append((start, end, markdown))
        start = max(end, start + 1)
    return tables


def _run_end(rows: Sequence[Row], start: int) -> int:
    """Return the row after a run of rows with several cells. Lone labels between two such rows belong to it."""
    end = start + 1
    lone = 0
    reach = rows[start].cells[-1].x0
    for index in range(start + 1, len(rows)):
        row, above = rows[index], rows[index - 1]
        if row.y0 - above.y1 > 2.5 * (above.y1 - above.y0):
            break
        if len(row.cells) > 1:
            end, lone = index + 1, 0
        elif lone == _MAX_LONE or row.cells[0].x1 > reach:
            break
        else:
            lone += 1
    return end


def _aligned(run: Sequence[Row]) -> str | None:
    wide = [row for row in run if len(row.cells) > 1]
    if len(wide) < _MIN_ROWS:
        return None
    most = max(len(row.cells) for row in wide)
    intervals = _merge((cell.x0, cell.x1) for row in wide if len(row.cells) >= max(2, 0.6 * most) for cell in row.cells)
    if len(intervals) < 2:
        return None
    grid = [[""] * len(intervals) for _ in run]
    for line, row in zip(grid, run, strict=True):
        for cell in row.cells:
            for column in _columns_of(
                cell, intervals, spread=not _NUMBER.fullmatch(cell.text) and cell is not row.cells[0]
            ):
                line[column] = f"{line[column]} {cell.text}".strip()
    grid = _without_broken_labels(_without_continuations(grid, run))
    values = [cell for line in grid for cell in line[1:] if cell]
    numbers = sum(1 for cell in values if _NUMBER.fullmatch(cell))
    labels = [line[0] for line in grid if line[0]]
    if not labels or statistics.median(map(len, values)) > _MAX_CELL:
        return None
    if len(intervals) == 2 and min(statistics.median(map(len, side)) for side in (labels, values)) > _MAX_CELL / 2:
        return None  # two columns of prose, too short to have been told apart
    header = 1 + sum(1 for _ in _more_header(grid)) if numbers else 1
    head = [" ".join(filter(None, parts)) for parts in zip(*grid[:header], strict=True)]
    return markdown_table([head, *grid[header:]])


def _without_continuations(grid: list[list[str]], run: Sequence[Row]) -> list[list[str]]:
    """Join the further lines of cells to their first, where rows stand clearly wider apart than lines do."""
    steps = [(b.cells[0].middle - a.cells[0].middle) / a.cells[0].size for a, b in itertools.pairwise(run)]
    wide = [step for step in steps if step > _LINE_STEP]
    if 2 * len(wide) < len(steps) or min(wide, default=0) < 1.2 * max((s for s in steps if s <= _LINE_STEP), default=9):
        return grid
    joined = [grid[0]]
    for line, step in zip(grid[1:], steps, strict=True):
        if step <= _LINE_STEP:
            joined[-1] = [_continued(above, below) for above, below in zip(joined[-1], line, strict=True)]
        else:
            joined.append(line)
    return joined


def _without_broken_labels(grid: list[list[str]]) -> list[list[str]]:
    """Join a label that was broken in two lines, of which only the lower has the row's values."""
    joined: list[list[str]] = []
    for line in grid:
        if joined and line[0][:1].islower() and not any(joined[-1][1:]) and joined[-1][0][-1:].isalnum():
            joined[-1] = [_continued(joined[-1][0], line[0]), *line[1:]]
        else:
            joined.append(line)
    return joined


def _continued(above: str, below: str) -> str:
    if above and below and is_cjk(above[-1]) and is_cjk(below[0]):
        return above + below
    return f"{above} {below}".strip()


def _merge(intervals: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    merged: list[tuple[float, float]] = []
    for x0, x1 in sorted(intervals):
        if merged and x0 <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], x1))
        else:
            merged.append((x0, x1))
    return merged


def _columns_of(cell: Line, intervals: Sequence[tuple[float, float]], *, spread: bool) -> list[int]:
    """Return the columns that a cell stands over; a heading over several belongs to each of them."""
    over = [index for index, (x0, x1) in enumerate(intervals) if min(x1, cell.x1) - max(x0, cell.x0) > 0]
    if not over:
        middle = (cell.x0 + cell.x1) / 2
        return [min(range(len(intervals)), key=lambda index: abs(sum(intervals[index]) / 2 - middle))]
    return over if spread else over[:1]


def _more_header(grid: Sequence[Sequence[str]]) -> Iterator[Sequence[str]]:
    """Yield the rows after the first that still belong to the header: nothing on the left, or only years."""
    for line in grid[1:_MAX_HEADER_ROWS]:
        numbers = [cell for cell in line[1:] if _NUMBER.fullmatch(cell)]
        if line[0] or any(not _YEAR.fullmatch(number.strip()) for number in numbers):
            return
        yield line
