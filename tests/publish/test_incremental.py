"""An incremental run equals a clean build, and does no more than it must."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import schemas.identity
import tasks.chunk.step
import tasks.plan.stages
from query.opening import open_retriever
from schemas.documents import ChunkedDocument
from schemas.plan import ChangeCounts
from schemas.report import IndexReport
from tasks.lake.lake import passages_folder
from tasks.plan.planner import PlanOptions
from tasks.publish.catalog import read_arrow, read_catalog
from tests.fixtures import (
    ailments,
    clean_build,
    contents,
    lake_beside,
    make_config,
    make_corpus,
    plan_of,
    published,
    run,
    store_of,
)

FRONT = "---\ntitle: Gauges\ntags: [{tags}]\ndate: 2025-03-0{day}\n---\n"
GAUGE = "# Gauges\n\nHow gauges work.\n\n## Float\n\n{float}\n\n## Radar\n\nRadar looks down.\n\n## Pressure\n\nDeep.\n"
FLOAT = "A float rises with the water."
CORPUS: dict[str, str] = {
    "gauge.md": FRONT.format(tags="tide", day=4) + GAUGE.format(float=FLOAT),
    "a.md": "# Anchors\n\nAn anchor holds a ship.\n\n## Zinc\n\nZinc is eaten first.\n",
    "sub/b.md": "# Buoys\n\nA buoy floats.\n\n## Lights\n\nRed to port.\n",
    "灯塔.md": "# 灯塔\n\n灯塔每隔五秒闪一次。\n\n## 维护\n\n每年春天更换灯泡。\n",
    "twin-1.txt": "Two files say exactly this.\n",
    "twin-2.txt": "Two files say exactly this.\n",
    "c.py": '"""Clocks."""\n\n\ndef tick() -> int:\n    """Return one."""\n    return 1\n',
}
CHUNKS = 4 + 2 + 2 + 2 + 1 + 1 + 1


@pytest.fixture(autouse=True)
def _many_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven documents in four shards, so that shards are reused, filled and emptied."""
    monkeypatch.setattr(schemas.identity, "DOCUMENTS_PER_SHARD", 2)


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = make_corpus(tmp_path / "docs", CORPUS)
    report = run(folder)
    assert (report.chunks, report.failed) == (CHUNKS, ())
    return folder


def again(docs: Path, files: dict[str, str]) -> IndexReport:
    """Index changed files and hold the result against a clean build."""
    report = run(make_corpus(docs, files))
    now, clean = contents(lake_beside(docs)), clean_build(docs)
    assert now == clean
    assert now.documents == set(files)
    assert now.unstored == frozenset()
    assert ailments(docs) == {}
    assert report.snapshot == now.id
    return report


def edited(**changes: str) -> dict[str, str]:
    return CORPUS | changes


def test_the_first_run_embeds_each_text_once_and_says_so(docs: Path) -> None:
    assert contents(lake_beside(docs)) == clean_build(docs)
    assert ailments(docs) == {}


def test_one_changed_paragraph_embeds_its_section_only(docs: Path) -> None:
    """langchain#32612: unchanged chunks are deleted and added again."""
    before = contents(lake_beside(docs)).chunks
    text = FRONT.format(tags="tide", day=4) + GAUGE.format(float="A float sinks with the ebb.")
    report = again(docs, CORPUS | {"gauge.md": text})
    assert (report.documents.changed, report.chunks_embedded, report.chunks) == (1, 1, CHUNKS)
    after = contents(lake_beside(docs)).chunks
    assert len(before.keys() - after.keys()) == len(after.keys() - before.keys()) == 1


def test_an_inserted_section_moves_the_others_and_embeds_itself_only(docs: Path) -> None:
    """Offsets move, rows do not: llama_index#14931 keeps only the last chunk, others write all anew."""
    before = contents(lake_beside(docs)).chunks
    text = CORPUS["gauge.md"].replace("## Float", "## Staff\n\nA staff is read by eye.\n\n## Float")
    report = again(docs, CORPUS | {"gauge.md": text})
    assert (report.chunks_embedded, report.chunks) == (1, CHUNKS + 1)
    assert before.keys() < contents(lake_beside(docs)).chunks.keys()


def test_a_rename_embeds_nothing(docs: Path) -> None:
    """Engram#1621: the path is inside the embedded text; a rename re-embeds."""
    files = dict(CORPUS)
    files["moved/far/away.md"] = files.pop("gauge.md")
    report = again(docs, files)
    assert report.documents == ChangeCounts(renamed=1, unchanged=6)
    assert report.chunks_embedded == 0
    assert "gauge.md" not in contents(lake_beside(docs)).documents


def test_every_document_renamed_embeds_nothing(docs: Path) -> None:
    report = again(docs, {f"new/{uri}": text for uri, text in CORPUS.items()})
    assert report.documents == ChangeCounts(renamed=7)
    assert report.chunks_embedded == 0


def test_a_swap_of_two_files_embeds_nothing(docs: Path) -> None:
    files = CORPUS | {"a.md": CORPUS["sub/b.md"], "sub/b.md": CORPUS["a.md"]}
    report = again(docs, files)
    assert (report.documents.changed, report.chunks_embedded) == (2, 0)


def test_a_file_moved_over_another_embeds_nothing(docs: Path) -> None:
    files = CORPUS | {"sub/b.md": CORPUS["gauge.md"]}
    del files["gauge.md"]
    report = again(docs, files)
    assert (report.documents.changed, report.documents.deleted, report.chunks_embedded) == (1, 1, 0)


def test_a_touch_changes_nothing_at_all(docs: Path) -> None:
    """llama_index#21461: mtime is part of the digest; a `touch` re-embeds everything."""
    before = contents(lake_beside(docs))
    for path in docs.rglob("*.*"):
        os.utime(path, ns=(10**18, 10**18))
    assert plan_of(docs).nothing_to_do
    report = again(docs, CORPUS)
    assert (report.chunks_embedded, report.published) == (0, False)
    assert contents(lake_beside(docs)) == before


@pytest.mark.parametrize(("tags", "day"), [("tide, new", 4), ("tide", 5)])
def test_other_metadata_makes_new_rows_and_embeds_nothing(docs: Path, tags: str, day: int) -> None:
    """llama_index#8602: the change is not noticed; langchain#40334: it re-embeds the document."""
    before = contents(lake_beside(docs)).chunks
    text = FRONT.format(tags=tags, day=day) + GAUGE.format(float=FLOAT)
    report = again(docs, CORPUS | {"gauge.md": text})
    assert (report.documents.changed, report.chunks_embedded) == (1, 0)
    assert {uri for chunk, uri in contents(lake_beside(docs)).chunks.items() if chunk not in before} == {"gauge.md"}


def test_other_bytes_of_the_same_words_embed_nothing_and_keep_every_row(docs: Path) -> None:
    before = contents(lake_beside(docs))
    report = again(docs, CORPUS | {"a.md": CORPUS["a.md"].replace("\n", "\r\n")})
    assert (report.documents.changed, report.chunks_embedded) == (1, 0)
    assert contents(lake_beside(docs)) == before


def test_a_copy_embeds_nothing_and_both_are_found(docs: Path) -> None:
    """llama_index#22706: two documents with equal content."""
    report = again(docs, CORPUS | {"copy.md": CORPUS["gauge.md"]})
    assert (report.documents.added, report.chunks_embedded, report.chunks) == (1, 0, CHUNKS + 4)
    report = again(docs, CORPUS)
    assert (report.documents.deleted, report.chunks) == (1, CHUNKS)
    assert "gauge.md" in contents(lake_beside(docs)).documents


def test_equal_documents_are_both_deleted(docs: Path) -> None:
    """llama_index#22706: two documents with equal content are never deleted."""
    files = {uri: text for uri, text in CORPUS.items() if not uri.startswith("twin")}
    report = again(docs, files)
    assert (report.documents.deleted, report.chunks) == (2, CHUNKS - 2)


def test_what_is_deleted_is_no_longer_found(docs: Path) -> None:
    """dify#9354, ragflow#7130, onyx#5013: deleted content is still answered."""
    retriever = open_retriever(lake_beside(docs), make_config())
    assert retriever.search("zinc is eaten", k=1, mode="bm25").hits[0].passage.document.uri == "a.md"
    report = again(docs, {uri: text for uri, text in CORPUS.items() if uri != "a.md"})
    assert (report.documents.deleted, report.chunks_embedded) == (1, 0)
    retriever = open_retriever(lake_beside(docs), make_config())
    for mode in ("hybrid", "dense", "bm25"):
        hits = retriever.search("zinc is eaten", k=100, mode=mode).hits  # type: ignore[arg-type]
        assert "a.md" not in {hit.passage.document.uri for hit in hits}


def test_added_documents_are_embedded_and_nothing_else(docs: Path) -> None:
    report = again(docs, CORPUS | {"new.md": "# New\n\nOne.\n\n## More\n\nTwo.\n"})
    assert (report.documents.added, report.chunks_embedded, report.chunks) == (1, 2, CHUNKS + 2)


def test_growing_into_more_shards_and_back_embeds_only_what_is_new(docs: Path) -> None:
    """The layout changes, the contents do not: shards never enter an id."""
    shards = published(lake_beside(docs)).shards
    more = {f"more/{number}.md": f"# More {number}\n\nWords of {number}.\n" for number in range(10)}
    report = again(docs, CORPUS | more)
    assert (report.documents.added, report.chunks_embedded) == (10, 10)
    assert published(lake_beside(docs)).shards > shards
    report = again(docs, CORPUS)
    assert (report.documents.deleted, report.chunks_embedded) == (10, 0)


def test_an_undone_edit_gives_the_old_snapshot_for_nothing(docs: Path) -> None:
    before = contents(lake_beside(docs))
    again(docs, CORPUS | {"a.md": "# Anchors\n\nOther words.\n"})
    report = again(docs, CORPUS)
    assert report.chunks_embedded == 0
    assert contents(lake_beside(docs)) == before


def test_everything_at_once(docs: Path) -> None:
    files = CORPUS | {
        "gauge.md": CORPUS["gauge.md"].replace("Deep.", "Deeper."),
        "copy.txt": CORPUS["twin-1.txt"],
        "new.md": "# New\n\nPage.\n",
    }
    files["moved.md"] = files.pop("sub/b.md")
    del files["灯塔.md"]
    report = again(docs, files)
    assert report.documents == ChangeCounts(added=2, changed=1, renamed=1, deleted=1, unchanged=4)
    assert report.chunks_embedded == 2


def test_bm25_vectors_and_passages_address_the_same_chunks(docs: Path) -> None:
    """MinSync#36, AutoRAG#1457: BM25 and vectors address different chunks."""
    retriever = open_retriever(lake_beside(docs), make_config())
    for uri, text in {"a.md": "Zinc is eaten first.", "灯塔.md": "每年春天更换灯泡。"}.items():
        (hit,) = retriever.search(text, k=1, mode="bm25").hits
        assert hit.passage.document.uri == uri
        assert text in hit.passage.text
    lake = lake_beside(docs)
    snapshot = published(lake)
    chunks = read_catalog(lake, snapshot.catalog, "chunks")
    for ref in snapshot.parts["passages"]:
        folder = lake.open_folder(passages_folder(ref.key))
        ids = read_arrow(folder / "chunks.arrow")["chunk_id"].to_list()
        assert sorted(ids) == sorted(chunks.filter(chunks["shard"] == ref.shard)["chunk_id"].to_list())
        lengths = np.linalg.norm(np.load(folder / "vectors.npy"), axis=1)
        assert np.allclose(lengths, 1)
        assert len(lengths) == len(ids)


def test_all_chunks_of_a_document_survive_an_update(docs: Path) -> None:
    """llama_index#14931: only the last chunk of each document survives an upsert."""
    again(docs, CORPUS | {"gauge.md": CORPUS["gauge.md"].replace("How gauges", "Why gauges")})
    uris = list(contents(lake_beside(docs)).chunks.values())
    assert uris.count("gauge.md") == 4


def test_names_that_a_new_chunker_reads_reach_the_contexts(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part key must say all that the next stage reads: definitions and kinds too, not spans alone."""
    chunk = tasks.chunk.step.chunk_document

    def renaming(*arguments: Any) -> ChunkedDocument:
        chunked = chunk(*arguments)
        return replace(chunked, definitions=("ring",)) if chunked.definitions else chunked

    monkeypatch.setattr(tasks.chunk.step, "chunk_document", renaming)
    monkeypatch.setattr(tasks.plan.stages, "CHUNKER_VERSION", 10_000)
    run(docs, options=PlanOptions(migrate=True))
    (hit,) = open_retriever(lake_beside(docs), make_config()).search("ring", k=1, mode="bm25").hits
    assert (hit.passage.document.uri, hit.passage.context) == ("c.py", "Clocks.\nDefines: ring")


def killed(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("place", ["publish", "verify", "flip"])
def test_what_was_done_before_a_kill_is_not_done_again(docs: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """RooCode#6650, txtai#695: progress is lost on a crash; llama_index#22639: readers see a hole meanwhile."""
    before = contents(lake_beside(docs))
    files = CORPUS | {"a.md": "# Anchors\n\nOther words.\n", "new.md": "# New\n\nPage.\n"}
    make_corpus(docs, files)
    with monkeypatch.context() as dying:
        dying.setattr(f"flows.index.{place}", killed)
        with pytest.raises(KeyboardInterrupt):
            run(docs)
    assert contents(lake_beside(docs)) == before
    report = again(docs, files)
    assert report.chunks_embedded == 0


def test_a_lost_collection_is_filled_again_by_the_next_run_that_publishes(docs: Path) -> None:
    store = store_of(lake_beside(docs))
    store.drop()
    store.close()
    report = again(docs, CORPUS | {"a.md": "# Anchors\n\nOther words.\n"})
    assert report.chunks_embedded == 1


def test_rows_that_are_lost_between_a_kill_and_the_next_run_are_written_again(
    docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = CORPUS | {"a.md": "# Anchors\n\nOther words.\n"}
    before = contents(lake_beside(docs)).chunks
    make_corpus(docs, files)
    with monkeypatch.context() as dying:
        dying.setattr("flows.index.flip", killed)
        with pytest.raises(KeyboardInterrupt):
            run(docs)
    store = store_of(lake_beside(docs))
    new = sorted(set(store.ids()) - before.keys())
    assert len(new) == 1
    store._client.delete(store.ref.collection, ids=new)
    store.close()
    assert again(docs, files).chunks_embedded == 0


def test_equal_corpora_give_equal_ids_under_any_schedule(tmp_path: Path) -> None:
    orders: list[Callable[[list[str]], list[str]]] = [sorted, lambda uris: sorted(uris, reverse=True)]
    ids = set()
    for number, order in enumerate(orders):
        folder = tmp_path / str(number) / "docs"
        so_far: dict[str, str] = {}
        for uri in order(list(CORPUS)):
            so_far[uri] = CORPUS[uri]
            last = run(make_corpus(folder, so_far))
        ids.add(last.snapshot)
    assert len(ids) == 1


@pytest.mark.parametrize("damage", [b"", b"{}", b"\xff"])
def test_passages_with_a_damaged_ref_are_written_anew(docs: Path, damage: bytes) -> None:
    run(docs)
    lake = lake_beside(docs)
    before = published(lake)
    for key in ("flips/1.json", "copies/flip.json"):  # as after a kill before the flip
        lake.storage.delete(key)
    for ref in before.parts["passages"]:
        path = lake.storage.local(f"passages/{ref.key}/ref.json")
        path.write_bytes(damage.ljust(path.stat().st_size))
    assert run(docs).snapshot == before.id
    assert ailments(docs) == {}
