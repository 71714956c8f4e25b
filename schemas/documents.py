"""Documents and spans: the records that stages hand to each other, before they become table rows."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import Literal

DocumentType = Literal["markdown", "html", "pdf", "text", "code"]
ChunkKind = Literal["prose", "table", "code", "list"]


@dataclass(frozen=True, slots=True)
class Metadata:
    """What a document states about itself. Never the clock or the file system's.

    Attributes:
        type: the loader's family; decides how the text is chunked.
        title: stated in the document, else None. Never made from the file name, since a rename must not
            change an embedded text.
        syntax: the programming language of a ``code`` document ("python"), else None.
        language: ISO 639-1 code of the natural language ("en", "zh"), or "und".
        tags: free labels.
        date: the date stated in the document.
        groups: access groups (schemas.access); None where there is no statement. A loader gives those that the
            document states; rows hold those that count.
    """

    type: DocumentType
    title: str | None = None
    syntax: str | None = None
    language: str = "und"
    tags: tuple[str, ...] = ()
    date: dt.date | None = None
    groups: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class LoadedDocument:
    """One normalised text, and what is known about it.

    Attributes:
        text: the only copy of the words: NFC is *not* applied, line ends are ``\\n``, no NUL, no lone
            surrogates. Offsets everywhere count its code points.
        metadata: see Metadata.
        pages: offset in ``text`` at which each page begins (first is 0); empty for a type without pages.
        flags: what a reader should know about the loading ("repaired", "decoded:gb18030", "whole-body").
    """

    text: str
    metadata: Metadata
    pages: tuple[int, ...] = ()
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Span:
    """A parent or a child: ``text[start:end]`` of its document, exactly.

    Attributes:
        start, end: code points, end exclusive, start < end.
        breadcrumb: titles of the headings above, outermost first (for code: enclosing definitions). It
            includes the section's own heading.
        level: depth of the section's heading, 0 before the first.
        kind: what most of the span is.
    """

    start: int
    end: int
    breadcrumb: tuple[str, ...] = ()
    level: int = 0
    kind: ChunkKind = "prose"


@dataclass(frozen=True, slots=True)
class ChunkedDocument:
    """Parents, and children with the index of the parent that contains each.

    Both lists are in document order. Children never overlap a parent's border.

    Attributes:
        definitions: names that the document defines (classes, functions, constants), for contexts.
    """

    parents: tuple[Span, ...]
    children: tuple[Span, ...]
    parent_of: tuple[int, ...]
    definitions: tuple[str, ...] = field(default=())
