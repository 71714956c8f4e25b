"""Chunk, for one shard: parents and children of each document, copied where the document's text is the same.

A document that cannot be chunked is left out of the part, and of its key: the part then stands for what it holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from schemas.documents import ChunkedDocument, Span
from schemas.errors import GlossatorError, TransientError
from schemas.identity import digest_rows, part_key
from schemas.rows import page_range
from schemas.snapshot import Failure, PartRef
from schemas.tables import SPANS
from schemas.work import ShardJob, Workspace
from tasks.chunk.chunker import chunk_document
from tasks.chunk.structure import read_structure_within
from tasks.embed.model import locate_model
from tasks.embed.tokenizer import Tokenizer, open_tokenizer
from tasks.progress import expect, tick
from tasks.step import donor_tables, failure_of, lake_of, parts_step

Row = dict[str, Any]
_READS = ["doc_id", "source", "uri", "content_digest", "structure_digest", "type", "syntax", "pages", "text"]
_PLAIN = ["doc_id", "role", "index", "start", "end", "parent", "level", "kind"]
_FIELDS = [*_PLAIN, "breadcrumb", "definitions"]


def _key(space: Workspace, job: ShardJob, loaded: PartRef) -> str:
    return _key_of(space, loaded.reads["structure"])


def _key_of(space: Workspace, structure: str) -> str:
    return part_key("chunk", space.stages["chunk"], structure)


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
            except TransientError:
                raise
            except Exception as error:  # One bad document harms only itself.
                why = error.message if isinstance(error, GlossatorError) else error
                message = f"cannot be divided into chunks: {why}"
                failures.append(failure_of("chunk", document, error, message, document["content_digest"]))
        tick("chunk")
    if failures:
        failed = {failure.doc_id for failure in failures}
        pairs = zip(documents["doc_id"].to_pylist(), documents["structure_digest"].to_pylist(), strict=True)
        key = _key_of(space, digest_rows(pair for pair in pairs if pair[0] not in failed))
    table = pa.Table.from_pylist(rows, schema=SPANS)
    return lake.write_part(describe_spans(space.stages["chunk"], job.shard, key, table, failures, copied), table)


def describe_spans(
    config: str, shard: int, key: str, table: pa.Table, failures: Iterable[Failure] = (), copied: int = 0
) -> PartRef:
    """Return the ref of a table of SPANS."""
    spans = digest_rows(_fields(row) for row in table.select(_FIELDS).to_pylist())
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
    text, type_, syntax = document["text"], document["type"], document["syntax"]
    structure = read_structure_within(space.config.load, text, type_, syntax, document["uri"])
    chunked = chunk_document(text, type_, syntax, tokenizer, space.config.chunk, structure)
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


def _fields(row: Row) -> tuple[str | int, ...]:
    """Return all that a later stage reads of a span; pages and the total follow from what the key stands for."""
    return (
        *(row[name] for name in _PLAIN),
        len(row["breadcrumb"]),
        *row["breadcrumb"],
        *row["definitions"],
    )


def _donor_rows(space: Workspace, job: ShardJob, digests: set[str]) -> Mapping[str, list[Row]]:
    rows: dict[str, list[Row]] = {}
    for table in donor_tables(space, job, "chunk"):
        mask = pc.is_in(table["structure_digest"], pa.array(sorted(digests), pa.string()))
        found: dict[tuple[str, str], list[Row]] = {}
        for row in table.filter(mask).to_pylist():
            found.setdefault((row["structure_digest"], row["doc_id"]), []).append(row)
        for (structure, _), group in found.items():
            rows.setdefault(structure, group)
        if digests <= rows.keys():
            break
    return rows


CHUNK = parts_step("chunk", _key, _compute)
