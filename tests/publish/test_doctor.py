"""The doctor finds each planted damage, and nothing in a healthy index."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from schemas.config import Bm25Config
from schemas.snapshot import Snapshot
from tasks.lake.lake import MANIFEST, Lake, bm25_folder, catalog_folder, ipc_bytes, part_path, passages_folder
from tasks.publish.bm25_build import build_bm25
from tasks.publish.catalog import read_catalog
from tests.fixtures import ailments, lake_beside, make_corpus, published, run, store_of

CORPUS = {
    "a.md": "# Anchors\n\nAn anchor holds a ship.\n\n## Zinc\n\nZinc is eaten first.\n\nAn anchor holds a ship.\n",
    "灯塔.md": "# 灯塔\n\n灯塔每隔五秒闪一次。\n",
    "b.txt": "red green blue\n",
    "c.txt": "one two three\n",
}


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = make_corpus(tmp_path / "docs", CORPUS)
    run(folder)
    return folder


def rewrite(lake: Lake, folder: str, **changes: bytes) -> None:
    """Replace files of a folder with their checksums, as a faulty program would write them."""
    names = list(lake.read_json(f"{folder}/{MANIFEST}"))
    files = {name: lake.storage.read(f"{folder}/{name}") for name in names}
    lake.write_folder(folder, files | {name.replace("_", "."): data for name, data in changes.items()})


def passages(snapshot: Snapshot) -> str:
    return passages_folder(snapshot.parts["passages"][0].key)


def table(lake: Lake, key: str) -> pa.Table:
    return pa.ipc.open_file(pa.BufferReader(lake.storage.read(key))).read_all()


def test_a_healthy_index_has_no_finding(docs: Path) -> None:
    assert ailments(docs) == {}


def change_a_word(lake: Lake, snapshot: Snapshot) -> None:
    documents = table(lake, f"{passages(snapshot)}/documents.arrow")
    texts = [text.replace("Zinc is", "Lead is") for text in documents["text"].to_pylist()]
    column = documents.schema.get_field_index("text")
    changed = documents.set_column(column, documents.schema.field("text"), pa.array(texts, pa.large_string()))
    rewrite(lake, passages(snapshot), documents_arrow=ipc_bytes(changed))


def shift_a_span(lake: Lake, snapshot: Snapshot) -> None:
    chunks = table(lake, f"{passages(snapshot)}/chunks.arrow")
    ends = chunks["end"].to_pylist()
    ends[0] -= 1
    changed = chunks.set_column(chunks.schema.get_field_index("end"), "end", pa.array(ends, pa.int64()))
    rewrite(lake, passages(snapshot), chunks_arrow=ipc_bytes(changed))


def change_a_tag(lake: Lake, snapshot: Snapshot) -> None:
    documents = table(lake, f"{passages(snapshot)}/documents.arrow")
    tags = pa.array([["secret"]] * documents.num_rows, pa.list_(pa.string()))
    changed = documents.set_column(documents.schema.get_field_index("tags"), "tags", tags)
    rewrite(lake, passages(snapshot), documents_arrow=ipc_bytes(changed))


@pytest.mark.parametrize("damage", [change_a_word, shift_a_span, change_a_tag])
def test_a_chunk_that_is_not_its_documents_text_is_found(docs: Path, damage: Callable[[Lake, Snapshot], None]) -> None:
    lake = lake_beside(docs)
    damage(lake, published(lake))
    assert "chunks are not their document's text, the first is" in ailments(docs)["spans"]


def test_a_missing_milvus_row_is_found(docs: Path) -> None:
    lake = lake_beside(docs)
    store = store_of(lake)
    victim = next(iter(sorted(store.ids())))
    store._client.delete(store.ref.collection, ids=[victim])
    store.close()
    assert ailments(docs) == {"milvus": "Milvus lacks 1 of 5 chunks"}


def test_a_lost_milvus_collection_is_found(docs: Path) -> None:
    store = store_of(lake_beside(docs))
    store.drop()
    store.close()
    (found,) = ailments(docs).items()
    assert found[0] == "milvus"
    assert "is gone" in found[1]


def shuffled_bm25(lake: Lake, snapshot: Snapshot, one: str, other: str) -> None:
    """Write a whole, valid index in which two chunks stand in each other's place."""
    documents = read_catalog(lake, snapshot.catalog, "documents")["uri"].to_list()
    chunks = read_catalog(lake, snapshot.catalog, "chunks")
    order = [documents[row] for row in chunks["document"].to_list()]
    terms = []
    tokens = pl.DataFrame(pl.from_arrow(lake.read_part("tokens", snapshot.parts["tokens"][0].key)))
    known = dict(zip(tokens["embedded_digest"].to_list(), tokens["tokens"].to_list(), strict=True))
    rows = pl.DataFrame(pl.from_arrow(table(lake, f"{passages(snapshot)}/chunks.arrow")))
    for chunk in chunks["chunk_id"].to_list():
        (digest,) = rows.filter(pl.col("chunk_id") == chunk)["embedded_digest"].to_list()
        terms.append(list(known[digest]))
    left, right = order.index(one), order.index(other)
    assert len(set(terms[left])) == len(set(terms[right])), "a count of terms alone must not give it away"
    terms[left], terms[right] = terms[right], terms[left]
    words = sorted({term for document in terms for term in document})
    ids = {word: number for number, word in enumerate(words)}
    flat = np.array([ids[term] for document in terms for term in document], np.int32)
    offsets = np.cumsum([0, *map(len, terms)])
    lake.write_folder(bm25_folder(snapshot.bm25), build_bm25(flat, offsets, words, Bm25Config()))


def test_bm25_rows_in_another_order_are_found(docs: Path) -> None:
    """MinSync#36, AutoRAG#1457: BM25 and vectors address different chunks."""
    lake = lake_beside(docs)
    shuffled_bm25(lake, published(lake), "b.txt", "c.txt")
    assert ailments(docs) == {"bm25": "2 of 5 BM25 rows are not the chunk of their place in the catalog"}


def test_a_bm25_index_of_another_snapshot_is_found(docs: Path) -> None:
    lake = lake_beside(docs)
    old = published(lake)
    run(make_corpus(docs, CORPUS | {"d.txt": "four five six\n"}))
    new = published(lake)
    for name in [*lake.read_json(f"{bm25_folder(old.bm25)}/{MANIFEST}"), MANIFEST]:
        lake.storage.write(f"{bm25_folder(new.bm25)}/{name}", lake.storage.read(f"{bm25_folder(old.bm25)}/{name}"))
    assert ailments(docs) == {"bm25": "BM25 holds 5 chunks, the catalog 6"}


def folders(snapshot: Snapshot) -> list[str]:
    return [passages(snapshot), catalog_folder(snapshot.catalog), bm25_folder(snapshot.bm25)]


def test_any_file_cut_short_is_found(docs: Path) -> None:
    lake = lake_beside(docs)
    snapshot = published(lake)
    files = [path for folder in folders(snapshot) for path in lake.storage.local(folder).iterdir()]
    parts = [
        lake.storage.local(part_path(stage, ref.key))
        for stage, refs in snapshot.parts.items()
        if stage != "passages"
        for ref in refs
    ]
    assert len(parts) == 5
    for path in [path for path in files if path.name != MANIFEST] + parts:
        data = path.read_bytes()
        path.write_bytes(data[: len(data) // 2])
        assert str(path) in ailments(docs)["files"]
        path.write_bytes(data)
    assert ailments(docs) == {}


def test_any_flipped_byte_is_found(docs: Path) -> None:
    lake = lake_beside(docs)
    snapshot = published(lake)
    paths = [lake.storage.local(f"{passages(snapshot)}/vectors.npy")]
    paths += [lake.storage.local(f"{bm25_folder(snapshot.bm25)}/data.csc.index.npy")]
    paths += [lake.storage.local(part_path("embed", snapshot.parts["embed"][0].key))]
    for path in paths:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 4
        path.write_bytes(data)
        assert str(path) in ailments(docs)["files"]
        data[len(data) // 2] ^= 4
        path.write_bytes(data)


def test_missing_parts_are_counted(docs: Path) -> None:
    lake = lake_beside(docs)
    for stage in ("load", "tokens"):
        lake.storage.delete(part_path(stage, published(lake).parts[stage][0].key))  # type: ignore[index,arg-type]
    assert ailments(docs)["files"].startswith("2 of 5 parts are missing, the first is load ")


def test_a_snapshot_id_that_is_not_that_of_its_contents_is_found(docs: Path) -> None:
    lake = lake_beside(docs)
    snapshot = published(lake)
    forged = snapshot.model_copy(update={"id": "0" * 32})
    lake.storage.write(f"snapshots/{snapshot.name}.json", forged.model_dump_json().encode())
    assert ailments(docs) == {"identity": f"the contents have the id {snapshot.id}, the snapshot says {'0' * 32}"}


def test_examining_writes_nothing(docs: Path) -> None:
    def state() -> dict[str, bytes]:
        root = lake_beside(docs).storage.local("x").parent
        return {
            str(path): path.read_bytes()
            for path in sorted(root.rglob("*"))
            if path.is_file() and "milvus.db" not in path.parts and "state" not in path.parts
        }

    before = state()
    ailments(docs)
    assert state() == before
