"""Stages: a change of config, code or model redoes what depends on it, and nothing else."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

import tasks.plan.stages
from flows.index import build
from flows.runner import PlainRunner
from schemas.snapshot import STAGES
from tasks.chunk.chunker import CHUNKER_VERSION
from tasks.contextualize.structural import STRUCTURAL_VERSION
from tasks.lake.lake import Lake
from tasks.load.loader import LOADER_VERSION
from tasks.plan.planner import workspace
from tasks.plan.stages import indexing_digest, stores_digest
from tasks.publish.milvus import open_milvus
from tasks.publish.milvus_server import connect, disconnect
from tasks.tokens.analyzer import ANALYZER_VERSION
from tests.fixtures import lake_beside, make_config, make_corpus, plan_of, published, run

CORPUS = Path(__file__).parents[2] / "data/corpus"
MADE = {
    "load": (3, "cbe6f74eb09a17a839fef7842a1c5e24"),
    "chunk": (1, "07400c8bf79ff6545dcdcb2570f3e739"),
    "contextualize": (1, "580bdc4bb378f6a4da64bbc357449f92"),
    "tokens": (2, "18a46fb54af3b1ddc14d05cfa608f3a0"),
}
"""Version and digest of the rows that each stage makes of the sample corpus: where one changes, so must the other."""
SOME = {"a.md": "# Anchors\n\nAn anchor holds a ship.\n", "b.md": "# Buoys\n\nA buoy floats.\n"}


def digests(tmp_path: Path, *assignments: str) -> dict[str, str]:
    config = make_config(*assignments)
    stages = workspace(Lake(tmp_path, "default"), config).stages
    return {**stages, "stores": stores_digest(config), "id": indexing_digest(config, stages)}


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("load.max_pages=7", {"load", "id"}),
        ("load.ignore=[]", set()),
        ("chunk.child_tokens=60", {"chunk", "id"}),
        ("context.reserve_tokens=32", {"contextualize", "id"}),
        ("embed.model=hash:128", {"embed", "id"}),
        ("embed.passage_prompt=passage:", {"contextualize", "embed", "id"}),  # it takes room in the window
        ("embed.query_prompt=question:", set()),
        ("embed.threads=3", set()),
        ("bm25.stem=false", {"tokens", "stores", "id"}),
        ("bm25.k1=2", {"stores", "id"}),
        ("milvus.index=FLAT", {"stores"}),  # where rows lie, not what they are
        ("milvus.uri=http://127.0.0.1:1", {"stores"}),
        ("search.candidates=9", set()),
        ("run.workers=9", set()),
        ("collection=other", set()),
    ],
)
def test_a_setting_is_in_the_digest_of_what_depends_on_it(tmp_path: Path, assignment: str, expected: set[str]) -> None:
    before, after = digests(tmp_path), digests(tmp_path, assignment)
    assert {name for name in before if before[name] != after[name]} == expected


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("LOADER_VERSION", {"load", "id"}),
        ("CHUNKER_VERSION", {"chunk", "id"}),
        ("STRUCTURAL_VERSION", {"contextualize", "id"}),
        ("EMBED_VERSION", {"embed", "id"}),
        ("ANALYZER_VERSION", {"tokens", "id"}),
        ("PASSAGES_VERSION", {"passages"}),
        ("CATALOG_VERSION", {"stores"}),
        ("BM25_VERSION", {"stores", "id"}),
        ("SCHEMA_VERSION", {"stores"}),
    ],
)
def test_a_code_version_is_in_the_digest_of_what_it_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, expected: set[str]
) -> None:
    before = digests(tmp_path)
    monkeypatch.setattr(tasks.plan.stages, version, 10_000)
    after = digests(tmp_path)
    assert {name for name in before if before[name] != after[name]} == expected


def test_other_bm25_parameters_build_that_index_anew_and_nothing_else(tmp_path: Path) -> None:
    docs = make_corpus(tmp_path / "docs", SOME)
    run(docs)
    before = published(lake_beside(docs))
    assert plan_of(docs, "bm25.k1=2").rebuilds_stores
    report = run(docs, "bm25.k1=2")
    after = published(lake_beside(docs))
    assert (report.published, report.chunks_embedded) == (True, 0)
    assert [ref.key for ref in after.parts["tokens"]] == [ref.key for ref in before.parts["tokens"]]
    assert (after.catalog, after.vectors) == (before.catalog, before.vectors)
    assert after.bm25 != before.bm25
    assert after.id != before.id
    assert plan_of(docs, "bm25.k1=2").nothing_to_do


def test_another_vector_index_fills_a_collection_of_its_own(tmp_path: Path) -> None:
    docs = make_corpus(tmp_path / "docs", SOME)
    run(docs)
    before = published(lake_beside(docs))
    assert run(docs, "milvus.index=FLAT").published
    after = published(lake_beside(docs))
    assert after.vectors.collection != before.vectors.collection
    assert (after.id, after.parts) == (before.id, before.parts)
    assert plan_of(docs, "milvus.index=FLAT").nothing_to_do


def test_another_server_is_filled_from_the_parts(tmp_path: Path) -> None:
    docs = make_corpus(tmp_path / "docs", SOME)
    run(docs)
    lake = lake_beside(docs)
    before = published(lake)
    folder = tmp_path / "elsewhere" / "milvus.db"
    server = f"milvus.uri={connect(folder)}"
    try:
        assert not plan_of(docs, server).nothing_to_do
        report = run(docs, server)
        after = published(lake)
        assert (report.published, report.chunks_embedded) == (True, 0)
        assert (after.id, after.parts) == (before.id, before.parts)
        with closing(open_milvus(make_config(server).milvus, lake, after.vectors)) as store:
            assert store.count() == after.counts.chunks > 0
        assert plan_of(docs, server).nothing_to_do
    finally:
        disconnect(folder)


def test_a_stage_that_makes_anything_else_of_the_sample_corpus_has_another_version(tmp_path: Path) -> None:
    """Parts of an older version are taken for those of this one as long as the versions are equal."""
    plan = plan_of(CORPUS, lake=Lake(tmp_path, "default"))
    parts = build(PlainRunner(), plan, {})
    (loaded,), (chunked,), (contexts,), (tokens,) = (parts[stage] for stage in STAGES if stage in MADE)
    made = {
        "load": (LOADER_VERSION, loaded.rows_digest),
        "chunk": (CHUNKER_VERSION, chunked.rows_digest),
        "contextualize": (STRUCTURAL_VERSION, contexts.rows_digest),
        "tokens": (ANALYZER_VERSION, tokens.rows_digest),
    }
    assert made == MADE, "raise the version of the first stage that differs (or did the sample corpus change?)"
