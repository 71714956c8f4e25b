"""Erasing a document: every file of the lake that holds it goes, and then the lake is searched for its words.

Files are found by looking, never by remembering, so that whoever was killed is finished by the next. What tells of the
others goes last: vectors and terms are found by the contexts, words by the loaded documents.
"""

from __future__ import annotations

import json
import mmap
import os
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from schemas.errors import GlossatorError
from schemas.identity import embed_key
from schemas.snapshot import STAGES, PartRef, Snapshot, Stage
from tasks.lake.lake import Corrupt, Lake, catalog_folder, ipc_bytes, part_path
from tasks.lake.storage import reading
from tasks.plan.quarantine import read_quarantine, write_quarantine
from tasks.publish.receipts import list_receipts

MOST_PROBES = 16
SHORTEST_PROBE = 12
LONGEST_PROBE = 200
TEMPORARY_SECONDS = 60.0
_BY_DOCUMENT: tuple[Stage, ...] = ("contextualize", "chunk", "load")


@dataclass(slots=True)
class Traces:
    """What is known of a document before it goes.

    Attributes:
        texts: its words, in each version that lies somewhere.
        digests: of its embedded texts.
    """

    texts: set[str] = field(default_factory=set)
    digests: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Erased:
    """What went."""

    files: int = 0
    bytes: int = 0


def find_traces(lake: Lake, doc_id: str) -> Traces:
    """Read all that lies in the lake of a document."""
    traces = Traces()
    wanted: tuple[tuple[Stage, str, set[str]], ...] = (
        ("load", "text", traces.texts),
        ("contextualize", "embedded_digest", traces.digests),
    )
    for stage, column, found in wanted:
        for path in _parts(lake, stage):
            with suppress(OSError, pa.ArrowInvalid), reading(path):  # Of what is damaged nobody can say what it holds.
                if _part_holds(path, doc_id):
                    table = pq.read_table(path, columns=["doc_id", column])
                    found.update(table.filter(pc.equal(table["doc_id"], doc_id))[column].to_pylist())
    for folder in _folders(lake, "passages"):
        table = _arrow(folder / "documents.arrow")
        if table is not None:
            traces.texts.update(table.filter(pc.equal(table["doc_id"], doc_id))["text"].to_pylist())
    return traces


class Eraser:
    """Deletes what holds a document, and what no snapshot needs and may hold it.

    Args:
        kept: all snapshots that are there; none of them holds the document.
        identities: of the models whose vectors lie in the lake.
        may_go_on: asked before each deletion; raises where the lease is lost.
    """

    def __init__(
        self,
        lake: Lake,
        doc_id: str,
        traces: Traces,
        kept: Collection[Snapshot],
        identities: Collection[str],
        may_go_on: Callable[[], None],
    ) -> None:
        self.lake = lake
        self.doc_id = doc_id
        self.kept = kept
        self.erased = Erased()
        self._may_go_on = may_go_on
        keys = {ref.key for snapshot in kept for ref in snapshot.parts["contextualize"]} if traces.digests else set()
        shared = {digest for key in sorted(keys) for digest in self._digests(key)}
        own = traces.digests - shared
        self._embed_keys = pa.array(sorted(embed_key(one, digest) for one in identities for digest in own), pa.string())

    def run(self) -> Erased:
        """Delete everything."""
        self._derived()
        for stage in _BY_DOCUMENT:
            needed = self._needed(stage)
            for path in _parts(self.lake, stage):
                if self._is(path, lambda path: _part_holds(path, self.doc_id), path.stem in needed):
                    if path.stem in needed:
                        raise GlossatorError(f"{path} holds the document and is needed", hint="report it")
                    self._delete(path)
        for kind in ("catalog", "passages"):
            for folder in _folders(self.lake, kind):
                table = _arrow(folder / "documents.arrow")
                if table is not None and pc.any(pc.equal(table["doc_id"], self.doc_id)).as_py():
                    self._delete_folder(folder)
        self._failures()
        self._state()
        self._temporary()
        return self.erased

    def _derived(self) -> None:
        """Delete what follows from a text and does not name its document."""
        needed = self._needed("embed")
        for path in _parts(self.lake, "embed"):
            if path.stem not in needed and self._is(path, self._holds_vectors, needed=False):
                self._delete(path)
        # Terms and BM25 indexes that nobody needs may hold its words, and cost little to make again.
        needed = self._needed("tokens")
        for path in _parts(self.lake, "tokens"):
            if path.stem not in needed:
                self._delete(path)
        indexes = {snapshot.bm25 for snapshot in self.kept}
        for folder in _folders(self.lake, "bm25"):
            if folder.name not in indexes:
                self._delete_folder(folder)

    def _holds_vectors(self, path: Path) -> bool:
        keys = pq.read_table(path, columns=["embed_key"])["embed_key"]
        return bool(pc.any(pc.is_in(keys, self._embed_keys)).as_py())

    def _is(self, path: Path, test: Callable[[Path], bool], needed: bool) -> bool:
        try:
            with reading(path):
                return test(path)
        except (OSError, pa.ArrowInvalid) as error:
            if not needed:  # Damaged: nobody knows what it holds, and nobody needs it.
                return True
            raise Corrupt(
                f"{path} is damaged ({error})",
                hint="delete that file and run `glossator index`, then purge again",
            ) from error

    def _digests(self, key: str) -> list[str]:
        found: list[str] = self.lake.read_part("contextualize", key, ["embedded_digest"])["embedded_digest"].to_pylist()
        return found

    def _needed(self, stage: Stage) -> frozenset[str]:
        return frozenset(ref.key for snapshot in self.kept for ref in snapshot.parts[stage])

    # --- records ---------------------------------------------------------------------------------------------------

    def _failures(self) -> None:
        """Take its failures out of what stays: their messages may quote it."""
        for stage in STAGES:
            needed = self._needed(stage)
            for path in _parts(self.lake, stage):
                try:
                    ref = self.lake.find_part(stage, path.stem)
                except Corrupt:
                    if path.stem in needed:
                        raise
                    self._delete(path)
                    continue
                if ref is not None and self._failed_in(ref):
                    self._may_go_on()
                    self.lake.write_part(self._cleared(ref), self.lake.read_part(stage, ref.key))
        for snapshot in self.kept:
            if any(self._failed_in(ref) for refs in snapshot.parts.values() for ref in refs):
                parts = {stage: tuple(map(self._cleared, refs)) for stage, refs in snapshot.parts.items()}
                self._may_go_on()
                self.lake.write_snapshot(snapshot.model_copy(update={"parts": parts}))
        quarantine = read_quarantine(self.lake)
        if quarantine.pop(self.doc_id, None) is not None:
            write_quarantine(self.lake, quarantine.values())

    def _failed_in(self, ref: PartRef) -> bool:
        return any(failure.doc_id == self.doc_id for failure in ref.failures)

    def _cleared(self, ref: PartRef) -> PartRef:
        failures = tuple(failure for failure in ref.failures if failure.doc_id != self.doc_id)
        return ref.model_copy(update={"failures": failures, "reused": False})

    def _state(self) -> None:
        name = self.doc_id.encode()
        for folder in ("withdrawn", "state/plans", "state/prefect", *(f"state/newest/{stage}" for stage in STAGES)):
            for key in list(self.lake.storage.keys(folder)):
                path = self.lake.storage.local(key)
                if path.is_file() and name in path.read_bytes():
                    self._delete(path)
        for key, receipt in list_receipts(self.lake):
            if receipt is None or not self.lake.storage.exists(catalog_folder(receipt.catalog)):
                self._delete(self.lake.storage.local(key))

    def _temporary(self) -> None:
        """Delete what interrupted writes left; a write that is going on takes seconds."""
        for key in list(self.lake.storage.temporaries("")):
            path = self.lake.storage.local(key)
            if path.exists() and path.stat().st_mtime < time.time() - TEMPORARY_SECONDS:
                self._delete(path)

    # --- deletions -------------------------------------------------------------------------------------------------

    def _delete(self, path: Path) -> None:
        self._may_go_on()
        self.erased.files += 1
        self.erased.bytes += path.stat().st_size
        self.lake.storage.delete(path.relative_to(_root(self.lake)).as_posix())

    def _delete_folder(self, folder: Path) -> None:
        self._may_go_on()
        files = [path for path in folder.iterdir() if path.is_file()]
        self.erased.files += len(files)
        self.erased.bytes += sum(path.stat().st_size for path in files)
        self.lake.delete_folder(folder.relative_to(_root(self.lake)).as_posix())


# --- looking for words -----------------------------------------------------------------------------------------------


def probes(lake: Lake, traces: Traces, kept: Collection[Snapshot]) -> tuple[str, ...]:
    """Return lines of a document that stand in no other document: the longest, at most MOST_PROBES."""
    lines = {
        line.strip()[:LONGEST_PROBE]
        for text in traces.texts
        for line in (text.splitlines() if len(text) > SHORTEST_PROBE else [text])
        if len(line.strip()) >= min(SHORTEST_PROBE, len(text.strip())) and line.strip()
    }
    candidates = sorted(lines, key=lambda line: (-len(line), line))[: 8 * MOST_PROBES]
    for key in sorted({ref.key for snapshot in kept for ref in snapshot.parts["passages"]}):
        table = _arrow(lake.storage.local(f"passages/{key}/documents.arrow"))
        for text in [] if table is None else table["text"]:
            words = text.as_py()
            candidates = [line for line in candidates if line not in words]
    return tuple(candidates[:MOST_PROBES])


def search_lake(lake: Lake, words: Collection[str]) -> tuple[int, tuple[Path, ...]]:
    """Search all files of a lake, Parquet unpacked, for words; return how many were searched, and which hold any."""
    needles = {form.encode() for word in words for form in (word, json.dumps(word, ensure_ascii=False)[1:-1])}
    found: list[Path] = []
    searched = 0
    for folder, _, names in os.walk(_root(lake)):
        for name in sorted(names):
            path = Path(folder) / name
            try:
                with reading(path):
                    if _has(path, needles):
                        found.append(path)
            except FileNotFoundError:  # Replaced or deleted meanwhile.
                continue
            searched += 1
    return searched, tuple(sorted(found))


def _has(path: Path, needles: Collection[bytes]) -> bool:
    if path.suffix == ".parquet" and "milvus.db" not in path.parts:
        try:
            data = ipc_bytes(pq.read_table(path))
        except pa.ArrowInvalid:
            data = path.read_bytes()
        return any(needle in data for needle in needles)
    if path.stat().st_size == 0:
        return False
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        return any(mapped.find(needle) >= 0 for needle in needles)


# --- places ----------------------------------------------------------------------------------------------------------


def _root(lake: Lake) -> Path:
    return lake.root / lake.collection


def _parts(lake: Lake, stage: Stage) -> list[Path]:
    if stage == "passages":
        return []
    return [lake.storage.local(key) for key in lake.storage.keys(part_path(stage, "").rpartition("/")[0])]


def _folders(lake: Lake, kind: str) -> list[Path]:
    return [path for key in lake.storage.keys(kind) if (path := lake.storage.local(key)).is_dir()]


def _part_holds(path: Path, doc_id: str) -> bool:
    return bool(pc.any(pc.equal(pq.read_table(path, columns=["doc_id"])["doc_id"], doc_id)).as_py())


def _arrow(path: Path) -> pa.Table | None:
    try:
        with reading(path), pa.memory_map(str(path)) as file:
            return pa.ipc.open_file(file).read_all()
    except (FileNotFoundError, pa.ArrowInvalid):
        return None
