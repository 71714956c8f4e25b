"""Golden questions: does the retriever still find what it should?

A golden question names a source and a quote from it. It is answered when one of the first ``k`` passages holds the
quote; where chunking put a border inside the quote, a passage that overlaps it. White space is not compared, since it
differs between a PDF's lines and a person's copy of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict, ValidationError

from query.retriever import MODES, Mode, Retriever
from query.snapshot_reader import SnapshotReader
from schemas.errors import UsageError
from schemas.invalid import where, why

_BLACK = re.compile(r"\S")
_FORMAT = "name a file of JSON lines, each with id, question, source (the document's URI) and quote"

Standing = Literal["located", "unlocated", "expired"]


class GoldenQuestion(BaseModel):
    """One line of a golden file.

    Attributes:
        source: URI of the document that answers.
        quote: its words that answer.
        kind: free label, for reports.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    question: str
    source: str
    quote: str
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Target:
    """The chunks that answer a question.

    Attributes:
        standing: ``expired``: the snapshot has no such document; ``unlocated``: it has, without the quote.
    """

    rows: frozenset[int]
    standing: Standing


@dataclass(frozen=True, slots=True)
class ModeScore:
    """How one mode did.

    Attributes:
        recall: share of the questions that have not expired with an answering passage among the first k; 0.0 for none.
        missed: ids of the others.
    """

    mode: Mode
    recall: float
    found: tuple[str, ...]
    missed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How a retriever did on golden questions; an ``unlocated`` one counts as missed, an ``expired`` one not at all.

    Attributes:
        judged: number of questions that have not expired.
        absent: documents of the expired ones, in the order of the questions.
    """

    k: int
    judged: int
    absent: tuple[str, ...]
    scores: tuple[ModeScore, ...]
    unlocated: tuple[str, ...]
    expired: tuple[str, ...]


def read_golden(path: Path) -> list[GoldenQuestion]:
    """Read a JSON Lines file.

    Raises:
        UsageError: names the file and the line.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        cause = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"cannot read the golden questions in {path}: {cause}", hint=_FORMAT) from error
    questions: list[GoldenQuestion] = []
    seen: set[str] = set()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            question = GoldenQuestion.model_validate(json.loads(line))
        except (ValueError, RecursionError) as error:  # Of JSON, or of pydantic.
            cause = _cause(error)
            raise UsageError(f"{path}, line {number}: not a golden question: {cause}", hint=_FORMAT) from error
        if question.id in seen or not _BLACK.search(question.quote):
            raise UsageError(f"{path}, line {number}: {question.id!r} is there twice, or its quote is empty")
        seen.add(question.id)
        questions.append(question)
    return questions


def _cause(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return "; ".join(f"{where(problem) or 'the line'}: {why(problem)}" for problem in error.errors())
    return f"it is not JSON: {error}"


def evaluate(
    retriever: Retriever, questions: Sequence[GoldenQuestion], k: int = 5, modes: Sequence[Mode] = MODES
) -> Evaluation:
    """Search each question in each mode and count."""
    targets = {question.id: locate(retriever.reader, question) for question in questions}
    asked = [question for question in questions if targets[question.id].standing != "expired"]
    scores = []
    for mode in modes:
        found = [
            question.id
            for question in asked
            if any(
                hit.passage.row in targets[question.id].rows
                for hit in retriever.search(question.question, k, mode).hits
            )
        ]
        known = frozenset(found)
        missed = tuple(question.id for question in asked if question.id not in known)
        scores.append(ModeScore(mode, len(found) / len(asked) if asked else 0.0, tuple(found), missed))
    return Evaluation(
        k=k,
        judged=len(asked),
        absent=tuple(
            dict.fromkeys(question.source for question in questions if targets[question.id].standing == "expired")
        ),
        scores=tuple(scores),
        unlocated=tuple(name for name, target in targets.items() if target.standing == "unlocated"),
        expired=tuple(name for name, target in targets.items() if target.standing == "expired"),
    )


def locate(reader: SnapshotReader, question: GoldenQuestion) -> Target:
    """Return the chunks that hold a question's quote, in every document of that URI."""
    same = pc.equal(reader.documents().column("uri"), question.source)
    documents = np.flatnonzero(same.to_numpy()).tolist()
    rows: set[int] = set()
    for document in documents:
        chunks = np.flatnonzero(reader.document_rows() == document).tolist()
        spans = [(passage.start, passage.end) for passage in map(reader.passage, chunks)]
        for begin, end in _spans(reader.document_text(document), question.quote):
            holding = {row for row, (start, stop) in zip(chunks, spans, strict=True) if start <= begin and end <= stop}
            touching = {row for row, (start, stop) in zip(chunks, spans, strict=True) if start < end and begin < stop}
            rows |= holding or touching
    if not documents:
        return Target(frozenset(), "expired")
    return Target(frozenset(rows), "located" if rows else "unlocated")


def _spans(text: str, quote: str) -> list[tuple[int, int]]:
    """Return begin and end of each occurrence of a quote in a text, white space not compared."""
    offsets = [match.start() for match in _BLACK.finditer(text)]
    dense_text, dense_quote = "".join(text.split()), "".join(quote.split())
    spans = []
    at = dense_text.find(dense_quote)
    while at >= 0:
        spans.append((offsets[at], offsets[at + len(dense_quote) - 1] + 1))
        at = dense_text.find(dense_quote, at + 1)
    return spans
