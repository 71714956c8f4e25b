"""Access today: who may see which document now, whatever a snapshot says. It lies outside all snapshots.

::

    access/groups.json       doc_id -> groups now, of documents that have groups
    access/tombstones.json   purged documents

Snapshots roll back; access never does. A reader shows a document only where its snapshot *and* today's groups allow it,
and never one that has a tombstone. So a revocation counts as soon as it is written here, in every snapshot; a grant
counts once a snapshot says it too. A plan only takes rights away; they are given after the flip that publishes them. So
a rollback gives nothing back, neither by itself nor by the plans that come after it. ``state/`` may be deleted at any
time, this folder may not.

Nothing else could make these files again. So each has a second copy in ``copies/``, which is written first: it tells
that the file was lost, and ``doctor --repair`` puts the file back from it.

Several processes write here. Each reads, changes and replaces a file while it holds a lock, so that no revocation is
lost.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from types import EllipsisType
from typing import Any

from schemas.access import Groups
from schemas.errors import Overtaken
from schemas.snapshot import Record
from tasks.lake.lake import Corrupt, Lake
from tasks.lake.lock import locked
from tasks.lake.storage import NotFound

GROUPS = "access/groups.json"
TOMBSTONES = "access/tombstones.json"
_NOTHING: Mapping[str, Any] = {GROUPS: {}, TOMBSTONES: {"tombstones": []}}
LEFT = "state/purge"
"""Documents that were purged during a run which has not erased them again at its end."""
LOCK = "access/lock"
LOCK_SECONDS = 60.0

NOBODY: Groups = ()
Stamp = tuple[int, ...]
"""Of a file: what is never the same again after it was replaced."""
Version = tuple[Stamp | None, ...]
Table = dict[str, Groups]


class Tombstone(Record):
    """A document that was purged: no reader shows it, and no plan takes it in."""

    doc_id: str
    source: str
    uri: str
    when: dt.datetime
    by: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Access:
    """What ``access/`` says.

    Attributes:
        groups: by doc_id, of documents that have groups now; an empty tuple is nobody.
        tombstones: by doc_id.
        version: of the files that it was read from.
    """

    groups: Mapping[str, Groups] = field(default_factory=dict)
    tombstones: Mapping[str, Tombstone] = field(default_factory=dict)
    version: Version = (None, None)


def access_version(lake: Lake) -> Version:
    """Return what changes whenever a file here does: each is replaced by another file, with a time of its own."""
    return tuple(_stamp(lake, key) for key in (GROUPS, TOMBSTONES))


def _stamp(lake: Lake, key: str) -> Stamp | None:
    try:
        found = lake.storage.local(key).stat()
    except FileNotFoundError as error:
        if lake.storage.exists(_copy_of(key)):
            raise _damaged(lake, key) from error
        return None
    except OSError as error:  # Unreadable is not absent.
        raise _damaged(lake, key) from error
    return found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_size


def read_access(lake: Lake) -> Access:
    """Read both files.

    Raises:
        Corrupt: one is damaged. Nothing may be shown then.
    """
    version = access_version(lake)  # Before the files: what is written meanwhile has another one.
    return Access(_read_groups(lake), read_tombstones(lake), version)


def read_tombstones(lake: Lake) -> dict[str, Tombstone]:
    """Return the tombstones by doc_id."""
    rows = _read(lake, TOMBSTONES, [])
    try:
        if isinstance(rows, dict):  # Earlier versions wrote the bare list.
            rows = rows["tombstones"]
        return {item.doc_id: item for item in (Tombstone.model_validate(row) for row in rows)}
    except (LookupError, TypeError, ValueError) as error:
        raise _damaged(lake, TOMBSTONES) from error


@dataclass(frozen=True, slots=True)
class Said:
    """What is said of the groups of documents, by those who grant them and by the documents themselves.

    Attributes:
        documents: doc_ids of all that are meant.
        groups: by doc_id, of those that have some.
        had_groups: those that are published with groups. One that has lost all of them is open to nobody while others
            have some, and that is a revocation too.
    """

    documents: Set[str]
    groups: Mapping[str, Groups]
    had_groups: Collection[str] = ()

    @property
    def in_use(self) -> bool:
        """True when any document has groups."""
        return bool(self.groups)


def narrow(lake: Lake, said: Said, expected: Stamp | EllipsisType | None = ...) -> Stamp | None:
    """Take away what is no longer said, and give nothing. Return the stamp of the table then.

    Args:
        expected: stamp that the table must have; by default any.

    Raises:
        Overtaken: the table has another stamp: somebody took rights away, or gave some.
    """
    if not said.in_use and not any(map(lake.storage.exists, (GROUPS, _copy_of(GROUPS)))):
        return None

    def change(table: Table) -> Table:
        if said.in_use:
            table |= dict.fromkeys((table.keys() | set(said.had_groups)) & said.documents - said.groups.keys(), NOBODY)
        return table | {doc_id: _both(table.get(doc_id, new), new) for doc_id, new in said.groups.items()}

    return change_groups(lake, change, expected)


def widen(lake: Lake, said: Said, expected: Stamp | None) -> None:
    """Give what is said. Somebody who has changed the table meanwhile may know better: then nothing is given."""
    if not said.in_use and expected is None:
        return

    def change(table: Table) -> Table:
        bare = said.documents - said.groups.keys()
        kept = {doc_id: groups for doc_id, groups in table.items() if said.in_use or doc_id not in bare}
        return kept | {doc_id: groups for doc_id, groups in said.groups.items() if doc_id in said.documents}

    with suppress(Overtaken):
        change_groups(lake, change, expected)


def withheld(lake: Lake, said: Said) -> int:
    """Return the number of documents that today's table shows to fewer than is said."""
    table = _read_groups(lake)
    return sum(
        groups != said.groups[doc_id] if doc_id in said.groups else not said.in_use
        for doc_id, groups in table.items()
        if doc_id in said.documents
    )


def change_groups(
    lake: Lake, change: Callable[[Table], Table], expected: Stamp | EllipsisType | None = ...
) -> Stamp | None:
    """Replace the table of groups by what ``change`` makes of it; return its stamp. Otherwise as ``narrow``."""
    with locked(lake, LOCK, LOCK_SECONDS):
        if expected is not ... and _stamp(lake, GROUPS) != expected:
            raise Overtaken(f"somebody else has changed who may see what in {lake.collection!r}")
        before = _read_groups(lake)
        after = {doc_id: tuple(sorted(set(groups))) for doc_id, groups in sorted(change(dict(before)).items())}
        _write(lake, GROUPS, {doc_id: list(groups) for doc_id, groups in after.items()})
        return _stamp(lake, GROUPS)


def _both(one: Groups, other: Groups) -> Groups:
    return tuple(sorted(set(one) & set(other)))


def bury(lake: Lake, tombstone: Tombstone) -> Tombstone:
    """Set a tombstone; one that is there already stays as it is. Return the one that is there then."""
    with locked(lake, LOCK, LOCK_SECONDS):
        stones = read_tombstones(lake)
        stone = stones.setdefault(tombstone.doc_id, tombstone)
        _write_tombstones(lake, stones)
        return stone


def unbury(lake: Lake, doc_id: str) -> None:
    """Take a tombstone away: the next plan takes the document in again, if its source still has it."""
    with locked(lake, LOCK, LOCK_SECONDS):
        stones = read_tombstones(lake)
        stones.pop(doc_id, None)
        if lake.storage.exists(TOMBSTONES):
            _write_tombstones(lake, stones)


def leave_to_the_next_run(lake: Lake, known: Set[str]) -> list[Tombstone]:
    """Note that documents with a tombstone, but for those known, are to be erased again; return their tombstones."""
    left = [stone for doc_id, stone in read_tombstones(lake).items() if doc_id not in known]
    for stone in left:
        lake.storage.write(f"{LEFT}/{stone.doc_id}", b"")
    return left


def left_of_purges(lake: Lake) -> frozenset[str]:
    """Return the documents that are to be erased again, and still have a tombstone."""
    left = frozenset(key.rpartition("/")[2] for key in lake.storage.keys(LEFT))
    return left & read_tombstones(lake).keys() if left else left


def _write_tombstones(lake: Lake, stones: Mapping[str, Tombstone]) -> None:
    rows = sorted(stones.values(), key=lambda item: (item.source, item.uri))
    _write(lake, TOMBSTONES, {"tombstones": [row.model_dump(mode="json") for row in rows]})


def _read_groups(lake: Lake) -> Table:
    rows = _read(lake, GROUPS, {})
    if not isinstance(rows, dict) or not all(isinstance(groups, list) for groups in rows.values()):
        raise _damaged(lake, GROUPS)
    return {str(doc_id): tuple(map(str, groups)) for doc_id, groups in rows.items()}


def _read(lake: Lake, key: str, nothing: Any) -> Any:
    try:
        return lake.read_json(key)
    except NotFound as error:
        if lake.storage.exists(_copy_of(key)):
            raise _damaged(lake, key) from error
        return nothing
    except Corrupt as error:
        raise _damaged(lake, key) from error


def _write(lake: Lake, key: str, value: Any) -> None:
    """Write a copy and its file, each unless it says so already.

    The copy first: what it knows more than the file is on its way to be written again. Whoever was killed between the
    two left it so, or a fault did: what the file says already may be news to it. Before the first copy there is a file
    that says nothing yet: a copy without a file means that the file was lost.
    """
    if not lake.storage.exists(key) and not lake.storage.exists(_copy_of(key)):
        lake.write_json(key, _NOTHING[key])
    for place in (_copy_of(key), key):
        if not _says(lake, place, value):
            lake.write_json(place, value)


def _says(lake: Lake, key: str, value: Any) -> bool:
    try:
        return bool(lake.read_json(key) == value)
    except (NotFound, Corrupt):
        return False


def put_back_access(lake: Lake) -> list[str]:
    """Put back from their copies what is lost or damaged, and such copies from their files; return the keys."""
    with locked(lake, LOCK, LOCK_SECONDS):
        damaged = damaged_copies(lake)
        back = [key for key in (GROUPS, TOMBSTONES) if not _is_whole(lake, key) and _put_back(lake, key)]
        for key in (GROUPS, TOMBSTONES):
            if _copy_of(key) in damaged and lake.storage.exists(key) and _is_whole(lake, key):
                lake.write_json(_copy_of(key), lake.read_json(key))
                back.append(_copy_of(key))
        return back


def damaged_copies(lake: Lake) -> list[str]:
    """Return the storage keys of the copies that cannot be read, or are gone while their files say something."""
    damaged = []
    for key in (GROUPS, TOMBSTONES):
        try:
            lake.read_json(_copy_of(key))
        except NotFound:
            if lake.storage.exists(key) and not _says(lake, key, _NOTHING[key]):
                damaged.append(_copy_of(key))
        except Corrupt:
            damaged.append(_copy_of(key))
    return damaged


def _is_whole(lake: Lake, key: str) -> bool:
    try:
        _read_groups(lake) if key == GROUPS else read_tombstones(lake)
    except Corrupt:
        return False
    return True


def _put_back(lake: Lake, key: str) -> bool:
    """Write a file as its copy says, where that is whole; tell whether it was."""
    try:
        value = lake.read_json(_copy_of(key))
    except (NotFound, Corrupt):
        return False
    lake.write_json(key, value)
    return True


def _copy_of(key: str) -> str:
    return f"copies/{key}"


def _damaged(lake: Lake, key: str) -> Corrupt:
    path = lake.storage.local(key)
    state = "damaged" if path.exists() else "missing"
    if lake.storage.exists(_copy_of(key)):
        again = "run `glossator doctor --repair`: it is put back from its copy"
    elif key == GROUPS:
        again = "delete it and run `glossator index`: it is written anew"
    else:
        again = "restore it from a copy; without it purged documents would come back"
    return Corrupt(f"{path} is {state}: nobody knows who may see what", hint=again)
