"""PDF: the text of its pages as Markdown, in reading order, with the offset at which each page begins.

PyMuPDF below 2.0 (AGPL-3.0 or commercial) reads the file. Damaged files that MuPDF could repair are loaded and
flagged ``repaired``, and ``damaged`` where MuPDF reported parts that it could not read.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from schemas.documents import LoadedDocument, Metadata
from schemas.errors import PermanentError
from tasks.load.language import language_of
from tasks.load.normalisation import language_code, normalise, title_of
from tasks.load.pdf_blocks import Block, blocks, is_list_item, joint
from tasks.load.pdf_headings import OutlineEntry, heading_levels
from tasks.load.pdf_lines import Page, read_page, without_furniture
from tasks.load.pdf_tables import Table, ruled_tables

REPAIRED = "repaired"
DAMAGED = "damaged"

_MIN_TABLE_LINES = 4

_NO_TITLE = re.compile(
    r"untitled.*|title|document\s*\d*|no title|microsoft (?:word|powerpoint|excel) - .*|powerpoint presentation"
    r"|.*\.(?:docx?|pptx?|xlsx?|pdf|tex|dvi|indd|qxd|rtf|odt|ps|eps|fm|p65|txt|html?)|[\d\W_]+|\S*\d\S*|slide \d+"
    r"|print(?:ing)?|layout \d+|arxiv:.*|.{0,2}",
    re.IGNORECASE,
)
# MuPDF's words for what is lost; it goes on reading after each. (Broken cross references are repaired without loss.)
_LOSS = re.compile(
    r"cannot (?:load|parse) |not a stream|non-page object|premature end|zlib error|page may not be correct"
    r"|error in content stream|corrupt object|ignoring broken object|read error"
)
# PyMuPDF supports one thread at a time, and MuPDF's messages are those of the process.
_ONE_AT_A_TIME = threading.Lock()
_MARKUP = re.compile(r"^(\s{0,3})(#{1,6}(?:\s|$)|`{3}|~{3})")
_BULLET = re.compile(r"[•●▪■◦○‣⁃∙·➢✓✔►\ufffd\ue000-\uf8ff*–—-]\s+(?=\S)")
_HYPHENATED = re.compile(r"[^\W\d_][\w]*(?:-[\w]+)+")


def load_pdf(data: bytes, uri: str, max_pages: int) -> LoadedDocument:
    """Load a PDF.

    Raises:
        PermanentError: password-protected, broken beyond repair, more than ``max_pages``, or a scan without text.
    """
    with _ONE_AT_A_TIME:
        return _open(data, uri, max_pages)


def _open(data: bytes, uri: str, max_pages: int) -> LoadedDocument:
    import pymupdf

    pymupdf.TOOLS.mupdf_display_errors(False)
    pymupdf.TOOLS.mupdf_display_warnings(False)
    pymupdf.TOOLS.reset_mupdf_warnings()
    pymupdf.no_recommend_layout()  # else find_tables advertises another package on stdout
    try:
        document = pymupdf.open(stream=data, filetype="pdf")
    except _errors() as error:
        raise _broken(uri, error) from error
    with document:
        if document.needs_pass:
            raise PermanentError(
                "the PDF is protected with a password", document=uri, hint="save a copy without the password"
            )
        try:
            count = document.page_count
            if count == 0:
                raise PermanentError("the PDF has no pages", document=uri, hint="export it again from its source")
            if count > max_pages:
                raise PermanentError(
                    f"{count:,} pages are more than load.max_pages = {max_pages:,}",
                    document=uri,
                    hint="divide the file, or raise load.max_pages",
                )
            return _load(document, uri)
        except _errors() as error:
            raise _broken(uri, error) from error


def _errors() -> tuple[type[Exception], ...]:
    """Return what PyMuPDF raises on damaged files: its own errors (RuntimeError), MuPDF's, and plain Python ones."""
    from pymupdf import mupdf

    return (
        RuntimeError,
        ValueError,
        AssertionError,
        TypeError,
        IndexError,
        KeyError,
        ArithmeticError,
        mupdf.FzErrorBase,
    )


def _broken(uri: str, error: Exception) -> PermanentError:
    return PermanentError(
        f"the PDF is broken beyond repair ({type(error).__name__}: {error})",
        document=uri,
        hint="export it again from its source",
    )


def _load(document: Any, uri: str) -> LoadedDocument:
    import pymupdf

    pages, tables, page_flags = _read_pages(document)
    messages = pymupdf.TOOLS.mupdf_warnings()
    if not any(page.lines for page in pages):
        raise PermanentError(
            "no page has a text layer; scans are not read, since OCR is not supported yet",
            document=uri,
            hint="run OCR on the file first (for example `ocrmypdf in.pdf out.pdf`)",
        )
    found = blocks(without_furniture(pages), tables)
    levels = heading_levels(found, _outline(document))
    words = {word for page in pages for line in page.lines for word in _HYPHENATED.findall(line.text.lower())}
    writer = _Writer(len(pages), words)
    for index, block in enumerate(found):
        writer.write(block, levels.get(index))
    text, offsets = writer.finish()
    flags = [REPAIRED] if document.is_repaired else []
    if _LOSS.search(messages):
        flags.append(DAMAGED)
    flags.extend(page_flags)
    if unmapped := text.count("\ufffd"):
        flags.append(f"undecodable:{unmapped}")
    if 2 * unmapped > len(text):
        raise PermanentError(
            "most letters of the text layer have no Unicode value", document=uri, hint="run OCR on the file first"
        )
    # No date: CreationDate and ModDate are the clock of the program that wrote the file.
    metadata = Metadata(
        type="pdf",
        title=_title(document, found, levels),
        language=language_of(language_code(_catalog_language(document)), text),
    )
    return LoadedDocument(text=text, metadata=metadata, pages=offsets, flags=tuple(flags))


def _read_pages(document: Any) -> tuple[list[Page], list[list[Table]], list[str]]:
    """Read the lines and ruled tables of all pages; a page that MuPDF cannot read stays empty. The last are flags."""
    pages: list[Page] = []
    tables: list[list[Table]] = []
    unreadable = scanned = tables_unreadable = 0
    for number in range(document.page_count):
        read, found = Page(0.0, 0.0, ()), list[Table]()
        try:
            page = document.load_page(number)
            read = read_page(page)
            scanned += not read.lines and bool(document.get_page_images(number))
        except _errors():
            unreadable += 1
        if read.upright and len(read.lines) >= _MIN_TABLE_LINES:
            try:
                found = ruled_tables(page)
            except _errors():
                tables_unreadable += 1  # its lines are text all the same
        pages.append(read)
        tables.append(found)
    if unreadable == document.page_count:
        raise RuntimeError("no page can be read")
    counts = {
        "pages-without-text": scanned,
        "pages-unreadable": unreadable,
        "tables-unreadable": tables_unreadable,
    }
    return pages, tables, [f"{name}:{count}" for name, count in counts.items() if count]


def _outline(document: Any) -> list[OutlineEntry]:
    return [OutlineEntry(level, title, page - 1) for level, title, page in document.get_toc(simple=True) if page >= 1]


def _catalog_language(document: Any) -> str | None:
    kind, value = document.xref_get_key(document.pdf_catalog(), "Lang")
    return value if kind == "string" else None


def _title(document: Any, found: Sequence[Block], levels: dict[int, int]) -> str | None:
    """Return the title of the metadata where it is one, else the heading that opens the document: the one of the
    highest level on the first page with any, if it is alone there, else the first."""
    stated = title_of((document.metadata or {}).get("title"))
    if stated is not None and not _NO_TITLE.fullmatch(stated) and "\ufffd" not in stated:
        return stated
    if not levels:
        return None
    page = found[min(levels)].lines[0].page
    here = {index: level for index, level in sorted(levels.items()) if found[index].lines[0].page == page}
    highest = [index for index, level in here.items() if level == min(here.values())]
    return title_of(_joined(found[highest[0] if len(highest) == 1 else min(here)]))


def _joined(block: Block) -> str:
    writer = _Writer(block.lines[-1].page + 1)
    writer.write(block, None)
    return writer.finish()[0]


class _Writer:
    """Puts blocks into one text and notes where pages begin."""

    def __init__(self, pages: int, hyphenated: AbstractSet[str] = frozenset()) -> None:
        self._hyphenated = hyphenated
        self._pieces: list[str] = []
        self._length = 0
        self._begins: list[int | None] = [None] * pages
        self._last: Block | None = None

    def _put(self, piece: str) -> None:
        self._pieces.append(piece)
        self._length += len(piece)

    def _begin(self, page: int) -> None:
        if self._begins[page] is None:
            self._begins[page] = self._length

    def write(self, block: Block, level: int | None) -> None:
        """Append a block; ``level`` makes it a heading."""
        if self._last is not None:
            tight = self._is_item(self._last) and self._is_item(block)
            self._put("\n" if tight else "\n\n")
        self._last = block
        self._begin(block.lines[0].page)
        if block.kind == "table":
            self._put(normalise(block.first.text))
        elif block.kind == "code":
            self._code(block)
        else:
            self._prose(block, level)

    @staticmethod
    def _is_item(block: Block) -> bool:
        return block.kind == "prose" and is_list_item(block.first.text)

    def _code(self, block: Block) -> None:
        left = min(placed.line.x0 for placed in block.lines)
        fence = "```"
        while any(fence in placed.line.text for placed in block.lines):
            fence += "`"
        self._put(f"{fence}\n")
        for placed in block.lines:
            self._begin(placed.page)
            line = placed.line
            advance = max(1.0, (line.x1 - line.x0) / len(line.text))
            self._put(" " * round((line.x0 - left) / advance) + normalise(line.text) + "\n")
        self._put(fence)

    def _prose(self, block: Block, level: int | None) -> None:
        texts = [normalise(placed.line.text) for placed in block.lines]
        if level is not None:
            self._put("#" * level + " ")
        else:
            texts[0] = _MARKUP.sub(
                r"\1\\\2", _BULLET.sub("- ", texts[0], count=1) if _BULLET.match(texts[0]) else texts[0]
            )
        for index, placed in enumerate(block.lines):
            self._begin(placed.page)
            text = texts[index]
            if index + 1 < len(texts):
                cut, between = joint(text, texts[index + 1], placed.line.soft_hyphen, self._hyphenated)
                text = text[: len(text) - cut] + between
            self._put(text)

    def finish(self) -> tuple[str, tuple[int, ...]]:
        """Return the text and the offset of each page; a page without text begins where the next one does."""
        if self._length:
            self._put("\n")
        offsets: list[int] = []
        following = self._length
        for begin in reversed(self._begins):
            following = following if begin is None else begin
            offsets.append(following)
        offsets.reverse()
        if offsets:
            offsets[0] = 0
        return "".join(self._pieces), tuple(offsets)
