"""The pointer: the one way in which a publish, a rollback and a resume make a snapshot current.

Each flip records what is retained from then on, and it is created exclusively: of two that follow the same flip, one
fails and nothing of the other's is overwritten.
"""

from __future__ import annotations

import datetime as dt

from pydantic import ConfigDict

from schemas.snapshot import Counts, Flip, Record, VectorStoreRef
from tasks.lake.lake import Lake, snapshot_path
from tasks.lake.storage import NotFound
from tasks.publish.pins import read_pins
from tasks.publish.retention import DAYS, retained


class SnapshotHead(Record):
    """What a snapshot is, without its parts: tens of thousands of refs in a large one, of which few ask."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    id: str
    layout: str
    created: dt.datetime
    catalog: str
    bm25: str
    vectors: VectorStoreRef
    counts: Counts

    @property
    def name(self) -> str:
        """As ``Snapshot.name``."""
        return f"{self.id}-{self.layout[:8]}"


def read_head(lake: Lake, name: str) -> SnapshotHead:
    """Read a snapshot without its parts."""
    return SnapshotHead.model_validate_json(lake.read_sealed(snapshot_path(name)))


def point(
    lake: Lake,
    number: int,
    snapshot: str,
    *,
    author: str,
    reason: str,
    hold: bool = False,
    now: dt.datetime | None = None,
) -> Flip:
    """Create flip ``number``, and record what is retained.

    Args:
        number: one more than that of the flip that the caller has seen.
        hold: nobody may publish until somebody resumes.

    Raises:
        TransientError: somebody else was quicker; nothing was changed.
    """
    now = now or dt.datetime.now(dt.UTC)
    flip = Flip(number=number, snapshot=snapshot, author=author, reason=reason, created=now, hold=hold)
    older = _window(lake, now)
    pins = read_pins(lake)
    names = {snapshot, *pins, *(older[0].retained if older and older[0].retained else lake.snapshot_names())}
    created = {name: date for name in names if (date := _created(lake, name)) is not None}
    flip = flip.model_copy(update={"retained": retained([flip, *older], pins.keys(), now, created)})
    lake.create_flip(flip)
    return flip


def fence(lake: Lake, author: str, reason: str) -> None:
    """Flip to what is current already, so that a publisher who was paused finds the next number taken.

    Before rows that belong to nobody are deleted: they may be those of a candidate whose lease has expired, and it
    must insert them again rather than publish without them.
    """
    flip = lake.current_flip()
    if flip is not None:
        point(lake, flip.number + 1, flip.snapshot, author=author, reason=reason, hold=flip.hold)


def available(lake: Lake) -> list[str]:
    """Return the names of the snapshots that are retained now, the current one first."""
    flip = lake.current_flip()
    if flip is None:
        return []
    names = (flip.snapshot, *(flip.retained or lake.snapshot_names()))
    return [name for name in dict.fromkeys((*names, *read_pins(lake))) if lake.has_snapshot(name)]


def describe_hold(lake: Lake, flip: Flip) -> str:
    """Return why nobody may publish."""
    return (
        f"publishing to collection {lake.collection!r} is held since {flip.created:%Y-%m-%d %H:%M} UTC by "
        f"{flip.author}: {flip.reason}"
    )


def _window(lake: Lake, now: dt.datetime) -> list[Flip]:
    """Return the newest flips, as far back as retention asks: continuous ingestion makes 100,000 a year."""
    flips: list[Flip] = []
    names: set[str] = set()
    for flip in lake.newest_flips():
        flips.append(flip)
        names.add(flip.snapshot)
        if len(names) > 2 and now - flip.created > dt.timedelta(days=DAYS + 1):
            break
    return flips


def _created(lake: Lake, name: str) -> dt.datetime | None:
    key = snapshot_path(name)
    try:
        return read_head(lake, name).created
    except NotFound:
        return None
    except ValueError:
        # Damaged. Dropping it would sweep what a restored file could still serve: it stays, dated by its file.
        found = lake.storage.stat(key)
        return found.modified if found else None
