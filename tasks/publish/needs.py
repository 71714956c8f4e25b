"""What must stay: the snapshots that may still be read or gone back to, and everything that they name."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from schemas.errors import GlossatorError
from schemas.snapshot import Snapshot
from tasks.lake.lake import Corrupt, Lake
from tasks.publish.catalog import read_catalog
from tasks.publish.pins import read_pins


@dataclass(frozen=True, slots=True)
class Needs:
    """The snapshots that stay, read."""

    snapshots: tuple[Snapshot, ...]

    @property
    def names(self) -> frozenset[str]:
        """Their names."""
        return frozenset(snapshot.name for snapshot in self.snapshots)

    @property
    def collections(self) -> frozenset[str]:
        """The Milvus collections of their vectors."""
        return frozenset(snapshot.vectors.collection for snapshot in self.snapshots)

    @property
    def receipts(self) -> frozenset[tuple[str, str]]:
        """(Milvus collection, catalog) of each."""
        return frozenset((snapshot.vectors.collection, snapshot.catalog) for snapshot in self.snapshots)

    def folders(self, kind: str) -> frozenset[str]:
        """Return the keys of their ``catalog``, ``bm25`` or ``passages`` folders."""
        match kind:
            case "catalog":
                return frozenset(snapshot.catalog for snapshot in self.snapshots)
            case "bm25":
                return frozenset(snapshot.bm25 for snapshot in self.snapshots)
            case _:
                return self.parts(kind)

    def parts(self, stage: str) -> frozenset[str]:
        """Return the keys of their parts of a stage."""
        return frozenset(
            ref.key
            for snapshot in self.snapshots
            for name, refs in snapshot.parts.items()
            if name == stage
            for ref in refs
        )

    def chunk_ids(self, lake: Lake, collection: str) -> pl.DataFrame:
        """Return the ids (column chunk_id) of the rows that they need in a Milvus collection."""
        catalogs = {item.catalog for item in self.snapshots if item.vectors.collection == collection}
        frames = [read_catalog(lake, key, "chunks", ["chunk_id"], verify=True) for key in sorted(catalogs)]
        empty = pl.DataFrame(schema={"chunk_id": pl.String})
        return pl.concat([empty, *frames]).unique()


def read_needs(lake: Lake, now: dt.datetime, grace: dt.timedelta) -> Needs:
    """Return what must stay: what the newest flip retains, what is pinned, what was dropped less than ``grace`` ago.

    Raises:
        GlossatorError: the file of one of them is missing or damaged, so that nobody can say what it needs.
    """
    snapshots = []
    for name in names_needed(lake, now, grace):
        try:
            snapshots.append(lake.read_snapshot(name))
        except Corrupt as error:
            raise GlossatorError(
                f"snapshot {name} is to stay, but its file is missing or damaged: nothing is swept, since nobody knows "
                "what it needs",
                hint=f"restore {lake.storage.local('snapshots')}/{name}.json from a copy, or publish once more",
            ) from error
    return Needs(tuple(snapshots))


def names_needed(lake: Lake, now: dt.datetime, grace: dt.timedelta) -> list[str]:
    """Return the names of the snapshots that ``read_needs`` reads, the current one first."""
    return list(dict.fromkeys((*_retained(lake, now, grace), *read_pins(lake))))


def _retained(lake: Lake, now: dt.datetime, grace: dt.timedelta) -> Iterator[str]:
    newer_is_young = False
    for place, flip in enumerate(lake.newest_flips()):
        if place and not newer_is_young:
            return
        # A flip that does not say what it retains drops nothing.
        names = flip.retained or (flip.snapshot, *lake.snapshot_names())
        yield from (name for name in names if place == 0 or lake.has_snapshot(name))
        # What this flip retains and the next dropped is within its time of grace while the next is young.
        newer_is_young = flip.created > now - grace
