"""What lies in a lake: what a reader gets of it, what the doctor finds, and what is there by name and by digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

from query.opening import open_retriever
from schemas.config import Config
from schemas.errors import GlossatorError
from tasks.lake.access import read_tombstones
from tasks.lake.lake import MANIFEST, Lake, bm25_folder
from tasks.plan.planner import workspace
from tasks.publish.doctor import examine
from tasks.publish.milvus import open_milvus
from tests.crash.room import Room

QUESTION = "Where does the gauge stand, and when is its datum checked?"
PASSAGES = 200
"""More than there are: the answer is the whole snapshot, so that one foreign passage shows."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a reader was told.

    Attributes:
        snapshot: id of the one that was read; "" where nothing is published.
        passages: (chunk_id, URI) of all that was found.
        error: what was said instead.
    """

    snapshot: str = ""
    passages: frozenset[tuple[str, str]] = frozenset()
    error: str = ""


@dataclass(frozen=True, slots=True)
class Contents:
    """What is published, as far as two equal ways to it must agree.

    Attributes:
        rows: digest of the visible rows of Milvus, with all their columns.
        stray: rows of Milvus that the snapshot does not name.
        bm25: checksums of the lexical index's files, which hold every score.
    """

    snapshot: str
    hold: bool
    rows: str
    stray: frozenset[str]
    bm25: tuple[tuple[str, str], ...]
    tombstones: frozenset[str]
    retained: frozenset[str]


def answer(lake: Lake, config: Config) -> Answer:
    """Ask the fixed question, in a retriever of its own."""
    if lake.current_flip() is None:
        return Answer()
    try:
        with closing(open_retriever(lake, config)) as retriever:
            found = retriever.search(QUESTION, PASSAGES)
            snapshot = retriever.reader.snapshot
    except GlossatorError as error:
        return Answer(error=error.what)
    assert found.snapshot == snapshot.name
    assert len({hit.passage.chunk_id for hit in found.hits}) == len(found.hits), "a passage is shown twice"
    return Answer(snapshot.id, frozenset((hit.passage.chunk_id, hit.passage.document.uri) for hit in found.hits))


def ailments(lake: Lake, config: Config, *, kept: bool) -> tuple[str, ...]:
    """Return what the doctor finds wrong with what is published.

    Args:
        kept: and with all other snapshots that one can go back to.
    """
    flip = lake.current_flip()
    if flip is None:
        return ()
    space = workspace(lake, config)
    return tuple(
        f"{name}: {finding.check}: {finding.message}"
        for name in (flip.retained if kept else (flip.snapshot,))
        for finding in examine(space, lake, lake.read_snapshot(name))
        if not finding.ok
    )


def contents(lake: Lake, config: Config, told: Answer) -> Contents:
    """Read what is published from its stores.

    Args:
        told: the answer of a reader, which holds all chunks that are visible.
    """
    flip, snapshot = lake.current_flip(), lake.current_snapshot()
    assert flip is not None and snapshot is not None
    manifest = lake.read_json(f"{bm25_folder(snapshot.bm25)}/{MANIFEST}")
    named = {chunk for chunk, _ in told.passages}
    with closing(open_milvus(config.milvus, lake, snapshot.vectors)) as store:
        ids = sorted(store.ids())
        rows = store._client.get(snapshot.vectors.collection, ids=ids, output_fields=["*"]) if ids else []
    visible = sorted(
        json.dumps(row, sort_keys=True, default=float) for row in map(dict, rows) if row["chunk_id"] in named
    )
    return Contents(
        snapshot=snapshot.id,
        hold=flip.hold,
        rows=hashlib.sha256("\n".join(visible).encode()).hexdigest(),
        stray=frozenset(ids) - named,
        bm25=tuple(sorted((name, entry["sha256"]) for name, entry in manifest.items())),
        tombstones=frozenset(read_tombstones(lake)),
        retained=frozenset(name for name in flip.retained if lake.has_snapshot(name)),
    )


def names(room: Room) -> frozenset[str]:
    """Return the files of the lake, less the history of flips, locks, and what Milvus has in its collections."""
    files = (path.relative_to(room.root).as_posix() for path in room.root.rglob("*") if path.is_file())
    ours = {path for path in files if not path.startswith(("milvus.", "flips/")) and path != "access/lock"}
    collections = room.root.glob("milvus.db/collections/*")
    return frozenset(ours | {path.relative_to(room.root).as_posix() for path in collections})


def finished(room: Room) -> Mapping[str, int]:
    """Return the finished work of a lake: path -> inode of parts, and of the files of folders that are complete.

    A file that is written again is another file, with another inode.
    """
    found = {
        path.relative_to(room.root).as_posix(): path.stat().st_ino
        for path in room.root.glob("parts/*/*.parquet")
        if not path.name.startswith(".")
    }
    for kind in ("passages", "catalog", "bm25"):
        for manifest in room.root.glob(f"{kind}/*/{MANIFEST}"):
            for path in manifest.parent.iterdir():
                found[path.relative_to(room.root).as_posix()] = path.stat().st_ino
    return found
