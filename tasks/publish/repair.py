"""Repair: what a kept snapshot lost comes back from the parts that it was made of.

Passages, catalog, BM25 index and rows of Milvus are all derived from parts; their keys say of which. So they are built
again under the same keys: the snapshot stays the same, nothing is embedded, no source is read, nothing is published,
and a hold stays. Only lost *parts* cannot be made of anything here; the next ``index`` computes them from the sources.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import psutil

from schemas.config import Config
from schemas.errors import GlossatorError, TransientError
from schemas.snapshot import STAGES, PartRef, Record, Snapshot
from schemas.work import ShardJob, Workspace
from tasks.lake.lake import Corrupt, Lake, bm25_folder, catalog_folder, part_path, passages_folder
from tasks.lake.storage import NotFound
from tasks.plan.stages import stage_digests
from tasks.publish import milvus_folder, milvus_server
from tasks.publish.candidate import insert_vectors, vector_store, workspace_as_made
from tasks.publish.catalog import catalog_key, write_catalog
from tasks.publish.doctor import Finding, examine, folders_of
from tasks.publish.lexical import bm25_key, write_bm25
from tasks.publish.milvus import local_milvus
from tasks.publish.needs import names_needed
from tasks.publish.passages import PASSAGES
from tasks.publish.sweep import SweepPolicy

_OTHER_CONFIG = "set the configuration back to what it was made with, or run `glossator index --migrate`"


class RepairReport(Record):
    """What a repair of one snapshot found, did, and left.

    Attributes:
        rebuilt: storage keys of what was built again, and ``milvus/<collection>``.
        problems: what could not be, and why.
        before, after: what the doctor found.
    """

    snapshot: str
    rebuilt: tuple[str, ...]
    problems: tuple[str, ...]
    before: tuple[Finding, ...]
    after: tuple[Finding, ...]

    @property
    def healthy(self) -> bool:
        """True when every invariant holds now."""
        return all(finding.ok for finding in self.after)


def repair(lake: Lake, config: Config, fence: Callable[[], None]) -> list[RepairReport]:
    """Repair all snapshots that are kept, the current one first: a rollback and a sweep need the others.

    One of the others that cannot be read or looked at is told, and keeps nobody from being repaired.

    To be called under the lease.

    Args:
        fence: called before a collection of Milvus is emptied, see ``pointer.fence``.
    """
    reports: list[RepairReport] = []
    collections: dict[str, str] = {}
    for place, name in enumerate(names_needed(lake, dt.datetime.now(dt.UTC), SweepPolicy().grace)):
        try:
            snapshot = lake.read_snapshot(name)
            # What a newer snapshot has its rows in, or may have, is never emptied for an older one.
            may_clear = len(collections) == place and snapshot.vectors.collection not in collections.values()
            collections[name] = snapshot.vectors.collection
            reports.append(_repair(lake, config, snapshot, fence if may_clear else None, kept=place > 0))
        except GlossatorError as error:
            if not place:
                raise
            reports.append(_unread(name, error))
    return reports


def _unread(name: str, error: GlossatorError) -> RepairReport:
    finding = Finding(check="files", ok=False, message=error.what, remedy=error.hint or "restore it from a copy")
    return RepairReport(snapshot=name, rebuilt=(), problems=(str(error),), before=(finding,), after=(finding,))


def _repair(
    lake: Lake, config: Config, snapshot: Snapshot, fence: Callable[[], None] | None, *, kept: bool
) -> RepairReport:
    """Examine a snapshot, build again what is damaged, and examine it once more."""
    space = workspace_as_made(lake, config, snapshot)
    before = tuple(examine(space, lake, snapshot, kept=kept))
    if all(finding.ok for finding in before):
        return RepairReport(snapshot=snapshot.name, rebuilt=(), problems=(), before=before, after=before)
    work = _Repair(space, lake, snapshot, fence)
    work.files()
    # Lost parts keep nobody from reading; damaged folders do, and then nothing can be said of what they hold.
    whole = not any(work.is_broken(folder) for folder in folders_of(snapshot))
    look = partial(examine, space, lake, snapshot, despite_damage=whole, kept=kept)
    work.contents(finding.check for finding in look() if not finding.ok)
    after = tuple(look())
    return RepairReport(
        snapshot=snapshot.name,
        rebuilt=tuple(dict.fromkeys(work.rebuilt)),
        problems=tuple(work.problems),
        before=before,
        after=after,
    )


class _Repair:
    """One repair."""

    def __init__(self, space: Workspace, lake: Lake, snapshot: Snapshot, fence: Callable[[], None] | None) -> None:
        self.space = space
        self.lake = lake
        self.snapshot = snapshot
        self.fence = fence
        self.rebuilt: list[str] = []
        self.problems: list[str] = []

    def is_broken(self, folder: str) -> bool:
        try:
            self.lake.open_folder(folder, verify=True)
        except (NotFound, Corrupt):
            return True
        return False

    def files(self) -> None:
        """Build again the folders that are missing or damaged; drop damaged parts, so that they count as missing."""
        broken = {folder for folder in folders_of(self.snapshot) if self.is_broken(folder)}
        for ref in self.snapshot.parts["passages"]:
            if passages_folder(ref.key) in broken:
                self._try(passages_folder(ref.key), partial(self._passages, ref))
        if catalog_folder(self.snapshot.catalog) in broken:
            self._try(catalog_folder(self.snapshot.catalog), self._catalog)
        if bm25_folder(self.snapshot.bm25) in broken:
            self._try(bm25_folder(self.snapshot.bm25), self._bm25)
        for stage in STAGES[:-1]:
            for ref in self.snapshot.parts[stage]:
                try:
                    self.lake.find_part(stage, ref.key)
                except Corrupt:
                    self.lake.storage.delete(part_path(stage, ref.key))

    def contents(self, checks: Iterable[str]) -> None:
        """Build again what is whole and wrong all the same."""
        failing = set(checks)
        if failing & {"spans", "identity"}:
            for ref in self.snapshot.parts["passages"]:
                self._try(passages_folder(ref.key), partial(self._passages, ref))
            self._try(catalog_folder(self.snapshot.catalog), self._catalog)
        if "bm25" in failing:
            self._try(bm25_folder(self.snapshot.bm25), self._bm25)
        if failing & {"milvus", "recall"}:
            self._try(f"milvus/{self.snapshot.vectors.collection}", self._vectors)

    def _try(self, what: str, build: Callable[[], None]) -> None:
        try:
            build()
        except GlossatorError as error:
            self.problems.append(f"{what}: {error}")
        else:
            self.rebuilt.append(what)

    def _passages(self, ref: PartRef) -> None:
        now = stage_digests(self.space.config, self.space.model)["passages"]
        self._require(now, self.space.stages["passages"], "the passages were written by another version")
        place = self.snapshot.parts["passages"].index(ref)
        loaded, chunked, contexts, embedded = (
            self.snapshot.parts[stage][place] for stage in ("load", "chunk", "contextualize", "embed")
        )
        job = ShardJob(shard=ref.shard, plan="", load_key=loaded.key)
        made = PASSAGES.compute(self.space, job, ref.key, loaded, chunked, contexts, embedded)
        self._require(made.rows_digest, ref.rows_digest, "the parts hold other chunks than the snapshot")

    def _catalog(self) -> None:
        refs = self.snapshot.parts["passages"]
        self._require(catalog_key(refs), self.snapshot.catalog, "the catalog was written by another version")
        for ref in refs:
            self.lake.open_folder(passages_folder(ref.key))
        self.lake.delete_folder(catalog_folder(self.snapshot.catalog))
        write_catalog(self.lake, refs)

    def _bm25(self) -> None:
        catalog, tokens, config = self.snapshot.catalog, self.snapshot.parts["tokens"], self.space.config.bm25
        self._require(bm25_key(config, catalog, tokens), self.snapshot.bm25, "BM25 was built with another config")
        for ref in tokens:
            if self.lake.find_part("tokens", ref.key) is None:
                raise NotFound(f"part {part_path('tokens', ref.key)} is missing too", hint="run `glossator index`")
        self.lake.open_folder(catalog_folder(catalog))
        self.lake.delete_folder(bm25_folder(self.snapshot.bm25))
        write_bm25(self.lake, config, catalog, self.snapshot.parts["passages"], tokens)

    def _require(self, now: object, then: object, otherwise: str) -> None:
        if now != then:
            raise GlossatorError(otherwise, hint=_OTHER_CONFIG)

    # --- Milvus ----------------------------------------------------------------------------------------------------

    def _vectors(self) -> None:
        """Write all rows again: beside what is there, and instead of it only where Milvus Lite can do nothing with it.

        What else fails (a deadline, a full disk, a server that is gone) says nothing of the rows that are there, and a
        server looks after its own.
        """
        self._require(vector_store(self.space), self.snapshot.vectors, "the vectors were indexed with another config")
        try:
            self._insert()
        except TransientError:
            if self.space.config.milvus.uri or not self._clear_ruins():
                raise
            self._insert()

    def _insert(self) -> None:
        # Without a parent: what should be there counts for nothing, every row is written.
        insert_vectors(self.space, self.lake, None, self.snapshot.parts["passages"], self.snapshot.catalog)

    def _clear_ruins(self) -> bool:
        """Delete the collection if Milvus Lite cannot open or load it; tell whether it was so."""
        folder, collection = local_milvus(self.lake), self.snapshot.vectors.collection
        with _alone(folder):
            if self.fence is None or not milvus_folder.is_ruined(folder, collection):
                return False
            self.fence()
            milvus_folder.clear(folder, collection)
        return True


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Have a folder of Milvus Lite to ourselves, once the process that serves it has ended: nobody starts another.

    That process keeps in memory what is no longer on the disk.
    """
    server = milvus_server.running_server(folder)
    if server is not None:
        with suppress(psutil.NoSuchProcess, psutil.TimeoutExpired):
            psutil.Process(server.pid).wait(2 * milvus_server.LINGER_SECONDS)
    with milvus_server.locked(folder):
        if milvus_server.running_server(folder) is not None:
            raise TransientError(
                f"the vectors in {folder} may be damaged, and other processes use them",
                hint="end them and run `glossator doctor --repair` again",
            )
        # This process holds it until its end otherwise, whoever closes a client.
        from milvus_lite.server_manager import server_manager_instance

        server_manager_instance.release_server(str(folder))
        yield
