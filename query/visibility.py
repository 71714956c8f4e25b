"""Visibility: which chunks of a snapshot a reader may see today.

A document is shown to a set of groups T when

- it has no tombstone, and
- its groups in the snapshot intersect T; where it has none, when no document of the snapshot has any, and
- its groups of today (``access/``), where it has some, intersect T.

So a revocation counts at once and in every snapshot, and a grant once the snapshot says it too. A reader without
restriction (None: the operator at the command line) sees all that has no tombstone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.access import Groups
from tasks.lake.access import Access, access_version, read_access
from tasks.lake.lake import Lake

if TYPE_CHECKING:
    from query.snapshot_reader import SnapshotReader

Mask = npt.NDArray[np.bool_]
MOST_ACL_IDS = 1_000
_MASKS_KEPT = 64


@dataclass(frozen=True, slots=True, eq=False)
class Visible:
    """What a reader may see.

    Attributes:
        chunks: shape (reader.size,).
        everything: True when that is all of the snapshot.
        acl_ids: of the documents that may be seen; None for a reader without restriction, and where they are too many
            for a filter expression. A filter by them leaves out nothing that may be seen.
    """

    chunks: Mask
    everything: bool
    acl_ids: tuple[int, ...] | None

    @property
    def allowed(self) -> Mask | None:
        """The chunks, None for all: what searches take."""
        return None if self.everything else self.chunks


def visible_documents(reader: SnapshotReader, access: Access, groups: Iterable[str] | None) -> Mask:
    """Return which documents may be seen, shape (documents,).

    Args:
        groups: of the person who asks; None for the operator.
    """
    documents = reader.documents()
    ids = documents.column("doc_id")
    if groups is None:
        seen = np.ones(len(documents), dtype=np.bool_)
    else:
        members = frozenset(groups)
        seen = _by_snapshot(documents, members)
        rows, sets = _rows(ids, access.groups)
        seen[rows] &= np.fromiter((not members.isdisjoint(one) for one in sets), np.bool_, len(sets))
    dead, _ = _rows(ids, dict.fromkeys(access.tombstones, ()))
    seen[dead] = False
    return seen


def visible(reader: SnapshotReader, access: Access, groups: Iterable[str] | None) -> Visible:
    """Return which chunks may be seen. Documents are looked at first: there are fewer."""
    documents = visible_documents(reader, access, groups)
    chunks: Mask = documents[reader.document_rows()]
    acl_ids = None
    if groups is not None:
        found = np.unique(reader.documents().column("acl_id").to_numpy()[documents])
        acl_ids = tuple(found.tolist()) if len(found) <= MOST_ACL_IDS else None
    return Visible(chunks, bool(chunks.all()), acl_ids)


def _by_snapshot(documents: pa.Table, members: frozenset[str]) -> Mask:
    """Return which documents the snapshot itself shows. Equal sets of groups have equal acl_ids: few are looked at."""
    acl = documents.column("acl_id").to_numpy()
    _, firsts, of = np.unique(acl, return_index=True, return_inverse=True)
    column = documents.column("groups")
    sets: list[list[str] | None] = [column[int(row)].as_py() for row in firsts]
    in_use = any(one is not None for one in sets)
    shown = [not in_use if one is None else not members.isdisjoint(one) for one in sets]
    mask: Mask = np.array(shown, dtype=np.bool_)[of]
    return mask


def _rows(ids: pa.ChunkedArray, table: Mapping[str, Groups]) -> tuple[npt.NDArray[np.int64], list[Groups]]:
    """Return the catalog rows of those documents of a table that the snapshot holds, and what it says of each."""
    places = pc.index_in(pa.array(table.keys(), pa.string()), value_set=ids.combine_chunks())
    held = places.is_valid().to_numpy(zero_copy_only=False)
    rows = places.drop_null().to_numpy(zero_copy_only=False).astype(np.int64)
    return rows, [groups for groups, here in zip(table.values(), held, strict=True) if here]


class Visibility:
    """What may be seen of one snapshot, kept while the files in ``access/`` stay as they are. Safe for threads."""

    def __init__(self, reader: SnapshotReader, lake: Lake) -> None:
        self._reader = reader
        self._lake = lake
        self._lock = Lock()
        self._access: Access | None = None
        self._kept: dict[frozenset[str] | None, Visible] = {}

    def access(self) -> Access:
        """Return what ``access/`` says now; it is read again when it has changed."""
        with self._lock:
            if self._access is None or self._access.version != access_version(self._lake):
                self._access, self._kept = read_access(self._lake), {}
            return self._access

    def of(self, groups: Iterable[str] | None) -> Visible:
        """Return what somebody of these groups may see now; None is the operator.

        Raises:
            Corrupt: today's access cannot be read, so that nothing may be shown.
        """
        key = None if groups is None else frozenset(groups)
        access = self.access()
        with self._lock:
            found = self._kept.get(key) if self._access is access else None
        if found is None:
            found = visible(self._reader, access, key)
            with self._lock:
                if self._access is access:
                    if len(self._kept) >= _MASKS_KEPT:
                        self._kept.pop(next(iter(self._kept)))
                    self._kept[key] = found
        return found
