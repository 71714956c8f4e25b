"""The rows of a PDF's columns to blocks: paragraphs, list items, code and tables, across columns and pages.

A PDF holds lines, not paragraphs. Where one ends is told by what a typesetter does at its end: more space, an indent,
a line that stops short, another size or weight, a list's marker.
"""

from __future__ import annotations

import itertools
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from tasks.load.pdf_layout import Row, columns, rows
from tasks.load.pdf_lines import Line, Page, is_cjk
from tasks.load.pdf_tables import MARKER, Table, aligned_tables, join_lines, merge_cells

_SENTENCE_END = re.compile(r"[.!?:;。！？：；…][\"'”’»)\]）】」』]*$")
_NUMBER_LABEL = re.compile(r"(?:[A-Z][a-z]+ )?(?:\d+[A-Z]?(?:\.\d+)*|[IVX]+|[A-Z])[.:]?")
_CONTENTS_ENTRY = re.compile(r"… ?(?:\d{1,4}|[ivxlc]{1,6})$")
_LIST_ITEM = re.compile(rf"{MARKER.pattern}\s+\S")


@dataclass(frozen=True, slots=True)
class Placed:
    """A line of text, and the number (from 0) of the page that it stands on."""

    line: Line
    page: int


@dataclass(slots=True)
class Block:
    """What stands between two blank lines of the text. A table's Markdown is one line of it."""

    kind: Literal["prose", "code", "table"]
    lines: list[Placed]
    width: tuple[float, float] = field(default=(0.0, 0.0))

    @property
    def first(self) -> Line:
        return self.lines[0].line

    @property
    def last(self) -> Line:
        return self.lines[-1].line


def is_list_item(text: str) -> bool:
    """Tell whether a line begins with a bullet or an enumerator."""
    return _LIST_ITEM.match(text) is not None


def blocks(pages: Sequence[Page], tables: Sequence[Sequence[Table]]) -> list[Block]:
    """Divide the text of all pages into blocks in reading order.

    Args:
        pages: without running headers and footers.
        tables: the ruled tables of each page.
    """
    monospaced = [line.monospaced for page in pages for line in page.lines]
    typewritten = sum(monospaced) > 0.5 * len(monospaced)  # then a fixed pitch means nothing
    result: list[Block] = []
    for number, page in enumerate(pages):
        for column in columns(_with_tables(page, tables[number])):
            found = _column_blocks(column, number, tables[number], code=not typewritten)
            if found and result and _goes_on(result[-1], found[0]):
                result[-1].lines.extend(found[0].lines)
                result[-1].width = found[0].width
                found = found[1:]
            result.extend(found)
    return result


def _with_tables(page: Page, tables: Sequence[Table]) -> list[Line]:
    """Put each ruled table in the place of the lines that stand inside it."""
    lines = [
        line
        for line in page.lines
        if not any(
            table.y0 - 1 <= line.middle <= table.y1 + 1 and table.x0 - 1 <= (line.x0 + line.x1) / 2 <= table.x1 + 1
            for table in tables
        )
    ]
    size = statistics.median(line.size for line in page.lines) if page.lines else 10.0
    lines.extend(Line(table.markdown, table.x0, table.y0, table.x1, table.y1, size) for table in tables)
    return lines


def _column_blocks(column: Sequence[Line], page: int, tables: Sequence[Table], *, code: bool) -> list[Block]:
    ruled = {table.markdown for table in tables}
    merged = [row if row.cells[0].text in ruled else merge_cells(row) for row in rows(column)]
    if code:
        merged = [_one_line(row) if all(cell.monospaced for cell in row.cells) else row for row in merged]
    result: list[Block] = []
    at = 0
    for start, end, markdown in aligned_tables(merged):
        result.extend(_paragraphs(merged[at:start], page, ruled, code=code))
        cells = [cell for row in merged[start:end] for cell in row.cells]
        result.append(Block("table", [Placed(_boxed(markdown, cells), page)]))
        at = end
    result.extend(_paragraphs(merged[at:], page, ruled, code=code))
    return result


def _boxed(text: str, cells: Sequence[Line]) -> Line:
    return Line(
        text,
        min(cell.x0 for cell in cells),
        min(cell.y0 for cell in cells),
        max(cell.x1 for cell in cells),
        max(cell.y1 for cell in cells),
        size=statistics.median(cell.size for cell in cells),
    )


def _paragraphs(found: Sequence[Row], page: int, ruled: set[str], *, code: bool) -> list[Block]:
    lines = [_as_line(row) for row in found]
    if not lines:
        return []
    prose = [line for line in lines if line.text not in ruled]
    width = (min((line.x0 for line in prose), default=0.0), max((line.x1 for line in prose), default=0.0))
    pitch = _line_pitch(prose)
    typical = statistics.median(line.size for line in prose) if prose else 0.0
    result: list[Block] = []
    for line in lines:
        placed = Placed(line, page)
        if line.text in ruled:
            result.append(Block("table", [placed]))
        elif code and line.monospaced:
            if result and result[-1].kind == "code" and line.y0 - result[-1].last.y1 < 2 * line.size:
                result[-1].lines.append(placed)
            else:
                result.append(Block("code", [placed], width))
        elif result and result[-1].kind == "prose" and not _breaks(result[-1], line, pitch, typical):
            result[-1].lines.append(placed)
        else:
            result.append(Block("prose", [placed], width))
    return result


def _one_line(row: Row) -> Row:
    """Join the pieces of a line of code with as many spaces as there is room for."""
    first, *others = row.cells
    for cell in others:
        advance = max(1.0, (cell.x1 - cell.x0) / len(cell.text))
        gap = " " * max(1, round((cell.x0 - first.x1) / advance))
        first = replace(first, text=first.text + gap + cell.text, x1=max(first.x1, cell.x1))
    return Row((first,))


def _as_line(row: Row) -> Line:
    first, *others = row.cells
    scattered = len(others) > 1 or (len(others) == 1 and not _NUMBER_LABEL.fullmatch(first.text))
    for cell in others:
        first = join_lines(first, cell)
    return replace(first, scattered=scattered)


def _line_pitch(lines: Sequence[Line]) -> float:
    """Return the usual distance between the lines of a paragraph, in units of the type size."""
    steps = [
        (below.middle - above.middle) / above.size
        for above, below in itertools.pairwise(lines)
        if abs(below.size - above.size) < 0.1 * above.size
        and 0.5 * above.size < below.middle - above.middle < 2.5 * above.size
    ]
    return min(1.9, max(1.0, statistics.median_low(steps))) if len(steps) >= 2 else 1.4


def _breaks(block: Block, line: Line, pitch: float, typical: float) -> bool:
    """Tell whether a new paragraph begins with ``line``."""
    last, size = block.last, block.last.size
    # The lines of a title stand wider apart than those of the text that the pitch was measured on.
    step = (1.7 if size > 1.2 * typical else 1.3) * pitch * size
    if abs(line.size - size) > 0.07 * size or line.middle - last.middle > step or line.y0 < last.y0:
        return True
    if _CONTENTS_ENTRY.search(last.text):
        return True
    if line.bold != last.bold and (last.bold or len(block.lines) > 1 or line.bold):
        return True
    if is_list_item(line.text):
        return True
    ended = _SENTENCE_END.search(last.text) is not None
    left, right = block.width
    em = 0.8 * size
    if line.x0 > left + em and abs(line.x0 + line.x1 - last.x0 - last.x1) < em:
        return ended  # set about one middle: a title, a caption
    listed = is_list_item(block.first.text)
    if line.x0 > last.x0 + em and not (listed and len(block.lines) == 1):
        # An indent begins a paragraph, unless all of it stands in the middle of the column.
        return ended or last.x0 < left + em
    if line.x0 < last.x0 - em and (len(block.lines) > 1 or (listed and line.x0 < block.first.x0 + em)):
        return True
    room = right - last.x1
    return room > 0.4 * (right - left) or (ended and room > max(4 * size, 0.15 * (right - left)))


def _goes_on(block: Block, following: Block) -> bool:
    """Tell whether a paragraph cut by the end of a column or page goes on in the next one."""
    last, first = block.last, following.first
    if block.kind != "prose" or following.kind != "prose" or abs(last.size - first.size) > 0.06 * last.size:
        return False
    if last.bold != first.bold or is_list_item(first.text) or _SENTENCE_END.search(last.text):
        return False
    left, right = block.width
    room = (right - last.x1) / max(1.0, right - left)
    if room > 0.2:
        return False
    # A line that is its column's only one says nothing about the column's width.
    return (
        (room < 0.05 and len(block.lines) > 1)
        or first.text[0].islower()
        or last.text[-1] in "-\u2010,，、"
        or (is_cjk(first.text[0]) and is_cjk(last.text[-1]))
    )


def joint(above: str, below: str, soft_hyphen: bool, known: Iterable[str]) -> tuple[int, str]:
    """Return how two lines of a paragraph are joined: characters to cut from the upper one, and what goes between.

    A hyphen at the end of a line belongs to the word where the document writes the word so elsewhere (``known``:
    its hyphenated words in lower case), else it is the typesetter's.
    """
    if soft_hyphen:
        return 0, ""
    if above[-1] in "-\u2010" and len(above) > 1 and above[-2].isalpha() and below[0].islower():
        head = re.search(r"[^\W\d_][\w\-\u2010]*$", above)
        tail = re.match(r"[\w\-\u2010]+", below)
        word = f"{head[0] if head else ''}{tail[0] if tail else ''}".lower().replace("\u2010", "-")
        return (0, "") if word in known or (head and "-" in head[0][:-1]) else (1, "")
    if above[-1] in "-\u2010/" and below[0].isalnum() and above[-2:-1].isalnum():
        return 0, ""
    # Hangul lines break inside words as well as between them: nothing tells which, and a space keeps words apart.
    hangul = "\uac00" <= above[-1] <= "\ud7af" or "\uac00" <= below[0] <= "\ud7af"
    return (0, "") if is_cjk(above[-1]) and is_cjk(below[0]) and not hangul else (0, " ")
