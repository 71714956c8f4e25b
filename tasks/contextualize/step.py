"""Contextualize, for one shard: context, embedded text and id of every chunk.

The embedded text (context, blank line, chunk) is checked against the model's window by its own tokenizer; a context
that would push a chunk over the edge is shortened, the chunk never.

A document whose contexts cannot be made is left out, and of the part's key: none is indexed with empty ones instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa

from schemas.documents import Span
from schemas.errors import GlossatorError, TransientError
from schemas.identity import chunk_id, digest_rows, embedded_digest, embedded_text, part_key
from schemas.rows import metadata_of, span_of
from schemas.snapshot import Failure, PartRef
from schemas.tables import CONTEXTS
from schemas.work import ShardJob, Workspace
from tasks.contextualize.structural import structural_context, table_headers
from tasks.embed.model import locate_model
from tasks.embed.tokenizer import Tokenizer, open_tokenizer
from tasks.progress import expect, tick
from tasks.step import failure_of, lake_of, parts_step

Row = dict[str, Any]


def _key(space: Workspace, job: ShardJob, loaded: PartRef, chunked: PartRef) -> str:
    return part_key(
        "contextualize",
        space.stages["contextualize"],
        loaded.reads["structure"],
        loaded.reads["metadata"],
        chunked.reads["spans"],
    )


def _compute(space: Workspace, job: ShardJob, key: str, loaded: PartRef, chunked: PartRef) -> PartRef:
    lake = lake_of(space)
    documents = {row["doc_id"]: row for row in lake.read_part("load", loaded.key).to_pylist()}
    spans = pl.DataFrame(pl.from_arrow(lake.read_part("chunk", chunked.key)))
    tokenizer = open_tokenizer(locate_model(space.model.name))
    expect("contextualize", len(documents))
    rows: list[Row] = []
    failures: list[Failure] = []
    for (doc_id,), group in spans.group_by("doc_id", maintain_order=True):
        document = documents[str(doc_id)]
        children = group.filter(pl.col("role") == "child").rows(named=True)
        definitions = group.filter(pl.col("role") == "parent")["definitions"].explode().drop_nulls().to_list()
        try:
            rows.extend([*_contexts(document, children, definitions, tokenizer, space)])
        except TransientError:
            raise
        except Exception as error:  # One bad document harms only itself.
            message = error.message if isinstance(error, GlossatorError) else f"cannot be given contexts: {error}"
            failures.append(failure_of("contextualize", document, error, message, document["content_digest"]))
        tick("contextualize")
    if failures:
        key = part_key("contextualize", key, "without", *sorted(failure.doc_id for failure in failures))
    table = pa.Table.from_pylist(rows, schema=CONTEXTS)
    return lake.write_part(describe_contexts(space.stages["contextualize"], job.shard, key, table, failures), table)


def describe_contexts(config: str, shard: int, key: str, table: pa.Table, failures: Iterable[Failure] = ()) -> PartRef:
    """Return the ref of a table of CONTEXTS."""
    digests = table["embedded_digest"].to_pylist()
    chunks = digest_rows(zip(table["chunk_id"].to_pylist(), digests, strict=True))
    return PartRef(
        stage="contextualize",
        shard=shard,
        key=key,
        config=config,
        reads={"chunks": chunks, "embedded": digest_rows((value,) for value in set(digests))},
        rows_digest=chunks,
        counts={"chunks": table.num_rows},
        failures=tuple(failures),
    )


def _contexts(
    document: Row, children: Sequence[Row], definitions: Sequence[str], tokenizer: Tokenizer, space: Workspace
) -> Iterator[Row]:
    metadata = metadata_of(document)
    seen: Counter[str] = Counter()
    spans = [span_of(child) for child in children]
    headers = table_headers(document["text"], spans)
    for child, span, columns in zip(children, spans, headers, strict=True):
        place = _Place(document, span, definitions, columns)
        context, embedded = _embedded(place, tokenizer, space)
        occurrence = seen[embedded]
        seen[embedded] += 1
        yield {
            "doc_id": document["doc_id"],
            "index": child["index"],
            "chunk_id": chunk_id(document["doc_id"], embedded, metadata, occurrence),
            "context": context,
            "origin": space.config.context.mode,
            "language": metadata.language,
            "embedded_digest": embedded_digest(embedded),
            "embedded": embedded,
        }


@dataclass(frozen=True, slots=True)
class _Place:
    """A chunk, and what its context is made of."""

    document: Row
    span: Span
    definitions: Sequence[str]
    columns: str | None

    @property
    def chunk(self) -> str:
        text: str = self.document["text"]
        return text[self.span.start : self.span.end]

    def context(self, tokenizer: Tokenizer, limit: int) -> str:
        return structural_context(
            self.document["title"], self.span, self.chunk, self.definitions, tokenizer, limit, columns=self.columns
        )


def _embedded(place: _Place, tokenizer: Tokenizer, space: Workspace) -> tuple[str, str]:
    """Return the context and the embedded text, which fits the window."""
    config, chunk, room = space.config.context, place.chunk, space.model.window
    limit = config.reserve_tokens if config.mode == "structural" else 0
    while True:
        context = place.context(tokenizer, limit) if limit > 0 else ""
        embedded = embedded_text(context, chunk)
        tokens = tokenizer.count(embedded)
        if tokens <= room:
            return context, embedded
        if not context:
            raise GlossatorError(
                f"a chunk of {tokens} tokens does not fit the model's window of {room}",
                document=place.document["uri"],
                hint="lower chunk.child_tokens",
            )
        limit -= max(1, tokens - room)


CONTEXTUALIZE = parts_step("contextualize", _key, _compute)
