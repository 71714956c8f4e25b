"""An HTML tree to Markdown: headings, paragraphs, lists, tables, quotes and code, each as blocks of lines.

Kept: the structure that chunking reads, code with its lines, links' words. Dropped: links' targets, emphasis, images
(their alternative text stays). Plain words that Markdown would read as a heading or a fence are escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tasks.load.html_furniture import is_invisible

if TYPE_CHECKING:
    from lxml.html import HtmlElement

_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_BLOCK_TAGS = frozenset({
    "address", "article", "aside", "blockquote", "body", "center", "dd", "details", "div", "dl", "dt", "fieldset",
    "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hgroup", "hr", "html",
    "legend", "li", "main", "menu", "nav", "ol", "p", "pre", "search", "section", "summary", "table", "tbody", "td",
    "tfoot", "th", "thead", "tr", "ul",
})  # fmt: skip
_CODE_TAGS = frozenset({"code", "kbd", "samp", "tt"})
_LANGUAGE = re.compile(r"(?:^|\s)(?:language|lang|highlight|highlight-source|brush:)[-\s]?([A-Za-z][\w+#]*)(?:\s|$)")
_PERMALINK = frozenset({"¶", "#", "§", "🔗", "🔗︎", "anchor", "permalink"})
_LOOKS_LIKE_MARKUP = re.compile(r"^(\s{0,3})(#{1,6}(?:\s|$)|`{3}|~{3})", re.MULTILINE)
_SPACE = re.compile(r"[ \t\r\n\f\v]+")
_MAX_SPAN = 100
_LAYOUT_CELL = 200


@dataclass(frozen=True, slots=True)
class HtmlToMarkdown:
    """Renders elements; ``without`` are left out with all below them."""

    without: frozenset[HtmlElement] = frozenset()

    def render(self, element: HtmlElement) -> str:
        """Return the Markdown of ``element``: blocks with a blank line between them, and a line end at the end."""
        text = "\n\n".join(self._blocks(element))
        return f"{text}\n" if text else ""

    def _skipped(self, node: HtmlElement) -> bool:
        return not isinstance(node.tag, str) or node in self.without or is_invisible(node)

    def _blocks(self, parent: HtmlElement) -> Iterator[str]:
        """Yield the blocks below ``parent``; runs of inline content between block elements are paragraphs."""
        run: list[str] = [parent.text or ""]
        for child in parent:
            if not self._skipped(child):
                if child.tag in _BLOCK_TAGS or self._holds_blocks(child):
                    yield from _paragraph(run)
                    run = []
                    yield from self._block(child)
                else:
                    run.append(self._inline(child))
            run.append(child.tail or "")
        yield from _paragraph(run)

    def _holds_blocks(self, element: HtmlElement) -> bool:
        # <span><div>…, <a><h2>…: not valid once, common always.
        return any(isinstance(node.tag, str) and node.tag in _BLOCK_TAGS for node in element.iterdescendants())

    def _block(self, element: HtmlElement) -> Iterator[str]:
        tag = element.tag
        if tag in _HEADINGS:
            words = " ".join(self._heading(element).split())
            if words:
                yield f"{'#' * _HEADINGS[tag]} {words}"
        elif tag == "pre":
            yield from self._code(element)
        elif tag in ("ul", "ol", "menu"):
            yield from self._list(element)
        elif tag == "dl":
            yield from self._definitions(element)
        elif tag == "table":
            yield from self._table(element)
        elif tag == "blockquote":
            quoted = "\n\n".join(self._blocks(element))
            if quoted:
                yield "\n".join(f"> {line}".rstrip() for line in quoted.split("\n"))
        elif tag != "hr":
            yield from self._blocks(element)

    def _heading(self, element: HtmlElement) -> str:
        pieces = [element.text or ""]
        for child in element:
            if not self._skipped(child):
                words = self._inline(child)
                if not (child.tag == "a" and words.strip().lower() in _PERMALINK):
                    pieces.append(words)
            pieces.append(child.tail or "")
        return "".join(pieces).replace("\x1f", " ")

    def _inline(self, element: HtmlElement) -> str:
        """Return inline content; forced line breaks come as U+001F until white space has been folded."""
        if element.tag == "br":
            return "\x1f"
        if element.tag == "img":
            return f" {alt} " if (alt := (element.get("alt") or "").strip()) else ""
        if element.tag in _CODE_TAGS:
            words = " ".join("".join(element.itertext()).split())
            ticks = "`" * (1 + max(map(len, re.findall(r"`+", words)), default=0))
            pad = " " if "`" in words else ""
            return f"{ticks}{pad}{words}{pad}{ticks}" if words else ""
        pieces = [element.text or ""]
        for child in element:
            if not self._skipped(child):
                # A block inside inline content (a cell's paragraphs) still parts words.
                block = child.tag in _BLOCK_TAGS
                pieces.append(f" {self._inline(child)} " if block else self._inline(child))
            pieces.append(child.tail or "")
        return "".join(pieces)

    def _code(self, element: HtmlElement) -> Iterator[str]:
        code = self._verbatim(element).strip("\n").rstrip()
        if not code.strip():
            return
        fence = "`" * max(3, 1 + max(map(len, re.findall(r"`+", code)), default=0))
        yield f"{fence}{_code_language(element)}\n{code}\n{fence}"

    def _verbatim(self, element: HtmlElement) -> str:
        pieces = [element.text or ""]
        for child in element:
            if child.tag == "br":
                pieces.append("\n")
            elif not self._skipped(child):
                code = self._verbatim(child)
                # Highlighters that wrap each line in a block element leave out the line's end.
                pieces.append(code if child.tag not in _BLOCK_TAGS or code.endswith("\n") else f"{code}\n")
            pieces.append(child.tail or "")
        return "".join(pieces).replace("\r\n", "\n").replace("\r", "\n")

    def _list(self, element: HtmlElement) -> Iterator[str]:
        """Yield one block: items on lines of their own, what belongs to an item indented below it."""
        start = element.get("start", "1")
        number = int(start) if start.isdecimal() and len(start) < 9 else 1
        items = []
        for child in element:
            if self._skipped(child):
                continue
            if child.tag in ("ul", "ol", "menu"):  # a list directly in a list: written so by word processors
                inner = "\n".join(self._list(child))
                items.extend([_indent(inner, 2)] if inner else [])
                continue
            marker = f"{number}." if element.tag == "ol" else "-"
            blocks = list(self._blocks(child))
            if not blocks:
                continue
            tight = all(re.match(r"(?:-|\d+\.) ", block) for block in blocks[1:])
            text = ("\n" if tight else "\n\n").join(blocks)
            items.append(f"{marker} {_indent(text, len(marker) + 1).lstrip(' ')}")
            number += 1
        if items:
            yield "\n".join(items)

    def _definitions(self, element: HtmlElement) -> Iterator[str]:
        lines = []
        for node in element.iter("dt", "dd"):
            if self._skipped(node) or node.getparent() in self.without:
                continue
            if next(node.iterancestors("dl")) is not element:
                continue  # of an inner list, rendered with its own term
            text = "\n\n".join(self._blocks(node))
            if text:
                lines.append(text if node.tag == "dt" else f": {_indent(text, 2).lstrip(' ')}")
        if lines:
            yield "\n".join(lines)

    def _table(self, table: HtmlElement) -> Iterator[str]:
        for caption in table.iterchildren("caption"):
            yield from self._blocks(caption)
        rows = [
            [cell for cell in row.iterchildren("td", "th") if not self._skipped(cell)]
            for row in table.iter("tr")
            if next(row.iterancestors("table")) is table and not self._skipped(row)
        ]
        rows = [row for row in rows if row]
        if _is_layout(table, rows):
            for row in rows:
                for cell in row:
                    yield from self._blocks(cell)
            return
        grid = self._grid(rows)
        if grid:
            head, *body = [f"| {' | '.join(row)} |" for row in grid]
            yield "\n".join([head, "|" + " --- |" * len(grid[0]), *body])

    def _grid(self, rows: list[list[HtmlElement]]) -> list[list[str]]:
        """Lay cells out in rows of equal length. A cell over several rows is repeated in each: a row is then
        complete by itself, wherever a chunk begins."""
        grid: list[list[str]] = []
        below: dict[int, tuple[int, str]] = {}
        for row in rows:
            line: list[str] = []

            def hang(line: list[str] = line) -> None:
                while len(line) in below:
                    left, words = below.pop(len(line))
                    if left > 1:
                        below[len(line)] = (left - 1, words)
                    line.append(words)

            for cell in row:
                hang()
                words = " ".join(self._inline(cell).replace("\x1f", " ").split()).replace("|", "\\|")
                down, across = _span(cell, "rowspan"), _span(cell, "colspan")
                for column in range(across):
                    if down > 1:
                        below[len(line)] = (down - 1, words if column == 0 else "")
                    line.append(words if column == 0 else "")
            hang()
            grid.append(line)
        grid = [line for line in grid if any(line)]
        width = max(map(len, grid), default=0)
        return [line + [""] * (width - len(line)) for line in grid]


def _paragraph(run: list[str]) -> Iterator[str]:
    text = _SPACE.sub(" ", "".join(run))
    lines = [line.strip() for line in text.split("\x1f")]
    words = re.sub(r"\n{2,}", "\n\n", "\n".join(lines).strip("\n"))
    if words:
        yield _LOOKS_LIKE_MARKUP.sub(r"\1\\\2", words)


def _indent(text: str, columns: int) -> str:
    return "\n".join(" " * columns + line if line else line for line in text.split("\n"))


def _span(cell: HtmlElement, name: str) -> int:
    value = cell.get(name, "1").strip()
    return min(_MAX_SPAN, max(1, int(value))) if value.isdecimal() and len(value) < 9 else 1


def _is_layout(table: HtmlElement, rows: list[list[HtmlElement]]) -> bool:
    """Tell a table that only places things on the page from one whose rows mean something."""
    if table.get("role") in ("presentation", "none") or all(len(row) == 1 for row in rows):
        return True
    if next(table.iterdescendants("th"), None) is not None:
        return False
    blocks = next(table.iterdescendants("table", "pre", "h1", "h2", "h3", "h4", "h5", "h6", "dl"), None)
    cells = sum(map(len, rows))
    return blocks is not None and len(table.text_content()) > _LAYOUT_CELL * cells


def _code_language(element: HtmlElement) -> str:
    """Return the language that the page's highlighter names in a class, else nothing."""
    for node in (element, *element.iterchildren("code"), element.getparent()):
        if node is not None:
            match = _LANGUAGE.search(node.get("class", ""))
            if match and match[1].lower() not in ("default", "none", "text", "plaintext"):
                return match[1].lower()
    return ""
