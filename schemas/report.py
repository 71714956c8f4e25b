"""What a run did: the object that ``index --json`` prints."""

from __future__ import annotations

from pydantic import Field

from schemas.plan import ChangeCounts, Redone
from schemas.snapshot import Failure, Record


class IndexReport(Record):
    """The result of a run.

    Attributes:
        snapshot: id of the published snapshot; "" when nothing is published yet.
        flip: number of the pointer that publishes it.
        redone: published documents that were done anew, since config, code or model changed; None otherwise.
        chunks: chunks of the snapshot.
        chunks_embedded: texts that went through the model in this run.
        chunks_reused: chunks whose vector was there already.
        usd: dollars spent on API calls.
        seconds: per stage, plus ``total``, which for a command is all of it; stages overlap: they may add up to more.
        skipped: by ending, files that no loader takes, and ``skipped_first`` a few of them as source/URI.
        left_out: (source/name, reason) of entries that cannot be documents at all: dead links, pipes.
        warnings: what went wrong after the index was published, and what nobody may have meant, in sentences.
        denied: (source/URI, reason) of documents that nobody may see, since their sidecar cannot be read.
        failed: documents that are not in the snapshot in their present version, and why.
        failed_before: doc_ids of those of ``failed`` that were in quarantine before this run, with the same error.
        mended: storage keys of what the published snapshot names and was missing or cut short; built anew.
    """

    collection: str
    snapshot: str
    flip: int
    documents: ChangeCounts
    redone: Redone | None = None
    chunks: int
    chunks_embedded: int = 0
    chunks_reused: int = 0
    llm_calls: int = 0
    usd: float = 0.0
    seconds: dict[str, float] = Field(default_factory=dict)
    skipped: dict[str, int] = Field(default_factory=dict)
    skipped_first: tuple[str, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()
    denied: tuple[tuple[str, str], ...] = ()
    failed: tuple[Failure, ...] = ()
    failed_before: tuple[str, ...] = ()
    mended: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    published: bool = False
