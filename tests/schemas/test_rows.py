"""Rows to records: pages of a span, and metadata as it was."""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict

import pytest

from schemas.documents import Metadata, Span
from schemas.rows import metadata_of, page_range, span_of


@pytest.mark.parametrize(
    ("span", "pages"),
    [
        ((0, 10), (1, 1)),
        ((0, 11), (1, 2)),  # one character of page 2
        ((10, 20), (2, 2)),  # begins exactly at the page's first character
        ((9, 21), (1, 3)),
        ((25, 26), (3, 3)),
    ],
)
def test_pages_of_a_span_count_from_one_and_the_end_is_exclusive(span: tuple[int, int], pages: tuple[int, int]) -> None:
    assert page_range((0, 10, 20), *span) == pages


def test_empty_pages_belong_to_nobody() -> None:
    assert page_range((0, 10, 10, 10), 0, 10) == (1, 1)
    assert page_range((0, 10, 10, 10), 10, 12) == (4, 4)


def test_before_the_first_offset_is_page_one() -> None:
    assert page_range((3, 10), 0, 2) == (1, 1)


def test_without_pages_there_is_no_page() -> None:
    assert page_range((), 0, 5) == (None, None)


@pytest.mark.parametrize("groups", [None, (), ("a", "b")])
def test_no_access_statement_is_not_an_empty_one(groups: tuple[str, ...] | None) -> None:
    metadata = Metadata("markdown", "T", None, "zh", ("x",), dt.date(2025, 3, 4), groups)
    row = asdict(metadata) | {"tags": ["x"], "groups": None if groups is None else list(groups)}
    assert metadata_of(row) == metadata


def test_a_span_comes_back_from_its_row() -> None:
    span = Span(3, 9, ("A", "B"), 2, "table")
    assert span_of(asdict(span) | {"breadcrumb": ["A", "B"]}) == span
