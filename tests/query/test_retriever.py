"""A question finds its passages by either side, and loads no side that it does not need."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from query.retriever import MODES, Retriever
from query.snapshot_reader import SnapshotReader
from schemas.config import SearchConfig
from schemas.errors import GlossatorError, UsageError
from schemas.identity import embedded_text
from tasks.embed.encoder import HashEncoder
from tasks.embed.tokenizer import HashTokenizer

ROOT = Path(__file__).parents[2]


class EnglishTokenizer(HashTokenizer):
    """Knows no character beyond ASCII, as an English model does."""

    def unknown_share(self, text: str) -> float:
        return sum(not character.isascii() for character in text) / max(len(text), 1)


def closed() -> Any:
    raise AssertionError("opened although not needed")


def first(retriever: Retriever, question: str, **options: Any) -> str:
    return retriever.search(question, **options).hits[0].passage.text


def test_words_find_their_passage(retriever: Retriever) -> None:
    assert "For a pet" in first(retriever, "paid leave when a pet dies", mode="bm25")


def test_an_error_code_finds_its_row(retriever: Retriever) -> None:
    assert any("E-4021" in hit.passage.text for hit in retriever.search("error 4021", k=2, mode="bm25").hits)
    assert "E-4021" in first(retriever, "E-4021", mode="bm25")
    assert "E-4021" in first(retriever, "What is E4021?", mode="bm25")


def test_a_chinese_question_finds_its_passage_by_words(handbook: SnapshotReader) -> None:
    """llama_index#13866: Chinese scores zero in BM25 (split on spaces)."""
    retriever = Retriever(handbook, closed, closed, EnglishTokenizer, SearchConfig())
    result = retriever.search("中秋博饼的奖品由谁挑选？")
    assert "状元" in result.hits[0].passage.text
    assert result.dense_way is None
    assert result.notes[0].startswith("dense side off:")
    assert result.notes[0].endswith("% of the question's tokens are unknown to the model")


def test_the_dense_mode_searches_an_unknown_language_and_says_so(
    handbook: SnapshotReader, make_index: Callable[..., Any]
) -> None:
    retriever = Retriever(
        handbook, lambda: make_index(handbook), lambda: HashEncoder(64), EnglishTokenizer, SearchConfig()
    )
    result = retriever.search("中秋博饼", mode="dense")
    assert len(result.hits) == 10
    assert "mean little" in result.notes[0]


def test_bm25_mode_opens_neither_model_nor_vector_store(handbook: SnapshotReader) -> None:
    retriever = Retriever(handbook, closed, closed, closed, SearchConfig())
    assert retriever.search("zinc anode", mode="bm25").hits


def test_hybrid_names_the_place_on_both_sides(retriever: Retriever, handbook: SnapshotReader) -> None:
    target = handbook.passage(4)
    result = retriever.search(embedded_text(target.context, target.text), mode="hybrid")
    best = result.hits[0]
    assert best.passage.chunk_id == target.chunk_id
    assert best.dense is not None
    assert best.bm25 is not None
    assert best.dense.score == pytest.approx(1.0, abs=1e-5)
    assert result.dense_way == "index"
    assert [step.name for step in result.steps] == ["bm25", "tokenize", "encode", "dense", "passages"]


@pytest.mark.parametrize("mode", MODES)
def test_nothing_outside_the_filter_is_found(retriever: Retriever, handbook: SnapshotReader, mode: Any) -> None:
    allowed = np.zeros(handbook.size, dtype=bool)
    allowed[::3] = True
    hits = retriever.search("station tide minutes", k=60, mode=mode, allowed=allowed).hits
    assert hits
    assert all(allowed[hit.passage.row] for hit in hits)


@pytest.mark.parametrize("mode", MODES)
def test_the_same_question_gets_the_same_hits(retriever: Retriever, mode: Any) -> None:
    one, other = (retriever.search("tide minutes", k=30, mode=mode).hits for _ in range(2))
    assert one == other
    assert [hit.rank for hit in one] == list(range(1, len(one) + 1))


def test_unknown_words_find_nothing_and_an_empty_question_says_so(retriever: Retriever) -> None:
    assert retriever.search("xyzzy", mode="bm25").hits == ()
    empty = retriever.search("  ")
    assert (empty.hits, empty.notes) == ((), ("the question is empty",))


def test_more_passages_than_there_are_gives_what_matches(retriever: Retriever, handbook: SnapshotReader) -> None:
    assert len(retriever.search("tide", k=10_000, mode="dense").hits) == handbook.size


def test_wrong_usage_is_said(retriever: Retriever) -> None:
    with pytest.raises(UsageError, match="mode"):
        retriever.search("tide", mode="magic")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="0 passages"):
        retriever.search("tide", k=0)


def test_vectors_of_another_model_are_refused(handbook: SnapshotReader) -> None:
    """open-webui#11279: dimension mismatch at query time."""
    retriever = Retriever(handbook, closed, lambda: HashEncoder(32), HashTokenizer, SearchConfig())
    with pytest.raises(GlossatorError, match="64 numbers"):
        retriever.search("tide")


def test_importing_the_online_path_loads_nothing_heavy() -> None:
    code = (
        "import importlib, pkgutil, sys, query;"
        "[importlib.import_module(f'query.{module.name}') for module in pkgutil.iter_modules(query.__path__)];"
        "print(*sorted(name.partition('.')[0] for name in sys.modules))"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=dict(os.environ), capture_output=True, check=True, text=True
    ).stdout
    loaded = set(output.split())
    assert "query" in loaded
    assert not loaded & {"prefect", "torch", "sentence_transformers", "pymilvus", "milvus_lite", "bm25s", "numba"}
