"""The three stores of a candidate, as steps over the whole snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from schemas.identity import digest
from schemas.snapshot import PartRef, Snapshot
from schemas.work import Workspace
from tasks.lake.lake import bm25_folder, catalog_folder
from tasks.publish.candidate import insert_vectors, vector_store
from tasks.publish.catalog import catalog_key, read_catalog, write_catalog
from tasks.publish.lexical import bm25_key, write_bm25
from tasks.publish.milvus import local_milvus, open_milvus
from tasks.publish.receipts import Receipt, read_receipt, write_receipt
from tasks.step import Whole, lake_of

Refs = Sequence[PartRef]


def _catalog(space: Workspace, passages: Refs) -> str:
    return write_catalog(lake_of(space), passages)


def _bm25(space: Workspace, catalog: str, passages: Refs, tokens: Refs) -> str:
    return write_bm25(lake_of(space), space.config.bm25, catalog, passages, tokens)


def _vectors(space: Workspace, catalog: str, passages: Refs, parent: str | None) -> str:
    lake = lake_of(space)
    snapshot: Snapshot | None = lake.read_snapshot(parent) if parent else None
    insert_vectors(space, lake, snapshot, passages, catalog)
    key = _vectors_key(space, catalog, passages, parent)
    write_receipt(lake, key, Receipt(collection=vector_store(space).collection, catalog=catalog))
    return key


def _vectors_key(space: Workspace, catalog: str, passages: Refs, parent: str | None) -> str:
    return digest("vectors", vector_store(space).collection, space.config.milvus.uri, catalog)[:32]


def _vectors_exist(space: Workspace, key: str) -> bool:
    """A receipt counts only while the collection still holds these rows: a lost one is filled again."""
    lake = lake_of(space)
    receipt = read_receipt(lake, key)
    if receipt is None or not (space.config.milvus.uri or local_milvus(lake).exists()):
        return False
    if not lake.has_folder(catalog_folder(receipt.catalog)):
        return False
    ids = read_catalog(lake, receipt.catalog, "chunks", ["chunk_id"])["chunk_id"].to_list()
    with closing(open_milvus(space.config.milvus, lake, vector_store(space), mend=True)) as store:
        return store.exists() and len(store.present(ids)) == len(ids)


CATALOG = Whole(
    "catalog",
    lambda space, passages: catalog_key(passages),
    lambda space, key: lake_of(space).has_folder(catalog_folder(key), verify=True),
    _catalog,
)
BM25 = Whole(
    "bm25",
    lambda space, catalog, passages, tokens: bm25_key(space.config.bm25, catalog, tokens),
    lambda space, key: lake_of(space).has_folder(bm25_folder(key), verify=True),
    _bm25,
)
VECTORS = Whole("vectors", _vectors_key, _vectors_exist, _vectors)
