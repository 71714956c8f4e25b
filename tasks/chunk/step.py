"""Chunk, for one shard: parents and children of each document, copied where the document's text is the same."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from schemas.documents import ChunkedDocument, Span
from schemas.identity import digest_rows, part_key
from schemas.rows import page_range
from schemas.snapshot import Failure, PartRef
from schemas.tables import SPANS
from schemas.work import ShardJob, Workspace
from tasks.chunk.chunker import chunk_document
from tasks.embed.model import locate_model
from tasks.embed.tokenizer import Tokenizer, open_tokenizer
from tasks.progress import expect, tick
from tasks.step import donor_tables, lake_of, parts_step

Row = dict[str, Any]
_READS = ["doc_id", "source", "uri", "content_digest", "structure_digest", "type", "syntax", "pages", "text"]


def _key(space: Workspace, job: ShardJob, loaded: PartRef) -> str:
    return part_key("chunk", 1, space.stages["chunk"], loaded.reads["structure"])


def _compute(space: Workspace, job: ShardJob, key: str, loaded: PartRef) -> PartRef:
    lake = lake_of(space)
    documents = lake.read_part("load", loaded.key, _READS)
    donors = _donor_rows(space, job, set(documents["structure_digest"].to_pylist()))
    tokenizer = open_tokenizer(locate_model(space.model.name))
    expect("chunk", documents.num_rows)
    rows: list[Row] = []
    failures: list[Failure] = []
    copied = 0
    for document in documents.to_pylist():
        donor = donors.get(document["structure_digest"])
        if donor is not None:
            rows.extend({**row, "doc_id": document["doc_id"]} for row in donor)
            copied += 1
        else:
            try:
                rows.extend(_chunk(document, tokenizer, space))
            except Exception as error:  # One bad document harms only itself.
                failures.append(_failure(document, error))
        tick("chunk")
    table = pa.Table.from_pylist(rows, schema=SPANS)
    ref = describe_spans(space.stages["chunk"], job.shard, key, table, failures, copied)
    return lake.write_part(ref, table)


def describe_spans(
    config: str, shard: int, key: str, table: pa.Table, failures: Iterable[Failure] = (), copied: int = 0
) -> PartRef:
    """Return the ref of a table of SPANS."""
    names = ["doc_id", "role", "index", "start", "end", "parent", "breadcrumb"]
    spans = digest_rows((*row, *path) for *row, path in zip(*(table[name].to_pylist() for name in names), strict=True))
    return PartRef(
        stage="chunk",
        shard=shard,
        key=key,
        config=config,
        reads={"spans": spans},
        rows_digest=spans,
        counts={"rows": table.num_rows, "documents_copied": copied},
        failures=tuple(failures),
    )


def _chunk(document: Row, tokenizer: Tokenizer, space: Workspace) -> Iterator[Row]:
    chunked = chunk_document(document["text"], document["type"], document["syntax"], tokenizer, space.config.chunk)
    yield from _rows(document, "child", chunked.children, chunked)
    yield from _rows(document, "parent", chunked.parents, chunked)


def _rows(document: Row, role: str, spans: tuple[Span, ...], chunked: ChunkedDocument) -> Iterator[Row]:
    for index, span in enumerate(spans):
        page_from, page_to = page_range(document["pages"], span.start, span.end)
        yield {
            "doc_id": document["doc_id"],
            "structure_digest": document["structure_digest"],
            "role": role,
            "index": index,
            "total": len(spans),
            "parent": chunked.parent_of[index] if role == "child" else -1,
            "start": span.start,
            "end": span.end,
            "breadcrumb": list(span.breadcrumb),
            "level": span.level,
            "page_from": page_from,
            "page_to": page_to,
            "kind": span.kind,
            "definitions": list(chunked.definitions) if role == "parent" and index == 0 else [],
        }


def _donor_rows(space: Workspace, job: ShardJob, digests: set[str]) -> Mapping[str, list[Row]]:
    rows: dict[str, list[Row]] = {}
    for table in donor_tables(space, job, "chunk"):
        mask = pc.is_in(table["structure_digest"], pa.array(sorted(digests), pa.string()))
        found: dict[tuple[str, str], list[Row]] = {}
        for row in table.filter(mask).to_pylist():
            found.setdefault((row["structure_digest"], row["doc_id"]), []).append(row)
        for (structure, _), group in found.items():
            rows.setdefault(structure, group)
    return rows


def _failure(document: Row, error: Exception) -> Failure:
    return Failure(
        doc_id=document["doc_id"],
        source=document["source"],
        uri=document["uri"],
        stage="chunk",
        kind=type(error).__name__,
        message=f"cannot be divided into chunks: {error}",
        traceback="".join(traceback.format_exception(error)),
        content_digest=document["content_digest"],
    )


CHUNK = parts_step("chunk", _key, _compute)
