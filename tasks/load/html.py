"""HTML: the page's content as Markdown, and what its head states."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING

from schemas.documents import LoadedDocument, Metadata
from schemas.errors import PermanentError
from tasks.load.encoding import decode
from tasks.load.html_furniture import find_content
from tasks.load.html_markdown import HtmlToMarkdown
from tasks.load.language import language_of
from tasks.load.normalisation import date_of, language_code, normalise, refuse_binary, title_of

if TYPE_CHECKING:
    from lxml.html import HtmlElement

WHOLE_BODY = "whole-body"
NESTING_CUT = "nesting-cut"
"""libxml2 drops what is nested deeper than 256 elements: a page of unclosed tags loses text, and says so."""

# The WHATWG standard looks for the declaration in the first 1,024 bytes; sites put it later.
_DECLARATION_BYTES = 4_096
_CHARSET = re.compile(rb"<(?:meta|\?xml)[^>]*?(?:charset|encoding)\s*=\s*[\"']?\s*([A-Za-z0-9_:.-]+)", re.IGNORECASE)
_LONG_TAG = re.compile(r"<[A-Za-z][^>]{65536,}+")
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")
_MAX_ATTRIBUTES = 5_000
_DATES = (
    "article:published_time", "datepublished", "dc.date", "dcterms.date", "dcterms.created", "date", "dc.date.issued",
)  # fmt: skip


def load_html(data: bytes, uri: str) -> LoadedDocument:
    """Load an HTML page. Nothing of it is executed or fetched."""
    declared = _CHARSET.search(data[:_DECLARATION_BYTES])
    decoded = decode(data, uri, declared[1].decode("ascii") if declared else None)
    refuse_binary(decoded.text, uri)
    _refuse_attributes(decoded.text, uri)
    root, flags = _parse(normalise(decoded.text), uri)
    if root is None:
        return LoadedDocument(text="", metadata=Metadata(type="html"), flags=(*decoded.flags, *flags))
    title = _title(root)
    content = find_content(root, title)
    renderer = HtmlToMarkdown(content.furniture)
    text = renderer.render(content.region)
    if content.heading is not None:
        text = f"# {' '.join(content.heading.text_content().split())}\n\n{text}"
    text = normalise(text)
    metadata = Metadata(
        type="html",
        title=title,
        language=language_of(language_code(root.get("lang")), text),
        date=_date(root),
    )
    if content.whole_body:
        flags = (*flags, WHOLE_BODY)
    return LoadedDocument(text=text, metadata=metadata, flags=(*decoded.flags, *flags))


def _refuse_attributes(text: str, uri: str) -> None:
    """Raise PermanentError where an element has attributes without end: libxml2 compares each with all before it."""
    for tag in _LONG_TAG.finditer(text):
        attributes = len(_QUOTED.sub("", tag[0]).split())
        if attributes > _MAX_ATTRIBUTES:
            raise PermanentError(
                f"one element has {attributes:,} attributes", document=uri, hint="check how the page was written"
            )


def _parse(text: str, uri: str) -> tuple[HtmlElement | None, tuple[str, ...]]:
    """Return the tree, None where there is nothing in it, and flags."""
    from lxml import etree, html

    if not text.strip():
        return None, ()
    parser = html.HTMLParser(encoding="utf-8", no_network=True, remove_comments=True, remove_pis=True)
    try:
        root = html.document_fromstring(text.encode("utf-8"), parser=parser)
    except (etree.ParserError, etree.XMLSyntaxError) as error:
        if "empty" in str(error).lower():
            return None, ()
        raise PermanentError(f"the HTML cannot be parsed ({error})", document=uri) from error
    cut = any("Excessive depth" in entry.message for entry in parser.error_log)
    return root, (NESTING_CUT,) if cut else ()


def _meta(root: HtmlElement, name: str) -> str | None:
    for meta in root.iter("meta"):
        stated = meta.get("property") or meta.get("name") or meta.get("itemprop") or ""
        if stated.lower() == name and (content := meta.get("content", "").strip()):
            return str(content)
    return None


def _title(root: HtmlElement) -> str | None:
    """Return og:title, else <title> without the site's name around a heading of the page, else the only <h1>."""
    if stated := title_of(_meta(root, "og:title")):
        return stated
    headings = [words for h1 in root.iter("h1") if (words := title_of(h1.text_content()))]
    element = root.find(".//head/title")
    if element is None or (stated := title_of(element.text_content())) is None:
        return headings[0] if len(headings) == 1 else None
    parts = [part.strip() for part in re.split(r"\s[-–—|·•»«:]\s", stated)]
    return next((heading for heading in headings if heading in parts), stated)


def _date(root: HtmlElement) -> dt.date | None:
    """Return the date that the head states. Dates in the running text are about anything; they are not asked."""
    for name in _DATES:
        if stated := date_of(_meta(root, name)):
            return stated
    return None
