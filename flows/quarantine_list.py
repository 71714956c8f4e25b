"""The quarantine as people ask for it: what fails, since when, when it is tried again, and what serves meanwhile."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Literal

from schemas.errors import UsageError
from schemas.snapshot import Record, Stage
from tasks.lake.lake import Lake
from tasks.plan.quarantine import read_quarantine
from tasks.plan.registry import meanings

Retry = Literal["next index", "when the file changes"]


class QuarantineEntry(Record):
    """A document in quarantine.

    Attributes:
        kind: class of the error.
        since: when it began to fail; None where an earlier version wrote no time. ``tried``: when it failed last.
        retry: when it is tried again. A change of the code or config of a stage up to ``stage`` does it too.
        stale: an earlier version of the document is published and serves on.
    """

    doc_id: str
    source: str
    uri: str
    stage: Stage
    kind: str
    message: str
    traceback: str
    since: dt.datetime | None
    tried: dt.datetime | None
    attempts: int
    retry: Retry
    stale: bool


def read_entries(lake: Lake) -> list[QuarantineEntry]:
    """Return the quarantine by source and URI."""
    items = read_quarantine(lake)
    published = _published(lake) if items else frozenset()
    return [
        QuarantineEntry(
            doc_id=doc_id,
            source=item.failure.source,
            uri=item.failure.uri,
            stage=item.failure.stage,
            kind=item.failure.kind,
            message=item.failure.message,
            traceback=item.failure.traceback,
            since=item.since,
            tried=item.tried,
            attempts=item.attempts,
            retry="when the file changes" if item.waits else "next index",
            stale=doc_id in published,
        )
        for doc_id, item in sorted(items.items(), key=lambda pair: (pair[1].failure.source, pair[1].failure.uri))
    ]


def select(entries: Sequence[QuarantineEntry], uris: Sequence[str]) -> list[QuarantineEntry]:
    """Return the entries that a person names, by ``uri`` or ``source/uri``; all where nothing is named.

    Raises:
        UsageError: one of them is not in quarantine.
    """
    if not uris:
        return list(entries)
    chosen = {}
    sources = {entry.source for entry in entries}
    for uri in uris:
        meant = meanings(uri, sources)
        found = [entry for entry in entries if (entry.source, entry.uri) in meant]
        if not found:
            raise UsageError(f"{uri} is not in quarantine", hint="`glossator quarantine list` shows what is")
        chosen.update({entry.doc_id: entry for entry in found})
    return list(chosen.values())


def _published(lake: Lake) -> frozenset[str]:
    snapshot = lake.current_snapshot()
    if snapshot is None:
        return frozenset()
    from tasks.publish.catalog import read_catalog

    return frozenset(read_catalog(lake, snapshot.catalog, "documents", ["doc_id"])["doc_id"].to_list())
