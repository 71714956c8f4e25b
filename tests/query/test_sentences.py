"""Passages are divided into what can be quoted on its own."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from query.sentences import units


def quoted(text: str, kind: str = "prose") -> list[str]:
    return [text[start:end] for start, end in units(text, kind)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("See e.g. the manual. It helps.", ["See e.g. the manual.", "It helps."]),
        ("Ask Dr. Ng of J. Smith Ltd. about it. Then go.", ["Ask Dr. Ng of J. Smith Ltd. about it.", "Then go."]),
        ("The depth is\n1.8 mm at most.\n-3 is too low.", ["The depth is\n1.8 mm at most.", "-3 is too low."]),
        ("Version 3.8.1 is out. Install it.", ["Version 3.8.1 is out.", "Install it."]),
        ('He said "no." Then he left.', ['He said "no."', "Then he left."]),
        ("第一句。第二句！“第三句？”第四句", ["第一句。", "第二句！", "“第三句？”", "第四句"]),
        ("See no. 5 and Fig. 3 first. No. Never.", ["See no. 5 and Fig. 3 first.", "No.", "Never."]),
        ("A line that is\nwrapped. Next.", ["A line that is\nwrapped.", "Next."]),
        ("# Heading\n\nText.", ["Text."]),
        ("Title\n=====\n\nText.", ["Text."]),
        ("- One. And more.\n- Two\n  goes on", ["- One. And more.", "- Two\n  goes on"]),
        ("| A | B |\n|---|---|\n| 1 | x. y |\n| 2 | z |", ["| 1 | x. y |", "| 2 | z |"]),
        ("Run:\n```\nmake all. now\nmake test\n```\nDone.", ["Run:", "make all. now", "make test", "Done."]),
        ("", []),
        (" \n ", []),
        ("...", []),
    ],
)
def test_units_are_sentences_items_rows_and_lines(text: str, expected: list[str]) -> None:
    assert quoted(text) == expected


def test_lines_of_code_stay_lines() -> None:
    assert quoted("A = 1\nB = f(A)  # Yes. No.", "code") == ["A = 1", "B = f(A)  # Yes. No."]


def test_text_without_full_stops_is_divided_at_words() -> None:
    pieces = quoted("word " * 400)
    assert all(len(piece) <= 500 for piece in pieces)
    assert " ".join(pieces).split() == ["word"] * 400


@given(st.text(alphabet="ab. \n。|#-`A1!", max_size=300), st.sampled_from(["prose", "code", "table", "list"]))
def test_units_are_ordered_spans_without_white_space_around(text: str, kind: str) -> None:
    spans = units(text, kind)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    assert all(text[start:end] == text[start:end].strip() != "" for start, end in spans)
