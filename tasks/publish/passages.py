"""Passages, for one shard: the reader's side, as memory-mapped Arrow files for random access.

A reader takes single rows of it (a passage, its document's text, its parent's span) in well under a millisecond,
and the vectors for exact scoring of small filtered sets.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from schemas.errors import GlossatorError
from schemas.identity import digest_rows, embed_key, part_key
from schemas.snapshot import PartRef
from schemas.tables import PASSAGE_CHUNKS, PASSAGE_DOCUMENTS, PASSAGE_PARENTS
from schemas.work import ShardJob, Workspace
from tasks.embed.step import matrix
from tasks.lake.lake import Lake, ipc_bytes, passages_folder
from tasks.step import Step, lake_of

_SPAN = ["start", "end", "breadcrumb", "level", "page_from", "page_to", "kind"]


def _key(
    space: Workspace, job: ShardJob, loaded: PartRef, chunked: PartRef, contexts: PartRef, embedded: PartRef
) -> str:
    return part_key(
        "passages",
        space.stages["passages"],
        loaded.rows_digest,
        loaded.reads["metadata"],
        chunked.reads["spans"],
        contexts.reads["chunks"],
        embedded.key,
    )


def find_passages(lake: Lake, key: str) -> PartRef | None:
    """Return the ref of passages that were written completely and are whole, else None."""
    folder = passages_folder(key)
    if not lake.has_folder(folder, verify=True):
        return None
    try:
        ref = PartRef.model_validate_json(lake.storage.read(f"{folder}/ref.json"))
    except ValueError:  # Damaged: all of it is written anew.
        return None
    return ref.model_copy(update={"reused": True})


def _compute(
    space: Workspace,
    job: ShardJob,
    key: str,
    loaded: PartRef,
    chunked: PartRef,
    contexts: PartRef,
    embedded: PartRef,
) -> PartRef:
    lake = lake_of(space)
    spans = pl.DataFrame(pl.from_arrow(lake.read_part("chunk", chunked.key)))
    # A document of nothing but white space has no chunks and is kept: left out, every plan would find it new again.
    failed = pl.Series([failure.doc_id for failure in chunked.failures], dtype=pl.String)
    documents = pl.DataFrame(pl.from_arrow(lake.read_part("load", loaded.key))).filter(
        ~pl.col("doc_id").is_in(failed.implode())
    )
    documents = documents.sort("doc_id").with_row_index("document")
    places = documents.select("doc_id", pl.col("document").cast(pl.Int32))
    parents = (
        spans.filter(pl.col("role") == "parent")
        .join(places, on="doc_id")
        .sort("document", "index")
        .with_row_index("row")
    )
    rows = lake.read_part(
        "contextualize", contexts.key, ["doc_id", "index", "chunk_id", "context", "origin", "embedded_digest"]
    )
    chunks = (
        spans.filter(pl.col("role") == "child")
        .join(pl.DataFrame(pl.from_arrow(rows)), on=["doc_id", "index"])
        .join(places, on="doc_id")
        .join(
            parents.select("doc_id", parent="index", parent_row=pl.col("row").cast(pl.Int32)), on=["doc_id", "parent"]
        )
        .drop("parent")
        .rename({"parent_row": "parent"})
        .sort("chunk_id")
    )
    if chunks.height != rows.num_rows:
        raise GlossatorError(
            f"shard {job.shard}: {rows.num_rows} contexts for {chunks.height} chunks", hint="report it"
        )
    tables = {
        "documents.arrow": ipc_bytes(_cast(documents, PASSAGE_DOCUMENTS)),
        "parents.arrow": ipc_bytes(_cast(parents, PASSAGE_PARENTS)),
        "chunks.arrow": ipc_bytes(_cast(chunks, PASSAGE_CHUNKS)),
        "vectors.npy": _npy(_vectors(lake, space, chunks["embedded_digest"].to_list(), embedded)),
    }
    ref = PartRef(
        stage="passages",
        shard=job.shard,
        key=key,
        config=space.stages["passages"],
        rows_digest=digest_rows(chunks.select("chunk_id", "start", "end").iter_rows()),
        counts={"documents": documents.height, "parents": parents.height, "chunks": chunks.height},
    )
    lake.write_folder(passages_folder(key), {**tables, "ref.json": ref.model_dump_json().encode()})
    return ref


def _cast(frame: pl.DataFrame, schema: pa.Schema) -> pa.Table:
    return frame.select(schema.names).to_arrow().cast(schema)


def _vectors(lake: Lake, space: Workspace, digests: list[str], embedded: PartRef) -> np.ndarray[Any, Any]:
    part = lake.read_part("embed", embedded.key)
    rows = {key: row for row, key in enumerate(part["embed_key"].to_pylist())}
    wanted = [rows[embed_key(space.model.identity, digest)] for digest in digests]
    return matrix(part["vector"], space.model.dimension)[wanted]


def _npy(array: np.ndarray[Any, Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.ascontiguousarray(array, np.float32), allow_pickle=False)
    return buffer.getvalue()


PASSAGES = Step("passages", _key, _compute, find_passages)
