"""The candidate: a snapshot with all its stores, verified, that no reader sees before the flip.

Order is the point: build, verify, flip, record. Until ``flip`` nothing of it is named by the pointer.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import polars as pl

from schemas.config import Config
from schemas.errors import Overtaken, PublishRefused
from schemas.identity import digest
from schemas.plan import Plan
from schemas.snapshot import STAGES, Counts, Flip, PartRef, Snapshot, Stage, VectorStoreRef
from schemas.work import ModelStamp, Workspace
from tasks.lake.access import Said, narrow, read_tombstones, widen
from tasks.lake.arrays import map_array
from tasks.lake.lake import Lake, bm25_folder, passages_folder
from tasks.plan.registry import record_sources
from tasks.plan.stages import indexing_digest, stores_digest
from tasks.publish.bm25 import Bm25Index
from tasks.publish.catalog import identify, read_arrow, read_catalog
from tasks.publish.milvus import SCHEMA_VERSION, collection_name, open_milvus
from tasks.publish.pointer import describe_hold, point

EPOCH = dt.date(1970, 1, 1)
NO_DATE = -1_000_000
"""Days since 1970 for a document without a date: before all dates (year 1 is -719,162), so that no range holds it."""


def vector_store(space: Workspace) -> VectorStoreRef:
    """Return where the vectors of this config belong: another model, chunking or context is another collection."""
    identity = digest(
        "rows",
        SCHEMA_VERSION,
        space.model.identity,
        space.stages["chunk"],
        space.stages["contextualize"],
        space.config.milvus.result_digest(),
    )
    return VectorStoreRef(
        collection=collection_name(space.collection, identity),
        dimension=space.model.dimension,
        model=space.model.name,
        model_identity=space.model.identity,
    )


def workspace_as_made(lake: Lake, config: Config, snapshot: Snapshot) -> Workspace:
    """Return the workspace in which a snapshot was made, whatever the configuration says of stages and model now."""
    vectors = snapshot.vectors
    model = ModelStamp(
        name=vectors.model, identity=vectors.model_identity, tokenizer="", dimension=vectors.dimension, window=0
    )
    stages = {stage: snapshot.config_digests[stage] for stage in STAGES}
    return Workspace(lake=lake.root, config=config, model=model, sources=(), stages=stages)


def insert_vectors(
    space: Workspace, lake: Lake, parent: Snapshot | None, passages: Sequence[PartRef], catalog: str
) -> None:
    """Insert the rows that the parent's collection does not have."""
    ref = vector_store(space)
    with closing(open_milvus(space.config.milvus, lake, ref, create=True)) as store:
        store.ensure()
        known = _known_ids(lake, parent, ref)
        whole = bool(known) and store.count() >= len(known)
        if not whole:  # A new collection, or one that lost rows: what it holds decides, not what it should hold.
            known = frozenset(store.present(sorted(known)))
        documents = read_catalog(lake, catalog, "documents")
        inserted = 0
        old = {} if parent is None else {part.key for part in parent.parts["passages"]}
        for part in passages:
            if whole and part.key in old:
                continue
            inserted += store.insert(vector_rows(lake, part, documents, known))
        if inserted:
            store.flush()


def _known_ids(lake: Lake, parent: Snapshot | None, ref: VectorStoreRef) -> frozenset[str]:
    if parent is None or parent.vectors != ref:
        return frozenset()
    return frozenset(read_catalog(lake, parent.catalog, "chunks", ["chunk_id"], verify=True)["chunk_id"].to_list())


def vector_rows(lake: Lake, part: PartRef, documents: pl.DataFrame, known: frozenset[str]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a part in Milvus, except those of ``known`` ids."""
    folder = lake.open_folder(passages_folder(part.key), verify={"chunks.arrow", "vectors.npy"})
    chunks = read_arrow(folder / "chunks.arrow", ["chunk_id", "document"])
    vectors = map_array(folder / "vectors.npy")
    columns: Mapping[int, Any] = {
        row["row"]: row for row in documents.filter(pl.col("shard") == part.shard).iter_rows(named=True)
    }
    for index, (chunk_id, document) in enumerate(chunks.iter_rows()):
        if chunk_id in known:
            continue
        row = columns[document]
        yield {
            "chunk_id": chunk_id,
            "vector": np.asarray(vectors[index]).tolist(),
            "doc_id": row["doc_id"],
            "source": row["source"],
            "uri": row["uri"],
            "type": row["type"],
            "language": row["language"],
            "date": (row["date"] - EPOCH).days if row["date"] else NO_DATE,
            "tags_id": row["tags_id"],
            "acl_id": row["acl_id"],
        }


def assemble(
    space: Workspace, lake: Lake, plan: Plan, parts: Mapping[Stage, Sequence[PartRef]], catalog: str, bm25: str
) -> Snapshot:
    """Return the snapshot that names everything of a candidate."""
    vectors = vector_store(space)
    indexing = indexing_digest(space.config, space.stages)
    passages = parts["passages"]
    return Snapshot(
        id=identify(lake, indexing, catalog, passages),
        layout=layout_digest(catalog, bm25, vectors, parts),
        collection=space.collection,
        created=dt.datetime.now(dt.UTC),
        parent=plan.parent,
        indexing_digest=indexing,
        config_digests={**space.stages, "stores": stores_digest(space.config)},
        shards=plan.shards,
        parts={stage: tuple(parts[stage]) for stage in STAGES},
        catalog=catalog,
        bm25=bm25,
        vectors=vectors,
        counts=count(passages),
        settings=space.config.result_settings(),
    )


def layout_digest(catalog: str, bm25: str, vectors: VectorStoreRef, parts: Mapping[Stage, Sequence[PartRef]]) -> str:
    """Return the digest of the keys of all that a snapshot names."""
    keys = (ref.key for stage in STAGES for ref in parts[stage])
    return digest("layout", catalog, bm25, vectors.collection, *keys)[:32]


def count(passages: Sequence[PartRef]) -> Counts:
    """Return what the passages of all shards hold."""
    return Counts(
        documents=sum(ref.counts["documents"] for ref in passages),
        chunks=sum(ref.counts["chunks"] for ref in passages),
        parents=sum(ref.counts["parents"] for ref in passages),
    )


def verify(space: Workspace, lake: Lake, snapshot: Snapshot, built: frozenset[int]) -> None:
    """Compare Milvus, BM25 and passages of a candidate: built shards by id, the rest by count.

    Raises:
        PublishRefused: they do not hold the same chunks.
    """
    chunks = read_catalog(lake, snapshot.catalog, "chunks", ["chunk_id", "shard"])
    index = Bm25Index.open(lake.open_folder(bm25_folder(snapshot.bm25)))
    if index.size != chunks.height:
        raise PublishRefused(f"BM25 holds {index.size} chunks, the passages {chunks.height}", hint="glossator doctor")
    with closing(open_milvus(space.config.milvus, lake, snapshot.vectors)) as store:
        changed = chunks.filter(pl.col("shard").is_in(sorted(built)))["chunk_id"].to_list()
        missing = set(changed) - store.present(changed)
        if missing:
            raise PublishRefused(
                f"Milvus lacks {len(missing)} of {len(changed)} new chunks", hint="run `glossator index` again"
            )
        count = store.count()
        if count < chunks.height:
            raise PublishRefused(
                f"Milvus holds {count} rows, the snapshot {chunks.height} chunks", hint="glossator doctor"
            )


def flip(
    lake: Lake, plan: Plan, snapshot: Snapshot, *, author: str, reason: str, now: dt.datetime | None = None
) -> Flip:
    """Publish a verified candidate.

    Raises:
        Overtaken: somebody else published, or changed who may see what, since the plan was made.
        PublishRefused: publishing is held.
    """
    newest = lake.current_flip()
    if newest is not None and newest.hold:
        raise PublishRefused(describe_hold(lake, newest), hint="glossator resume")
    _refuse_purged(lake, snapshot)
    record_sources(lake, plan.new_sources)
    said = _said(lake, plan, snapshot)
    stamp = narrow(lake, said, plan.access)  # Whoever is killed here has opened nothing.
    lake.write_snapshot(snapshot)
    pointer = point(lake, plan.flip + 1, snapshot.name, author=author, reason=reason, now=now)
    widen(lake, _said(lake, plan, snapshot, only_read=True), stamp)  # Killed before: the next run does.
    return pointer


def _refuse_purged(lake: Lake, snapshot: Snapshot) -> None:
    ids = read_catalog(lake, snapshot.catalog, "documents", ["doc_id"])["doc_id"]
    purged = [stone for doc_id, stone in read_tombstones(lake).items() if doc_id in ids]
    if purged:
        raise Overtaken(f"{purged[0].source}/{purged[0].uri} was purged since the plan was made")


def _said(lake: Lake, plan: Plan, snapshot: Snapshot, *, only_read: bool = False) -> Said:
    """Return what a snapshot says of its documents' groups.

    Args:
        only_read: of those alone that were listed and could be read: what a rollback or an older version says of the
            others is not what they say today.
    """
    documents = read_catalog(lake, snapshot.catalog, "documents", ["doc_id", "source", "groups"])
    some = documents.filter(pl.col("groups").is_not_null())
    groups = {doc_id: tuple(names) for doc_id, names in some.select("doc_id", "groups").iter_rows()}
    if only_read:
        listed = pl.col("source").is_in([source.name for source in plan.sources])
        failing = pl.col("doc_id").is_in([failure.doc_id for failure in plan.failures])
        documents = documents.filter(listed & ~failing)
    return Said(frozenset(documents["doc_id"].to_list()), groups, plan.had_groups)
