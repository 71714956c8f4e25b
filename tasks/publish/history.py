"""The history of a collection: which snapshots there are, and going back to one.

A rollback is a flip like any other, to a snapshot that is retained with all that it names; so it takes a moment, and
readers follow it as they follow a publish. It sets a *hold*: until somebody resumes, nothing is published, since the
next run would publish what was just taken back.
"""

from __future__ import annotations

import datetime as dt
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise

from pydantic import ConfigDict

from schemas.config import MilvusConfig
from schemas.errors import GlossatorError, PublishRefused, UsageError
from schemas.snapshot import SHORT, Flip, Record
from tasks.lake.lake import Lake, bm25_folder, catalog_folder, passages_folder, snapshot_path
from tasks.lake.storage import NotFound
from tasks.publish.milvus import collection_exists
from tasks.publish.pins import Pin, read_pins
from tasks.publish.pointer import SnapshotHead, available, point, read_head
from tasks.publish.retention import publishes

_NUMBER = re.compile(r"[#@]([0-9]+)")


class SnapshotEntry(Record):
    """A snapshot in the history.

    Attributes:
        flips: numbers of the flips that made it current, oldest first; none for one that was never published.
        retained: False for one that the next sweep deletes.
    """

    name: str
    id: str
    created: dt.datetime
    flips: tuple[int, ...]
    documents: int
    chunks: int
    model: str
    current: bool
    retained: bool
    pinned: Pin | None = None


class _Key(Record):
    model_config = ConfigDict(extra="ignore", frozen=True)

    key: str


class _Parts(Record):
    model_config = ConfigDict(extra="ignore", frozen=True)

    passages: tuple[_Key, ...]


class _Target(SnapshotHead):
    """What readers open of a snapshot. Of a million documents it is read ten times as fast as all parts."""

    parts: _Parts

    def folders(self) -> Iterator[str]:
        yield catalog_folder(self.catalog)
        yield bm25_folder(self.bm25)
        yield from (passages_folder(ref.key) for ref in self.parts.passages)


def list_snapshots(lake: Lake) -> list[SnapshotEntry]:
    """Return the snapshots that are there, the one that was current last first."""
    numbers: dict[str, list[int]] = defaultdict(list)
    current = ""
    for flip in lake.newest_flips():
        numbers[flip.snapshot].insert(0, flip.number)
        current = current or flip.snapshot
    kept, pins = set(available(lake)), read_pins(lake)
    entries = []
    for name in lake.snapshot_names():
        try:
            head = read_head(lake, name)
        except NotFound:  # Swept at this moment.
            continue
        except ValueError as error:
            raise _damaged(lake, name) from error
        entries.append(
            SnapshotEntry(
                name=name,
                id=head.id,
                created=head.created,
                flips=tuple(numbers[name]),
                documents=head.counts.documents,
                chunks=head.counts.chunks,
                model=head.vectors.model,
                current=name == current,
                retained=name in kept,
                pinned=pins.get(name),
            )
        )
    return sorted(entries, key=lambda entry: (-max(entry.flips, default=0), entry.name))


def resolve(lake: Lake, selector: str) -> str:
    """Return the name of the snapshot that a person means.

    Args:
        selector: the beginning of a name or id, ``#12`` or ``@12`` (what flip 12 made current), ``current``, or
            ``previous`` (the newest retained one before the current).

    Raises:
        UsageError: none or several fit.
    """
    if selector in {"current", "previous"}:
        return _current(lake).snapshot if selector == "current" else _previous(lake)
    if match := _NUMBER.fullmatch(selector):
        return _of_flip(lake, int(match[1]))
    found = [name for name in lake.snapshot_names() if selector and name.startswith(selector)]
    if not found:
        raise UsageError(f"no snapshot of {lake.collection!r} begins with {selector!r}", hint=_offer(lake))
    if len(found) > 1:
        raise UsageError(f"several snapshots begin with {selector!r}: {_listed(found)}", hint="give more of the name")
    return found[0]


def rollback(
    lake: Lake, to: str | None, *, author: str, reason: str, milvus: MilvusConfig, now: dt.datetime | None = None
) -> Flip:
    """Make a retained snapshot current, and hold all publishing.

    Args:
        to: a selector, see ``resolve``; None is ``previous``.
        milvus: where its vectors must still be.

    Raises:
        UsageError: there is no such snapshot, or it is current already.
        PublishRefused: it was dropped, or something that it names is gone. Nothing was changed.
        TransientError: somebody else moved the pointer at the same moment.
    """
    newest = _current(lake)
    name = resolve(lake, to or "previous")
    if name == newest.snapshot:
        raise UsageError(f"snapshot {name[:SHORT]} is current already", hint=_offer(lake, without=name))
    if name not in available(lake):
        raise PublishRefused(f"snapshot {name[:SHORT]} was dropped", hint=_offer(lake, without=newest.snapshot))
    lost = _lost(lake, name, milvus)
    if lost:
        raise PublishRefused(f"snapshot {name[:SHORT]} cannot be served: {lost}", hint=_offer(lake, without=name))
    return point(lake, newest.number + 1, name, author=author, reason=reason, hold=True, now=now)


def resume(lake: Lake, *, author: str, reason: str, now: dt.datetime | None = None) -> Flip:
    """End the hold: the current snapshot stays, and publishing may go on.

    Raises:
        UsageError: nothing is held.
        TransientError: somebody else moved the pointer at the same moment.
    """
    newest = _current(lake)
    if not newest.hold:
        raise UsageError(f"publishing to collection {lake.collection!r} is not held", hint="there is nothing to resume")
    return point(lake, newest.number + 1, newest.snapshot, author=author, reason=reason, now=now)


def _current(lake: Lake) -> Flip:
    flip = lake.current_flip()
    if flip is None:
        raise UsageError(
            f"collection {lake.collection!r} in {lake.root} is empty", hint="run `glossator index FOLDER` first"
        )
    return flip


def _of_flip(lake: Lake, number: int) -> str:
    try:
        name = lake.read_flip(number).snapshot
    except NotFound as error:
        raise UsageError(
            f"there is no flip {number}, the newest is {_current(lake).number}", hint=_offer(lake)
        ) from error
    if not lake.has_snapshot(name):
        raise UsageError(f"the snapshot of flip {number} ({name[:SHORT]}) was swept", hint=_offer(lake))
    return name


def _previous(lake: Lake) -> str:
    """Return the newest retained snapshot that was published before the current one was."""
    kept, current, published = set(available(lake)), _current(lake).snapshot, False
    for flip, older in pairwise(chain(lake.newest_flips(), [None])):
        assert flip is not None
        if flip.snapshot == current:
            # A rollback makes a snapshot current again: what counts is where it stood when it was published.
            published = published or publishes([flip, older] if older else [flip])
        elif published and flip.snapshot in kept:
            return flip.snapshot
    created = {name: read_head(lake, name).created for name in kept | {current}}
    before = [name for name in kept if created[name] < created[current]]
    if before:  # What a purge made anew no flip ever named.
        return max(before, key=lambda name: (created[name], name))
    raise UsageError(f"no snapshot before {current[:SHORT]} is kept", hint=_offer(lake, without=current))


def _lost(lake: Lake, name: str, milvus: MilvusConfig) -> str:
    """Return what of a snapshot is gone, "" when all is there."""
    try:
        target = _Target.model_validate_json(lake.read_sealed(snapshot_path(name)))
    except ValueError:
        return _damaged(lake, name).what
    for folder in target.folders():
        try:
            lake.open_folder(folder)
        except GlossatorError as error:
            return error.what
    if not collection_exists(milvus, lake, target.vectors):
        return f"its Milvus collection {target.vectors.collection} is gone"
    return ""


def _damaged(lake: Lake, name: str) -> GlossatorError:
    path = lake.storage.local(snapshot_path(name))
    return GlossatorError(f"{path} is damaged", hint="restore that file from a copy")


def _offer(lake: Lake, without: str = "") -> str:
    names = [name for name in available(lake) if name != without]
    return f"kept: {_listed(names)}" if names else "no other snapshot is kept"


def _listed(names: Sequence[str]) -> str:
    short = [name[:SHORT] for name in names]
    return ", ".join(short if len(set(short)) == len(short) else names)  # The same contents in another layout.
