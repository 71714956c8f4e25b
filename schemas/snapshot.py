"""Snapshots and flips: what readers can find, and the one pointer that says which.

``parts`` describe what was computed; a ``Snapshot`` names one part per stage and shard and the stores built of
them; a ``Flip`` makes one snapshot the one that readers use. All three are small JSON documents, written once.
"""

from __future__ import annotations

import datetime as dt
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from schemas.config import Setting

Stage = Literal["load", "chunk", "contextualize", "embed", "tokens", "passages"]
STAGES: tuple[Stage, ...] = ("load", "chunk", "contextualize", "embed", "tokens", "passages")
SHORT = 12
"""Characters of a snapshot's name that people are shown; its beginning is enough for every command."""


class Record(BaseModel):
    """A JSON document of the lake."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Failure(Record):
    """Why a document is not in a part.

    Attributes:
        kind: name of the error's class.
        transient: True when the same input may work later.
        content_digest: the version that failed; "" where its bytes could not be read.
    """

    doc_id: str
    source: str
    uri: str
    stage: Stage
    kind: str
    message: str
    traceback: str = ""
    transient: bool = False
    content_digest: str = ""


class PartRef(Record):
    """A part, and what the next stage must know to name its own without opening this one.

    Attributes:
        key: name of the file below ``parts/<stage>/``.
        config: digest of the config and stage version that made it; rows may be copied only within it.
        reads: digest per aspect that some later stage reads ("text", "metadata", "spans", ...).
        rows_digest: digest of the canonical rows, without vectors, clocks and messages.
        counts: rows, and how they came about ("computed", "copied").
        failures: documents that this stage could not process.
        reused: True when the part was there already.
    """

    stage: Stage
    shard: int
    key: str
    config: str
    reads: dict[str, str] = Field(default_factory=dict)
    rows_digest: str = ""
    counts: dict[str, int] = Field(default_factory=dict)
    failures: tuple[Failure, ...] = ()
    reused: bool = False


class VectorStoreRef(Record):
    """Where the vectors of a snapshot are."""

    collection: str
    dimension: int
    model: str
    model_identity: str


class Counts(Record):
    """What a snapshot holds."""

    documents: int
    chunks: int
    parents: int


class Snapshot(Record):
    """One complete, immutable index.

    Attributes:
        id: identity.snapshot_id.
        layout: digest of the keys below. Equal contents in another layout (re-sharded, rebuilt) keep their id.
        indexing_digest: all that decides the contents beside the documents (plan.stages.indexing_digest).
        config_digests: by stage, and of the "stores": what a plan compares to know what must be redone.
        settings: the configuration that decided what came out, by ``section.key``, to say what changed since; none in
            snapshots of earlier versions.
        parts: per stage, one part for each shard.
    """

    id: str
    layout: str
    collection: str
    created: dt.datetime
    parent: str | None
    indexing_digest: str
    config_digests: dict[str, str]
    shards: int
    parts: dict[Stage, tuple[PartRef, ...]]
    catalog: str
    bm25: str
    vectors: VectorStoreRef
    counts: Counts
    settings: dict[str, Setting] = Field(default_factory=dict)
    format: int = 1

    @property
    def name(self) -> str:
        """File name below ``snapshots/``, without the ending."""
        return f"{self.id}-{self.layout[:8]}"


class Flip(Record):
    """From now on readers use this snapshot. The highest number counts."""

    number: int
    snapshot: str
    author: str
    reason: str
    created: dt.datetime
    retained: tuple[str, ...] = ()
    hold: bool = False
