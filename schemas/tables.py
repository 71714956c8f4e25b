"""Arrow schemas of everything that is written as a table: parts, passages and the catalog.

Offsets are code points of the document's text. Rows are sorted by the first column(s), so that equal contents
give equal files.
"""

from __future__ import annotations

import pyarrow as pa

_strings = pa.list_(pa.string())
_metadata = [
    ("type", pa.string()),
    ("title", pa.string()),
    ("syntax", pa.string()),
    ("language", pa.string()),
    ("tags", _strings),
    ("date", pa.date32()),
    ("groups", _strings),
]
_access = [("stated_groups", _strings), ("granted", pa.string())]
"""Where ``groups``, the ones that count, come from: see schemas.access."""
_identity = [("doc_id", pa.string()), ("source", pa.string()), ("uri", pa.string())]
_digests = [
    ("content_digest", pa.string()),
    ("text_digest", pa.string()),
    ("metadata_digest", pa.string()),
]
_span = [
    ("start", pa.int64()),
    ("end", pa.int64()),
    ("breadcrumb", _strings),
    ("level", pa.int16()),
    ("page_from", pa.int32()),
    ("page_to", pa.int32()),
    ("kind", pa.string()),
]

PLAN = pa.schema(
    [
        ("shard", pa.int32()),
        *_identity,
        ("content_digest", pa.string()),
        ("granted", pa.string()),
        ("action", pa.string()),
    ]
)
"""One row per document of the target corpus in a shard that changes; ``action`` is one of plan.changes.ACTIONS,
``granted`` as in access.canonical. A row of a part is the same when doc_id, content_digest and granted are."""

DOCUMENTS = pa.schema(
    [
        *_identity,
        *_digests,
        ("structure_digest", pa.string()),
        *_metadata,
        *_access,
        ("pages", pa.list_(pa.int64())),
        ("flags", _strings),
        ("text", pa.large_string()),
    ]
)
"""Stage load: sorted by doc_id."""

SPANS = pa.schema(
    [
        ("doc_id", pa.string()),
        ("structure_digest", pa.string()),
        ("role", pa.string()),
        ("index", pa.int32()),
        ("total", pa.int32()),
        ("parent", pa.int32()),
        *_span,
        ("definitions", _strings),
    ]
)
"""Stage chunk: sorted by doc_id, role (child before parent), index. ``parent`` is the index of the parent that
contains a child, -1 for a parent. ``definitions`` (names that the document defines) stands on parent 0."""

CONTEXTS = pa.schema(
    [
        ("doc_id", pa.string()),
        ("index", pa.int32()),
        ("chunk_id", pa.string()),
        ("context", pa.string()),
        ("origin", pa.string()),
        ("language", pa.string()),
        ("embedded_digest", pa.string()),
        ("embedded", pa.large_string()),
    ]
)
"""Stage contextualize: one row per child, sorted by doc_id, index. ``embedded`` is context and chunk."""

TOKENS = pa.schema(
    [
        ("embedded_digest", pa.string()),
        ("tokens", pa.list_(pa.dictionary(pa.int32(), pa.string()))),
    ]
)
"""Stage tokens: one row per distinct embedded text, sorted by its digest."""


def vectors(dimension: int) -> pa.Schema:
    """Stage embed: one row per distinct embedded text, sorted by embed_key; L2-normalised float32."""
    return pa.schema([("embed_key", pa.string()), ("vector", pa.list_(pa.float32(), dimension))])


PASSAGE_DOCUMENTS = pa.schema(
    [
        *_identity,
        *_digests,
        *_metadata,
        *_access,
        ("pages", pa.list_(pa.int64())),
        ("flags", _strings),
        ("text", pa.large_string()),
    ]
)
"""Passages: the documents of a shard, sorted by doc_id."""

PASSAGE_PARENTS = pa.schema([("document", pa.int32()), ("index", pa.int32()), *_span])
"""Passages: parents of a shard; ``document`` is a row of PASSAGE_DOCUMENTS."""

PASSAGE_CHUNKS = pa.schema(
    [
        ("chunk_id", pa.string()),
        ("document", pa.int32()),
        ("parent", pa.int32()),
        ("index", pa.int32()),
        ("total", pa.int32()),
        *_span,
        ("context", pa.string()),
        ("origin", pa.string()),
        ("embedded_digest", pa.string()),
    ]
)
"""Passages: chunks of a shard, sorted by chunk_id. ``parent`` is a row of PASSAGE_PARENTS. Row i of
``vectors.npy`` beside it is the vector of row i."""

CATALOG_DOCUMENTS = pa.schema(
    [
        *_identity,
        *_digests,
        *_metadata,
        *_access,
        ("acl_id", pa.int64()),
        ("tags_id", pa.int64()),
        ("shard", pa.int32()),
        ("row", pa.int32()),
        ("chunks", pa.int32()),
        ("flags", _strings),
    ]
)
"""Catalog: all documents of a snapshot, sorted by doc_id; ``row`` is a row of the shard's passages."""

CATALOG_CHUNKS = pa.schema(
    [("chunk_id", pa.string()), ("document", pa.int32()), ("shard", pa.int32()), ("row", pa.int32())]
)
"""Catalog: all chunks of a snapshot, sorted by chunk_id: row i is document i of the BM25 index. ``document`` is a
row of CATALOG_DOCUMENTS; ``row`` is a row of the shard's passages."""
