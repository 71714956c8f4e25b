"""The sweep: delete what no retained snapshot needs. It runs after a flip, under the lease, and as ``maintain``.

The order is what makes it safe to be killed anywhere, and safe for readers who hold on to an old snapshot:

1. *withdraw*: the snapshot's file moves from ``snapshots/`` to ``withdrawn/``. From then on it does not exist; a reader
   who looks for it after a search knows that rows may have been missing, and says so instead of answering.
2. *receipts* of vectors that are about to go: a later run of equal documents must insert them again.
3. *rows* of withdrawn snapshots in Milvus, less the rows that others need; with ``full``, all rows that nobody needs.
4. *collections* of Milvus that nobody needs.
5. *folders* (catalogs, BM25 indexes, passages), each with its manifest first; then the files in ``withdrawn/``.
6. *parts* and *records* that were not used for a while, and what interrupted writes left, wherever that is.

Each step finds its work by looking, so that a sweep that was killed is finished by the next. One that was paused for
longer than its lease finds out after the first thing that it then deletes, and takes that back. Flips, sources and
what is under ``access/`` are never touched.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import polars as pl

from schemas.config import MilvusConfig
from schemas.snapshot import STAGES, Record, Snapshot, VectorStoreRef
from tasks.lake.lake import MANIFEST, Corrupt, Lake, part_path, snapshot_path
from tasks.lake.storage import NotFound
from tasks.publish.catalog import read_catalog
from tasks.publish.milvus import MilvusStore, open_milvus
from tasks.publish.needs import Needs, read_needs
from tasks.publish.receipts import list_receipts
from tasks.publish.restoration import restore_rows

FOLDERS = ("catalog", "bm25", "passages")
RECORDS = ("state/plans", "state/prefect", "state/vectors")


@dataclass(frozen=True, slots=True)
class SweepPolicy:
    """When things go.

    Attributes:
        grace: since the flip that dropped a snapshot; longer than readers take to follow the pointer.
        passages: since passages were last used; a run makes them long before its snapshot names them.
        parts: since a part was last used.
        records: since a plan, a cache record or a receipt was written.
        temporary: since an interrupted write.
        batch: rows per delete call to Milvus.
    """

    grace: dt.timedelta = dt.timedelta(minutes=15)
    passages: dt.timedelta = dt.timedelta(days=1)
    parts: dt.timedelta = dt.timedelta(days=7)
    records: dt.timedelta = dt.timedelta(days=7)
    temporary: dt.timedelta = dt.timedelta(days=1)
    batch: int = 500


class Tally(Record):
    """Things deleted, and their bytes in the lake (Milvus tells none)."""

    count: int = 0
    bytes: int = 0

    def plus(self, count: int, size: int = 0) -> Tally:
        """Return the sum."""
        return Tally(count=self.count + count, bytes=self.bytes + size)


class SweepReport(Record):
    """What a sweep deleted, or would.

    Attributes:
        rows: of Milvus, of snapshots that were dropped.
        orphans: rows of Milvus that no snapshot ever named (runs that never published); looked for when ``full``.
        collections: of Milvus.
        finished: False when the lease was lost on the way; the next sweep goes on.
        hints: version hints of files that ``maintain`` no longer trusts, since their bytes were read too long ago.
        unreadable: dropped snapshots whose own files were damaged; only a ``full`` sweep finds their rows.
    """

    dry_run: bool = False
    finished: bool = True
    unreadable: tuple[str, ...] = ()
    snapshots: Tally = Tally()
    rows: Tally = Tally()
    orphans: Tally = Tally()
    collections: Tally = Tally()
    folders: Tally = Tally()
    parts: Tally = Tally()
    records: Tally = Tally()
    temporary: Tally = Tally()
    hints: Tally = Tally()

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(getattr(self, name).bytes for name in ("snapshots", "folders", "parts", "records", "temporary"))


class _LeaseLost(Exception):
    pass


def sweep(
    lake: Lake,
    milvus: MilvusConfig,
    still_ours: Callable[[], bool],
    *,
    now: dt.datetime | None = None,
    policy: SweepPolicy | None = None,
    full: bool = False,
    dry_run: bool = False,
) -> SweepReport:
    """Delete what no retained snapshot needs.

    Args:
        still_ours: asked before each batch of deletions; the sweep ends when it says no.
        full: compare all rows of Milvus with those that are needed, and delete the others. A run between its insert
            and its flip would lose its rows, which is why only the holder of the lease may do this.
        dry_run: delete nothing, report what would go.

    Raises:
        GlossatorError: the file of a retained snapshot is missing or damaged. Nothing was deleted.
        TransientError: Milvus cannot be reached. What was deleted until then is gone for good reason.
    """
    run = _Sweep(lake, milvus, still_ours, now or dt.datetime.now(dt.UTC), policy or SweepPolicy(), full, dry_run)
    try:
        run.all()
    except _LeaseLost:
        run.count = run.count.model_copy(update={"finished": False})
    return run.count


class _Sweep:
    """One sweep."""

    def __init__(
        self,
        lake: Lake,
        milvus: MilvusConfig,
        still_ours: Callable[[], bool],
        now: dt.datetime,
        policy: SweepPolicy,
        full: bool,
        dry_run: bool,
    ) -> None:
        self.lake = lake
        self.storage = lake.storage
        self.milvus = milvus
        self.still_ours = still_ours
        self.now = now
        self.policy = policy
        self.full = full
        self.dry_run = dry_run
        self.count = SweepReport(dry_run=dry_run)
        self.seen: set[str] = set()
        self.needs: Needs = read_needs(lake, now, policy.grace)

    def all(self) -> None:
        if not self.needs.snapshots:  # Nothing was published yet: all there is belongs to a run.
            return
        dropped = [*self._withdrawn(), *self._withdraw()]
        if dropped or self.full:
            self._receipts()
        self._milvus(dropped)
        self._folders()
        self._forget()
        self._parts()
        self._records()
        self._temporary()

    # --- snapshots -------------------------------------------------------------------------------------------------

    def _withdrawn(self) -> Iterator[Snapshot]:
        """Yield what an earlier sweep left withdrawn."""
        for key in list(self.storage.keys("withdrawn")):
            if Path(key).stem not in self.needs.names:
                yield from self._read(key)
            elif self._may_delete():  # Published once more since.
                self.storage.delete(key)

    def _withdraw(self) -> Iterator[Snapshot]:
        for name in self.lake.snapshot_names():
            key = snapshot_path(name)
            # A publisher writes the snapshot just before the flip that names it.
            if name in self.needs.names or not self._unused(key, self.policy.grace):
                continue
            data = self.storage.read(key)
            self._add("snapshots", 1, len(data))
            if self._may_delete():
                self.storage.write(f"withdrawn/{name}.json", data)
                self.storage.delete(key)
                self._take_back_unless_ours(partial(self.storage.write, key, data))
            yield from self._read(key if self.dry_run else f"withdrawn/{name}.json")

    def _read(self, key: str) -> Iterator[Snapshot]:
        try:
            yield Snapshot.model_validate_json(self.lake.read_sealed(key))
        except ValueError:
            self._unreadable(Path(key).stem)

    def _unreadable(self, name: str) -> None:
        self.count = self.count.model_copy(update={"unreadable": (*self.count.unreadable, name)})

    def _forget(self) -> None:
        for key in list(self.storage.keys("withdrawn")):
            if self._may_delete():
                self.storage.delete(key)

    # --- Milvus ----------------------------------------------------------------------------------------------------

    def _receipts(self) -> None:
        for key, receipt in list_receipts(self.lake):
            if receipt is None or (receipt.collection, receipt.catalog) not in self.needs.receipts:
                self._delete("records", key)

    def _milvus(self, dropped: Sequence[Snapshot]) -> None:
        newest = self.needs.snapshots[0].vectors
        with closing(open_milvus(self.milvus, self.lake, newest, mend=True)) as store:
            names, remains = store.siblings(), store.remains()
        for name in names:
            if name in self.needs.collections:
                self._rows(name, [snapshot for snapshot in dropped if snapshot.vectors.collection == name])
            else:
                self._drop(name)
        for name in remains:
            if name not in self.needs.collections:
                self._drop(name)

    def _rows(self, collection: str, dropped: Sequence[Snapshot]) -> None:
        if not dropped and not self.full:
            return
        needed = self.needs.chunk_ids(self.lake, collection)
        with closing(self._store(collection)) as store:
            if not store.is_ours():
                return
            known: set[str] = set()
            for ids in (self._ids_of(snapshot) for snapshot in dropped):
                going = sorted(set(ids.join(needed, on="chunk_id", how="anti")["chunk_id"].to_list()) - known)
                known.update(going)
                self._delete_rows("rows", store, going)
            if self.full:
                stay = set(needed["chunk_id"].to_list()) | known
                self._delete_rows("orphans", store, sorted(row for row in store.ids() if row not in stay))

    def _ids_of(self, snapshot: Snapshot) -> pl.DataFrame:
        try:
            return read_catalog(self.lake, snapshot.catalog, "chunks", ["chunk_id"], verify=True)
        except NotFound:  # An earlier sweep deleted it, and so the rows before.
            pass
        except (Corrupt, ValueError):
            self._unreadable(snapshot.name)
        return pl.DataFrame(schema={"chunk_id": pl.String})

    def _delete_rows(self, what: str, store: MilvusStore, ids: Sequence[str]) -> None:
        for start in range(0, len(ids), self.policy.batch):
            batch = ids[start : start + self.policy.batch]
            if self._may_delete():
                store.delete(batch)
                self._take_back_unless_ours(partial(restore_rows, self.milvus, self.lake, store.ref.collection, batch))
            self._add(what, len(batch))

    def _drop(self, collection: str) -> None:
        with closing(self._store(collection)) as store:
            if not store.is_ours():  # Two lakes may share a server, and the name of a collection.
                return
            if self._may_delete():
                store.drop()
                self._take_back_unless_ours(partial(restore_rows, self.milvus, self.lake, collection))
        self._add("collections", 1)

    def _store(self, collection: str) -> MilvusStore:
        ref = VectorStoreRef(collection=collection, dimension=0, model="", model_identity="")
        return open_milvus(self.milvus, self.lake, ref, mend=True)

    # --- files -----------------------------------------------------------------------------------------------------

    def _folders(self) -> None:
        for kind in FOLDERS:
            needed = self.needs.folders(kind)
            age = self.policy.passages if kind == "passages" else self.policy.grace
            for folder in list(self.storage.keys(kind)):
                if Path(folder).name not in needed and self._folder_unused(folder, age):
                    size = sum(stat.bytes for key in self.storage.keys(folder) if (stat := self.storage.stat(key)))
                    if self._may_delete():
                        self.lake.delete_folder(folder)
                    self._add("folders", 1, size)

    def _folder_unused(self, folder: str, age: dt.timedelta) -> bool:
        if self.storage.exists(f"{folder}/{MANIFEST}"):
            return self._unused(f"{folder}/{MANIFEST}", age)
        # Half written, or half deleted: a writer may be at work.
        return all(self._unused(key, age) for key in (*self.storage.keys(folder), *self.storage.temporaries(folder)))

    def _parts(self) -> None:
        for stage in STAGES:
            if stage == "passages":
                continue
            needed = {part_path(stage, key) for key in self.needs.parts(stage)}
            self._delete_old("parts", (key for key in self.storage.keys(f"parts/{stage}") if key not in needed))

    def _records(self) -> None:
        for folder in RECORDS:
            self._delete_old("records", self.storage.keys(folder))

    def _temporary(self) -> None:
        self._delete_old("temporary", self.storage.temporaries(""))

    def _delete_old(self, what: str, keys: Iterable[str]) -> None:
        age: dt.timedelta = getattr(self.policy, what)
        for key in list(keys):
            if self._unused(key, age):
                self._delete(what, key)

    def _delete(self, what: str, key: str) -> None:
        stat = self.storage.stat(key)
        if stat is None or key in self.seen:
            return
        if self._may_delete():
            self.storage.delete(key)
        self.seen.add(key)
        self._add(what, 1, stat.bytes)

    # --- both ------------------------------------------------------------------------------------------------------

    def _unused(self, key: str, age: dt.timedelta) -> bool:
        stat = self.storage.stat(key)
        return stat is None or stat.modified <= self.now - age

    def _may_delete(self) -> bool:
        """Tell whether to delete or only to count; ends the sweep when the lease is lost."""
        if self.dry_run:
            return False
        if not self.still_ours():
            raise _LeaseLost
        return True

    def _take_back_unless_ours(self, take_back: Callable[[], None]) -> None:
        """End the sweep when it was paused between its last look at the lease and what it did then."""
        if not self.still_ours():
            take_back()
            raise _LeaseLost

    def _add(self, what: str, count: int, size: int = 0) -> None:
        tally: Tally = getattr(self.count, what)
        self.count = self.count.model_copy(update={what: tally.plus(count, size)})
