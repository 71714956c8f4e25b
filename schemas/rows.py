"""From table rows to records and back."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from schemas.documents import Metadata, Span


def metadata_of(row: Mapping[str, Any]) -> Metadata:
    """Return the metadata of a DOCUMENTS, PASSAGE_DOCUMENTS or CATALOG_DOCUMENTS row."""
    groups = row["groups"]
    return Metadata(
        type=row["type"],
        title=row["title"],
        syntax=row["syntax"],
        language=row["language"],
        tags=tuple(row["tags"]),
        date=row["date"],
        groups=None if groups is None else tuple(groups),
    )


def span_of(row: Mapping[str, Any]) -> Span:
    """Return the span of a SPANS row."""
    return Span(
        start=row["start"],
        end=row["end"],
        breadcrumb=tuple(row["breadcrumb"]),
        level=row["level"],
        kind=row["kind"],
    )


def page_range(pages: Sequence[int], start: int, end: int) -> tuple[int, int] | tuple[None, None]:
    """Return the first and last page (from 1) of ``text[start:end]``; None where there are no pages."""
    if not pages:
        return None, None
    return max(1, bisect_right(pages, start)), max(1, bisect_right(pages, end - 1))
