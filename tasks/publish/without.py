"""A snapshot without a document, and the same in all else.

Its parts are made by copying the rows of all other documents of the shard, its stores by the ordinary steps. Nothing is
read from a source or embedded, and today's configuration is not asked: a snapshot of last week, made by another model,
is made anew as faithfully as that of today.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from schemas.config import Config
from schemas.identity import embed_key, shard_of
from schemas.snapshot import STAGES, PartRef, Snapshot, Stage
from schemas.work import ShardJob, Workspace
from tasks.chunk.step import CHUNK, describe_spans
from tasks.contextualize.step import CONTEXTUALIZE, describe_contexts
from tasks.embed.step import EMBED, describe_vectors
from tasks.lake.lake import Corrupt, Lake, bm25_folder, catalog_folder
from tasks.lake.storage import NotFound
from tasks.load.step import describe_documents
from tasks.publish.bm25 import Bm25Index
from tasks.publish.candidate import count, layout_digest, workspace_as_made
from tasks.publish.catalog import identify, read_catalog, write_catalog
from tasks.publish.lexical import write_bm25
from tasks.publish.passages import PASSAGES
from tasks.tokens.step import TOKENIZE, describe_terms, term_table

Refs = dict[Stage, PartRef]


def holds(lake: Lake, snapshot: Snapshot, doc_id: str) -> bool:
    """Tell whether a snapshot holds a document."""
    if lake.has_folder(catalog_folder(snapshot.catalog)):
        documents = read_catalog(lake, snapshot.catalog, "documents", ["doc_id"], verify=True)
        if not documents.filter(pl.col("doc_id") == doc_id).is_empty():
            return True
    # A document that could not be divided into chunks is in no catalog.
    try:
        loaded = lake.read_part("load", _shard(snapshot, doc_id)["load"].key, ["doc_id"])
    except NotFound:
        return False
    return doc_id in loaded["doc_id"].to_pylist()


def without(lake: Lake, snapshot: Snapshot, doc_id: str) -> Snapshot:
    """Build and return the snapshot without a document; it is not written and nobody reads it yet.

    Raises:
        GlossatorError: what the snapshot names is damaged, or its BM25 index is of another version of the analyzer.
    """
    bm25_config = Bm25Index.open(lake.open_folder(bm25_folder(snapshot.bm25))).settings.config
    space = workspace_as_made(lake, Config(collection=lake.collection), snapshot)
    built = _rebuilt(lake, space, _shard(snapshot, doc_id), doc_id)
    parts = {
        stage: tuple(built[stage] if ref.shard == built[stage].shard else ref for ref in snapshot.parts[stage])
        for stage in STAGES
    }
    catalog = write_catalog(lake, parts["passages"])
    bm25 = write_bm25(lake, bm25_config, catalog, parts["passages"], parts["tokens"])
    return snapshot.model_copy(
        update={
            "id": identify(lake, snapshot.indexing_digest, catalog, parts["passages"]),
            "layout": layout_digest(catalog, bm25, snapshot.vectors, parts),
            "parts": parts,
            "catalog": catalog,
            "bm25": bm25,
            "counts": count(parts["passages"]),
        }
    )


def _shard(snapshot: Snapshot, doc_id: str) -> Refs:
    """Return the parts of the document's shard."""
    number = shard_of(doc_id, snapshot.shards)
    return {stage: ref for stage in STAGES for ref in snapshot.parts[stage] if ref.shard == number}


def _rebuilt(lake: Lake, space: Workspace, refs: Refs, doc_id: str) -> Refs:
    """Write the parts of a shard without a document; return their refs."""
    job = ShardJob(shard=refs["load"].shard, plan="", load_key="")
    at: tuple[Any, ...] = (space, job)
    stages, shard = space.stages, job.shard

    documents = _others(lake, refs["load"], doc_id)
    failures = tuple(failure for failure in refs["load"].failures if failure.doc_id != doc_id)
    loaded = _write(lake, describe_documents(stages["load"], shard, documents, failures, documents.num_rows), documents)

    spans = _others(lake, refs["chunk"], doc_id)
    failures = tuple(failure for failure in refs["chunk"].failures if failure.doc_id != doc_id)
    chunked = _write(
        lake, describe_spans(stages["chunk"], shard, CHUNK.key(*at, loaded), spans, failures, documents.num_rows), spans
    )

    rows = _others(lake, refs["contextualize"], doc_id)
    key = CONTEXTUALIZE.key(*at, loaded, chunked)
    contexts = _write(lake, describe_contexts(stages["contextualize"], shard, key, rows), rows)

    digests = set(rows["embedded_digest"].to_pylist())
    vectors = _of(
        lake.read_part("embed", refs["embed"].key),
        "embed_key",
        {embed_key(space.model.identity, digest) for digest in digests},
    )
    key = EMBED.key(*at, contexts)
    embedded = _write(lake, describe_vectors(stages["embed"], shard, key, vectors["embed_key"].to_pylist()), vectors)

    held = _of(lake.read_part("tokens", refs["tokens"].key), "embedded_digest", digests)
    # Made anew: a filtered table would still hold the words of all rows in its dictionary.
    terms = term_table(dict(zip(held["embedded_digest"].to_pylist(), held["tokens"].to_pylist(), strict=True)))
    key = TOKENIZE.key(*at, contexts)
    tokens = _write(lake, describe_terms(stages["tokens"], shard, key, terms), terms)

    passages = PASSAGES.run(*at, loaded, chunked, contexts, embedded)
    return {
        "load": loaded,
        "chunk": chunked,
        "contextualize": contexts,
        "embed": embedded,
        "tokens": tokens,
        "passages": passages,
    }


def _write(lake: Lake, ref: PartRef, table: pa.Table) -> PartRef:
    """Write a part unless a purge that was cut off has done so."""
    try:
        found = lake.find_part(ref.stage, ref.key)
    except Corrupt:
        found = None
    # The key of a part does not tell which documents failed, and what they said may quote them.
    if found is not None and found.failures == ref.failures:
        return found.model_copy(update={"shard": ref.shard})
    return lake.write_part(ref, table)


def _others(lake: Lake, ref: PartRef, doc_id: str) -> pa.Table:
    table = lake.read_part(ref.stage, ref.key)
    return table.filter(pc.not_equal(table["doc_id"], doc_id))


def _of(table: pa.Table, column: str, values: Collection[str]) -> pa.Table:
    return table.filter(pc.is_in(table[column], pa.array(sorted(values), pa.string())))
