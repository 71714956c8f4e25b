"""The structural context: where a chunk stands, in a few words, free and deterministic.

    Title > Heading > Subheading
    Columns: option | default | meaning
    Defines: Client, connect, close

It is embedded and indexed in front of the chunk. It is made of titles, headings, column names and names of
definitions alone: never of a chunk's body, so that an edit elsewhere changes no context, and never of the file's
name, so that a rename changes none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from schemas.documents import Span
from tasks.chunk.titles import plain_title
from tasks.embed.tokenizer import Tokenizer

STRUCTURAL_VERSION = 1
"""Raised whenever the same chunk may get another context."""

_SEPARATOR = " > "
_ATX = re.compile(r" {0,3}#{1,6}(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$")
_UNDERLINE = re.compile(r" {0,3}(?:=+|-+)[ \t]*$")
_DELIMITERS = re.compile(r"[ \t>]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")
_UNESCAPED_BAR = re.compile(r"(?<!\\)\|")


def structural_context(
    title: str | None,
    span: Span,
    chunk: str,
    definitions: Sequence[str],
    tokenizer: Tokenizer,
    limit: int,
    *,
    columns: str | None = None,
) -> str:
    """Return the text that places a chunk in its document.

    Args:
        title: the document's, as it states it.
        span: the chunk's place; its headings.
        chunk: the chunk's text: headings that it begins with are not repeated.
        definitions: names that the document defines, in order.
        tokenizer: of the embedding model.
        limit: most tokens of the result.
        columns: the header row of a table whose later rows are the chunk (``table_headers``).

    Returns:
        Of a path that is too long the middle is dropped: the title and the nearest headings matter most. Empty where
        nothing fits, and where there is nothing to say.
    """

    def fits(text: str) -> bool:
        return tokenizer.count(text) <= limit

    # Half of the room at most is for columns: without its path a table's row says even less.
    told = _fill("Columns: ", _cells(columns or ""), " | ", lambda text: tokenizer.count(text) <= limit // 2)
    path = _place(_path(title, span, chunk), tokenizer, limit - tokenizer.count(told))
    context = ""
    for line in (path, told):
        longer = f"{context}\n{line}".strip()
        context = longer if fits(longer) else context
    head = f"{context}\nDefines: " if context else "Defines: "
    return _fill(head, definitions, ", ", fits) or context


def table_header(text: str, table_start: int) -> str | None:
    """Return the header row of the table that begins on the line of ``table_start``, as "a | b | c".

    Returns:
        None where no table begins there.
    """
    row_start = text.rfind("\n", 0, table_start) + 1
    row_end = _line_end(text, row_start)
    delimiters = text[row_end + 1 : _line_end(text, row_end + 1)]
    row = text[row_start:row_end]
    if "|" not in row or not _is_delimiter_row(delimiters):
        return None
    return " | ".join(_cells(row)) or None


def table_headers(text: str, children: Sequence[Span]) -> list[str | None]:
    """Return, for each child that begins inside a table, that table's header row, else None.

    A child that begins with the header itself needs none. One pass over the text, whatever the tables' lengths.
    """
    headers: list[str | None] = []
    open_header: str | None = None
    previous_end = 0
    for child in children:
        gap = text[previous_end : child.start]
        joined = gap.count("\n") == 1 and open_header is not None and child.kind == "table"
        headers.append(open_header if joined else None)
        open_header = _open_header(text, child, open_header if joined else None)
        previous_end = child.end
    return headers


def _open_header(text: str, child: Span, inherited: str | None) -> str | None:
    """Return the header of the table that is still open where a child ends."""
    if "|" not in text[child.start : child.end]:
        return None
    last_gap = text.rfind("\n\n", child.start, child.end)
    start = child.start if last_gap < 0 else last_gap + 2
    header = inherited if last_gap < 0 else None
    line = start
    while line < child.end:
        header = table_header(text, line) or header
        line = _line_end(text, line) + 1
    return header


def _line_end(text: str, start: int) -> int:
    end = text.find("\n", start)
    return len(text) if end < 0 else end


def _is_delimiter_row(line: str) -> bool:
    return "-" in line and ("|" in line or ":" in line) and _DELIMITERS.match(line) is not None


@lru_cache(maxsize=16)
def _cells(row: str) -> tuple[str, ...]:
    """Return the words of a row's cells; cached, since every chunk of a table asks for the same header."""
    cells = (plain_title(cell.strip()) for cell in _UNESCAPED_BAR.split(row))
    return tuple(cell for cell in cells if cell)


def _path(title: str | None, span: Span, chunk: str) -> list[str]:
    """Return title and headings, without what the chunk itself begins with."""
    headings = [heading for heading in span.breadcrumb if heading]
    begun = {_folded(heading) for heading in _leading_headings(chunk)}
    while headings and _folded(headings[-1]) in begun:
        headings.pop()
    if span.kind == "code" and headings and headings[-1].isidentifier() and _names(chunk, headings[-1]):
        headings.pop()
    title = " ".join((title or "").split())
    repeated = begun | {_folded(heading) for heading in span.breadcrumb[:1]}
    return [title, *headings] if title and _folded(title) not in repeated else headings


def _folded(title: str) -> str:
    return " ".join(title.casefold().split())


def _names(chunk: str, name: str) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", chunk) is not None


def _leading_headings(chunk: str) -> list[str]:
    """Return the titles of the headings that a chunk begins with."""
    lines = [line for line in chunk.split("\n", 40)[:40] if line.strip()]
    found: list[str] = []
    at = 0
    while at < len(lines):
        if match := _ATX.match(lines[at]):
            found.append(plain_title(match[1] or ""))
            at += 1
        elif at + 1 < len(lines) and _UNDERLINE.match(lines[at + 1]):
            found.append(plain_title(lines[at]))
            at += 2
        else:
            break
    return found


def _place(path: list[str], tokenizer: Tokenizer, limit: int) -> str:
    """Join a path, dropping from its middle until it fits."""
    whole = _SEPARATOR.join(path)
    if tokenizer.count(whole) <= limit:
        return whole
    if len(path) == 1:
        return _shorten(path[0], tokenizer, limit)
    # The two ends share the room; what one does not need the other gets.
    room = limit - tokenizer.count(_SEPARATOR)
    first, last = path[0], path[-1]
    short = [
        _shorten(first, tokenizer, max(room // 2, room - tokenizer.count(last))),
        *path[1:-1],
        _shorten(last, tokenizer, max(room // 2, room - tokenizer.count(first))),
    ]
    # In order of worth: the nearest heading, the title (or outermost heading), then outwards from the chunk.
    order = [len(path) - 1, 0, *range(len(path) - 2, 0, -1)]
    kept: list[int] = []
    for at in order:
        if not short[at]:
            continue
        candidate = sorted([*kept, at])
        if tokenizer.count(_SEPARATOR.join(short[i] for i in candidate)) <= limit:
            kept = candidate
    return _SEPARATOR.join(short[i] for i in kept)


def _shorten(entry: str, tokenizer: Tokenizer, limit: int) -> str:
    """Cut an entry at a word (at a token, where it has no spaces) so that it fits with an ellipsis, else ""."""
    if tokenizer.count(entry) <= limit:
        return entry
    starts = tokenizer.starts(entry)
    for tokens in range(min(limit, len(starts) - 1), 0, -1):
        head = entry[: int(starts[tokens])]
        cut = (head.rpartition(" ")[0] or head).rstrip(" ,;:，、；：") + "…"
        if len(cut) > 1 and tokenizer.count(cut) <= limit:
            return cut
    return ""


def _fill(head: str, items: Sequence[str], separator: str, fits: Callable[[str], bool]) -> str:
    """Return ``head`` and as many of the first ``items`` as fit, "" where not even one does."""
    # From small to large: of 20,000 columns or names a handful fits, and nobody tokenises all of them each time.
    low, high = 0, min(1, len(items))
    while low < high and fits(head + separator.join(items[:high])):
        low, high = high, min(2 * high, len(items))
    high = max(low, high - 1)
    while low < high:
        middle = (low + high + 1) // 2
        if fits(head + separator.join(items[:middle])):
            low = middle
        else:
            high = middle - 1
    return head + separator.join(items[:low]) if low else ""
