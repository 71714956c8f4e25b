"""Identity: when two things are the same. The only place where ids, digests and keys are defined.

Every hash is SHA-256 (FIPS 180-4) over *length-prefixed* fields, so that ``("ab", "c")`` and ``("a", "bc")``
differ. Digests are lower-case hexadecimal; their lengths are constants here.

- ``document_id``: a source and a URI in it. A moved document is another document.
- ``chunk_id``: a *version* of a chunk. It changes exactly when the row that a reader would see changes, so
  rows are written once and never edited.
- ``embed_key``: a model and the text that it embeds. Copies and renamed documents share vectors by it.
- ``part_key``: a stage, its version, its config, and what it reads of the stage before.
- ``snapshot_id``: what a reader can find. How it was built (shards, retries, history) does not enter.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable

from schemas.documents import Metadata

Field = str | bytes | int | None

DOC_ID_LENGTH = 16
KEY_LENGTH = 32
CONTENT_DIGEST_LENGTH = 64
DOCUMENTS_PER_SHARD = 256
PUBLIC_ACL = 0


class _Hasher:
    """SHA-256 over typed, length-prefixed fields."""

    def __init__(self) -> None:
        self._sha = hashlib.sha256()

    def add(self, field: Field) -> None:
        match field:
            case None:
                tag, data = b"n", b""
            case bytes():
                tag, data = b"b", field
            case bool():
                raise TypeError("hash an explicit word, not a bool")
            case int():
                tag, data = b"i", str(field).encode("ascii")
            case str():
                # A lone surrogate has no UTF-8 form; loaders never let one through, file names may.
                tag, data = b"s", field.encode("utf-8", "surrogatepass")
        self._sha.update(tag + struct.pack(">Q", len(data)))
        self._sha.update(data)

    def hexdigest(self) -> str:
        return self._sha.hexdigest()


def digest(*fields: Field) -> str:
    """Return the 64-digit digest of ``fields``; order and type count."""
    hasher = _Hasher()
    for field in fields:
        hasher.add(field)
    return hasher.hexdigest()


def digest_rows(rows: Iterable[tuple[Field, ...]]) -> str:
    """Return the 32-digit digest of a set of rows: the order in which they come does not count."""
    hasher = _Hasher()
    for row in sorted(digest(*row) for row in rows):
        hasher.add(row)
    return hasher.hexdigest()[:KEY_LENGTH]


def document_id(source: str, uri: str) -> str:
    """Return the id of the document at ``uri`` (relative to the source's root) in ``source``."""
    return digest("document", source, uri)[:DOC_ID_LENGTH]


def content_digest(data: bytes) -> str:
    """Return the plain SHA-256 of a file's bytes, as ``sha256sum`` prints it."""
    return hashlib.sha256(data).hexdigest()


def text_digest(text: str) -> str:
    """Return the digest of a normalised text."""
    return digest("text", text)[:KEY_LENGTH]


def structure_digest(text: str, type_: str, syntax: str | None, pages: tuple[int, ...]) -> str:
    """Return the digest of all that chunking reads of a document."""
    return digest("structure", text_digest(text), type_, syntax, *pages)[:KEY_LENGTH]


def metadata_digest(metadata: Metadata, pages: tuple[int, ...]) -> str:
    """Return the digest of what a reader sees of a document beside its text."""
    return digest(
        "metadata",
        metadata.title,
        metadata.type,
        metadata.syntax,
        metadata.language,
        metadata.date.isoformat() if metadata.date else None,
        len(metadata.tags),
        *sorted(metadata.tags),
        None if metadata.groups is None else len(metadata.groups),
        *sorted(metadata.groups or ()),
        *pages,
    )[:KEY_LENGTH]


def set_id(kind: str, members: Iterable[str]) -> int:
    """Intern a set of strings (access groups, tags) as a positive 63-bit integer.

    The id is a function of the set, so that no table has to be kept or migrated.
    """
    return int(digest(kind, *sorted(set(members)))[:16], 16) >> 1


def acl_id(groups: tuple[str, ...] | None) -> int:
    """Return the access id of a set of groups; 0 where a document states none."""
    return PUBLIC_ACL if groups is None else set_id("acl", groups)


def tags_id(tags: Iterable[str]) -> int:
    """Return the id of a set of tags; 0 for no tags."""
    members = set(tags)
    return set_id("tags", members) if members else 0


def embedded_text(context: str, chunk: str) -> str:
    """Return what is embedded and indexed for a chunk: its context, a blank line, the chunk."""
    return f"{context}\n\n{chunk}" if context else chunk


def embedded_digest(embedded: str) -> str:
    """Return the digest of an embedded text: what tokens are cached under, whatever the model."""
    return digest("embedded", embedded)[:KEY_LENGTH]


def embed_key(model_identity: str, embedded: str) -> str:
    """Return the key under which a vector is cached.

    Args:
        model_identity: see embed.model.model_identity.
        embedded: ``embedded_digest`` of the text.
    """
    return digest("vector", model_identity, embedded)[:KEY_LENGTH]


def chunk_id(doc_id: str, embedded: str, metadata: Metadata, occurrence: int) -> str:
    """Return the id of a chunk's version.

    Args:
        doc_id: the document that it belongs to.
        embedded: context and chunk, as embedded.
        metadata: the document's filterable metadata (title and pages are looked up, not filtered by).
        occurrence: 0 for the first chunk of the document with this embedded text, 1 for the next.
    """
    return digest(
        "chunk",
        doc_id,
        embedded,
        metadata.type,
        metadata.language,
        metadata.date.isoformat() if metadata.date else None,
        tags_id(metadata.tags),
        acl_id(metadata.groups),
        occurrence,
    )[:KEY_LENGTH]


def part_key(stage: str, version: int, config_digest: str, *inputs: Field) -> str:
    """Return the key of a part: stage, stage version, its config, and what it reads."""
    return digest("part", stage, version, config_digest, *inputs)[:KEY_LENGTH]


def snapshot_id(
    config_digest: str,
    documents: Iterable[tuple[str, str, str]],
    chunks: Iterable[tuple[str, int, int]],
) -> str:
    """Return the id of a snapshot.

    Args:
        config_digest: digest of the result-affecting config.
        documents: (doc_id, text digest, metadata digest) of each document.
        chunks: (chunk_id, start, end) of each chunk.
    """
    return digest("snapshot", config_digest, digest_rows(documents), digest_rows(chunks))[:KEY_LENGTH]


def shard_of(doc_id: str, shards: int) -> int:
    """Return the shard of a document; ``shards`` is a power of two."""
    return int(doc_id, 16) & (shards - 1)


def shard_count(documents: int) -> int:
    """Return the power of two nearest to ``documents / 256`` from above, at least 1."""
    shards = 1
    while shards * DOCUMENTS_PER_SHARD < documents:
        shards *= 2
    return shards
