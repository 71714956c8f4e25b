"""What is published, from where, and what is not in it."""

from __future__ import annotations

import datetime as dt

import polars as pl

from schemas.identity import PUBLIC_ACL
from schemas.snapshot import Counts, Record, Snapshot
from schemas.work import SourceSpec
from tasks.lake.access import Access, read_access
from tasks.lake.lake import Lake, catalog_folder
from tasks.plan.quarantine import Quarantined, read_quarantine
from tasks.plan.registry import list_sources


class Status(Record):
    """State of a collection; everything but sources, quarantine and purged is None before the first publish.

    Attributes:
        restricted: published documents that only some groups may see; None where the catalog is damaged.
        purged: tombstones.
        returned: published sources that are recorded no more: a rollback brought back what had been removed.
    """

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
    restricted: int | None = None
    purged: int = 0
    sources: tuple[SourceSpec, ...] = ()
    returned: tuple[str, ...] = ()
    quarantine: tuple[Quarantined, ...] = ()


def read_status(lake: Lake) -> Status:
    """Read the state of a collection. Reads a handful of small files."""
    access = read_access(lake)
    flip = lake.current_flip()
    snapshot = lake.read_snapshot(flip.snapshot) if flip else None
    documents = _documents(lake, snapshot) if snapshot else None
    sources = tuple(list_sources(lake))
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
        restricted=_restricted(documents, access) if documents is not None else None,
        purged=len(access.tombstones),
        sources=sources,
        returned=tuple(sorted({*documents["source"]} - {spec.name for spec in sources}))
        if documents is not None
        else (),
        quarantine=tuple(read_quarantine(lake).values()),
    )


def _documents(lake: Lake, snapshot: Snapshot) -> pl.DataFrame | None:
    """Return what the status counts of each published document; None where the catalog is damaged."""
    path = lake.storage.local(f"{catalog_folder(snapshot.catalog)}/documents.arrow")
    try:
        return pl.read_ipc(path, columns=["doc_id", "source", "acl_id"])
    except (pl.exceptions.PolarsError, OSError):  # The doctor says so.
        return None


def _restricted(documents: pl.DataFrame, access: Access) -> int:
    has_groups = (pl.col("acl_id") != PUBLIC_ACL) | pl.col("doc_id").is_in(list(access.groups))
    return documents.filter(has_groups).height
