"""Golden questions count what a person would count."""

from __future__ import annotations

from pathlib import Path

import pytest

from query.golden import GoldenQuestion, evaluate, locate, read_golden
from query.retriever import Retriever
from query.snapshot_reader import SnapshotReader
from schemas.errors import UsageError


def question(text: str, source: str, quote: str, name: str = "q") -> GoldenQuestion:
    return GoldenQuestion(id=name, question=text, source=source, quote=quote)


PET = question("paid leave for a pet", "leave.md", "For a pet it is\n one day.", "pet")
ACROSS = question("public holidays on top", "leave.md", "holidays on top. When someone close", "across")
CHINESE = question("中秋博饼的奖品", "zh/handbook.md", "状元 的奖品由上一届状元挑选", "zh")
GONE = question("anything", "deleted.md", "no matter", "gone")
CHANGED = question("paid leave", "leave.md", "thirty days of leave", "changed")


def test_a_quote_is_located_whatever_its_white_space(handbook: SnapshotReader) -> None:
    (row,) = locate(handbook, PET).rows
    assert "For a pet" in handbook.passage(row).text
    assert len(locate(handbook, CHINESE).rows) == 1


def test_a_quote_across_a_border_is_answered_by_either_side(handbook: SnapshotReader) -> None:
    assert len(locate(handbook, ACROSS).rows) == 2


def test_recall_counts_what_was_found(retriever: Retriever) -> None:
    result = evaluate(retriever, [PET, ACROSS, CHINESE, GONE, CHANGED], k=2, modes=("bm25",))
    (score,) = result.scores
    assert score.found == ("pet", "across", "zh")
    assert score.missed == ("changed",)
    assert score.recall == 0.75
    assert (result.expired, result.unlocated) == (("gone",), ("changed",))


def test_modes_are_scored_apart(retriever: Retriever) -> None:
    result = evaluate(retriever, [PET, CHINESE], k=1)
    assert [score.mode for score in result.scores] == ["hybrid", "dense", "bm25"]
    assert result.scores[2].recall == 1.0


def test_no_questions_are_no_error(retriever: Retriever) -> None:
    assert [score.recall for score in evaluate(retriever, []).scores] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "line",
    [
        "not json",
        '{"id": "a"}',
        '{"id": "a", "question": "q", "source": "s", "quote": " "}',
        '{"id": "a", "question": "q", "source": "s", "quote": "x", "extra": 1}',
        '{"id": "first", "question": "q", "source": "s", "quote": "x"}',
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "golden.jsonl"
    path.write_text(f'{{"id": "first", "question": "q", "source": "s", "quote": "x"}}\n\n{line}\n')
    with pytest.raises(UsageError, match="line 3"):
        read_golden(path)


def test_the_sample_questions_are_read() -> None:
    path = Path(__file__).parents[2] / "data" / "golden.jsonl"
    questions = read_golden(path)
    assert len(questions) >= 40
    assert {"chinese", "identifier", "natural"} <= {question.kind for question in questions}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("not json", "it is not JSON: "),
        ('{"id": "a"}', "question: Field required; source: Field required; quote: Field required"),
        ('{"id": 7, "question": "q", "source": "s", "quote": "x"}', "id: Input should be a valid string; given: 7"),
        ('{"id": "a", "question": "q", "source": "s", "quote": "x", "kin": 1}', "kin: Extra inputs are not permitted"),
        ("[1]", "the line: Input should be a valid dictionary or instance of GoldenQuestion; given: [1]"),
    ],
)
def test_a_wrong_line_says_which_value_is_wrong(tmp_path: Path, line: str, told: str) -> None:
    path = tmp_path / "golden.jsonl"
    path.write_text(line)
    with pytest.raises(UsageError) as wrong:
        read_golden(path)
    assert f"{path}, line 1: not a golden question: {told}" in str(wrong.value)
    assert "pydantic.dev" not in str(wrong.value)
