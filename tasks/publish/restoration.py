"""Restoration: rows that a sweep deleted after its lease had ended are written again.

A process may be paused between its look at the lease and its call to Milvus, for longer than the lease lasts. What it
then deletes may have been published again meanwhile, or is about to be; so all of it is restored from the passages,
and the next sweep deletes what nobody needs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import closing, suppress

from schemas.config import MilvusConfig
from schemas.snapshot import Snapshot
from tasks.lake.lake import Corrupt, Lake
from tasks.lake.storage import NotFound
from tasks.publish.candidate import vector_rows
from tasks.publish.catalog import read_catalog
from tasks.publish.milvus import open_milvus


def restore_rows(milvus: MilvusConfig, lake: Lake, collection: str, lost: Collection[str] | None = None) -> None:
    """Write rows again of all snapshots that there are: published, about to be, and withdrawn.

    Args:
        collection: of Milvus; created where it was dropped.
        lost: ids of the rows; None for all.
    """
    for snapshot in _snapshots(lake):
        if snapshot.vectors.collection == collection:
            with suppress(NotFound, Corrupt):  # Withdrawn, and its files half deleted: nobody can publish it as it is.
                _restore(milvus, lake, snapshot, lost)


def _snapshots(lake: Lake) -> Iterator[Snapshot]:
    for key in [*lake.storage.keys("snapshots"), *lake.storage.keys("withdrawn")]:
        with suppress(NotFound, ValueError):
            yield Snapshot.model_validate_json(lake.read_sealed(key))


def _restore(milvus: MilvusConfig, lake: Lake, snapshot: Snapshot, lost: Collection[str] | None) -> None:
    ids = frozenset(read_catalog(lake, snapshot.catalog, "chunks", ["chunk_id"])["chunk_id"].to_list())
    present = frozenset() if lost is None else ids.difference(lost)
    if present == ids:
        return
    documents = read_catalog(lake, snapshot.catalog, "documents")
    with closing(open_milvus(milvus, lake, snapshot.vectors, create=True)) as store:
        store.ensure()
        for part in snapshot.parts["passages"]:
            store.insert(vector_rows(lake, part, documents, present))
        store.flush()
