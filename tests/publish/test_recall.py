"""The doctor tells what share of the nearest chunks the vector index finds."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from schemas.snapshot import Snapshot
from tasks.lake.lake import Lake
from tasks.publish.milvus import search_width
from tasks.publish.recall import index_recall
from tests.fixtures import ailments, lake_beside, make_corpus, published, run, store_of


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recall") / "docs"
    files = {
        f"{name}.md": "".join(f"## Part {part}\n\nWords {name * 7} and {part}.\n\n" for part in range(6))
        for name in range(100)
    }
    docs = make_corpus(folder, files | {"copy.md": files["7.md"]})
    run(docs)
    return docs


def opened(docs: Path) -> tuple[Lake, Snapshot]:
    lake = lake_beside(docs)
    return lake, published(lake)


def test_the_index_of_a_healthy_snapshot_finds_the_nearest(indexed: Path) -> None:
    lake, snapshot = opened(indexed)
    assert snapshot.counts.chunks > 500
    with closing(store_of(lake)) as store:
        assert (
            index_recall(lake, snapshot, lambda vector: store.search(vector, 150, search_width(150)), store.vectors)
            >= 0.98
        )


def test_an_index_that_finds_half_of_them_has_a_recall_of_a_half(indexed: Path) -> None:
    lake, snapshot = opened(indexed)
    with closing(store_of(lake)) as store:
        recall = index_recall(lake, snapshot, lambda vector: store.search(vector, 5, search_width(5)), store.vectors)
    assert recall == pytest.approx(0.5, abs=0.02)


def test_rows_that_no_reader_sees_are_no_finds(indexed: Path) -> None:
    lake, snapshot = opened(indexed)
    with closing(store_of(lake)) as store:
        assert index_recall(lake, snapshot, lambda vector: [("f" * 32, 1.0)] * 150, store.vectors) == 0.0


def test_rows_that_lack_say_nothing_for_the_index(indexed: Path) -> None:
    lake, snapshot = opened(indexed)
    with closing(store_of(lake)) as store:
        assert (
            index_recall(lake, snapshot, lambda vector: store.search(vector, 9, search_width(9)), lambda _: {}) == 0.0
        )


@pytest.mark.parametrize(("noise", "healthy"), [(3e-4, True), (1e-2, False)])
def test_vectors_of_a_text_that_was_embedded_twice_are_the_same_and_others_are_not(
    tmp_path: Path, noise: float, healthy: bool
) -> None:
    docs = make_corpus(tmp_path / "docs", {f"{n}.md": f"# Title {n}\n\nText {n}.\n" for n in range(40)})
    run(docs)
    with closing(store_of(lake_beside(docs))) as store:
        rows = store._client.query(store.ref.collection, filter="chunk_id != ''", output_fields=["*"], limit=1_000)
        other = np.array([row["vector"] for row in rows])
        other += noise * np.random.default_rng(1).standard_normal(other.shape)
        other /= np.linalg.norm(other, axis=1, keepdims=True)
        store.insert([{**row, "vector": vector} for row, vector in zip(rows, other.tolist(), strict=True)])
        store.flush()
    assert list(ailments(docs)) == ([] if healthy else ["milvus"])


def test_the_doctor_complains_of_vectors_that_are_others_than_the_passages_say(tmp_path: Path) -> None:
    docs = make_corpus(tmp_path / "docs", {f"{n}.md": f"# Title {n}\n\nText {n}.\n" for n in range(40)})
    run(docs)
    with closing(store_of(lake_beside(docs))) as store:
        ids = list(store.ids())
        rows = store._client.query(store.ref.collection, filter="chunk_id != ''", output_fields=["*"], limit=1_000)
        random = np.random.default_rng(1).standard_normal((len(rows), 384)).astype(np.float32)
        store.insert([{**row, "vector": vector.tolist()} for row, vector in zip(rows, random, strict=True)])
        store.flush()
        assert sorted(store.ids()) == sorted(ids)
    assert list(ailments(docs)) == ["milvus"]
