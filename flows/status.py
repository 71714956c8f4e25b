"""What is published, from where, and what is not in it."""

from __future__ import annotations

import datetime as dt

from schemas.snapshot import Counts, Record
from schemas.work import SourceSpec
from tasks.lake.lake import Lake
from tasks.plan.quarantine import Quarantined, read_quarantine
from tasks.plan.registry import list_sources


class Status(Record):
    """State of a collection; everything but sources and quarantine is None before the first publish."""

    collection: str
    lake: str
    snapshot: str | None = None
    flip: int | None = None
    published: dt.datetime | None = None
    author: str | None = None
    reason: str | None = None
    hold: bool = False
    model: str | None = None
    shards: int | None = None
    counts: Counts | None = None
    sources: tuple[SourceSpec, ...] = ()
    quarantine: tuple[Quarantined, ...] = ()


def read_status(lake: Lake) -> Status:
    """Read the state of a collection. Reads a handful of small files."""
    flip = lake.current_flip()
    snapshot = lake.read_snapshot(flip.snapshot) if flip else None
    return Status(
        collection=lake.collection,
        lake=str(lake.root),
        snapshot=snapshot.id if snapshot else None,
        flip=flip.number if flip else None,
        published=flip.created if flip else None,
        author=flip.author if flip else None,
        reason=flip.reason if flip else None,
        hold=flip.hold if flip else False,
        model=snapshot.vectors.model if snapshot else None,
        shards=snapshot.shards if snapshot else None,
        counts=snapshot.counts if snapshot else None,
        sources=tuple(list_sources(lake)),
        quarantine=tuple(read_quarantine(lake).values()),
    )
