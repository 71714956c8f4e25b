"""Analyzer and index together find what published sets say they should."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from schemas.config import Bm25Config
from tasks.publish.bm25 import Bm25Index
from tasks.publish.bm25_build import build_bm25
from tasks.tokens.analyzer import Analyzer
from tests.shared import SHARED

LABELLED = SHARED / "labelled"

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not LABELLED.is_dir(), reason=f"no labelled sets in {LABELLED} (set GLOSSATOR_SHARED)"),
]

Row = dict[str, str]


def read(name: str) -> tuple[list[Row], list[Row], dict[str, list[str]]]:
    """Return corpus, questions, and the relevant ids of each question."""
    folder = LABELLED / name
    corpus, questions = (
        [json.loads(line) for line in (folder / file).read_text(encoding="utf-8").splitlines()]
        for file in ("corpus.jsonl", "queries.jsonl")
    )
    relevant: dict[str, list[str]] = {}
    for line in (folder / "qrels.tsv").read_text(encoding="utf-8").splitlines():
        question, document, _ = line.split("\t")
        relevant.setdefault(question, []).append(document)
    return corpus, questions, relevant


def search(folder: Path, texts: list[str], questions: list[str], k: int) -> list[list[int]]:
    config = Bm25Config()
    analyzer = Analyzer(config)
    ids: dict[str, int] = {}
    terms = [[ids.setdefault(term, len(ids)) for term in analyzer.terms(text)] for text in texts]
    flat = np.array([term for document in terms for term in document], dtype=np.int32)
    for name, data in build_bm25(flat, np.cumsum([0, *map(len, terms)]), list(ids), config).items():
        (folder / name).write_bytes(data)
    index = Bm25Index.open(folder)
    return [index.top(analyzer.terms(question), k)[0].tolist() for question in questions]


def test_code_is_found_as_well_as_the_published_baseline(tmp_path: Path) -> None:
    corpus, questions, relevant = read("anthropic_contextual")
    contents = {row["id"]: row["text"].strip() for row in corpus}
    found = search(tmp_path, [row["text"] for row in corpus], [row["text"] for row in questions], 5)
    recalls = []
    for question, rows in zip(questions, found, strict=True):
        golden = [contents[name] for name in relevant[question["id"]]]
        returned = {corpus[row]["text"].strip() for row in rows}
        recalls.append(sum(content in returned for content in golden) / len(golden))
    assert sum(recalls) / len(recalls) >= 0.8165


def test_scientific_abstracts_are_ranked_as_well_as_stemmed_bm25_does(tmp_path: Path) -> None:
    corpus, questions, relevant = read("scifact")
    texts = [f"{row['title']}\n{row['text']}" for row in corpus]
    gains = []
    for question, rows in zip(questions, search(tmp_path, texts, [row["text"] for row in questions], 10), strict=True):
        golden = set(relevant[question["id"]])
        gained = sum(1 / math.log2(place + 2) for place, row in enumerate(rows) if corpus[row]["id"] in golden)
        gains.append(gained / sum(1 / math.log2(place + 2) for place in range(min(10, len(golden)))))
    assert sum(gains) / len(gains) >= 0.687


def test_chinese_paragraphs_are_found(tmp_path: Path) -> None:
    corpus, questions, relevant = read("cmrc2018")
    asked = questions[::4]
    found = search(tmp_path, [row["text"] for row in corpus], [row["text"] for row in asked], 5)
    hits = sum(
        any(corpus[row]["id"] in relevant[question["id"]] for row in rows)
        for question, rows in zip(asked, found, strict=True)
    )
    assert hits / len(asked) >= 0.99
