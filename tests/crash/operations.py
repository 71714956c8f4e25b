"""The operations that are killed: what the lake is before each, and the command that is run, killed, and run again."""

from __future__ import annotations

import datetime as dt
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from unittest.mock import patch

from tasks.lake import lease
from tasks.publish import sweep as sweeping
from tests.crash.room import Room, Said

LATER = dt.timedelta(days=40)
"""So far is the clock of a sweep moved on: longer than everything that it waits for."""


@dataclass(frozen=True)
class Operation:
    """A command, and what it begins with.

    Attributes:
        prepare: makes the lake and the corpus, in a child of its own.
        run: the command, in the process that shall be killed.
        again: what it may answer when it is run again after it was done ("already" is how the commands put it).
        settings: variables of the configuration for the command and all that follows.
        damaged: the lake begins damaged, so that readers may be refused until it is done.
        hides: URI of a document that may be hidden at once.
        only: kinds of points to try; none is all.
        varies: a thread with a clock of its own passes some of the points: a number is each time another.
    """

    name: str
    title: str
    prepare: Callable[[Room], None]
    run: Callable[[Room], Said]
    again: tuple[int, ...] = (0,)
    settings: Mapping[str, str] = field(default_factory=dict)
    damaged: bool = False
    hides: str = ""
    only: tuple[str, ...] = ()
    varies: bool = False


def paragraph(number: int, version: int = 0) -> str:
    """Return a document that no other equals, of three sections and more than one chunk."""
    lines = [f"# Gauge {number}", "", f"Gauge {number} stands at pier {7 * number + 3}, edition {version}.", ""]
    for section in ("Datum", "Upkeep"):
        words = " ".join(f"The {section.lower()} of gauge {number} is checked on day {day}." for day in range(1, 7))
        lines += [f"## {section}", "", words, ""]
    return "\n".join(lines)


def write_corpus(room: Room, version: int = 0) -> None:
    """Write eight documents, four of them in a folder."""
    (room.docs / "north").mkdir(parents=True, exist_ok=True)
    for number in range(8):
        folder = room.docs / "north" if number % 2 else room.docs
        (folder / f"gauge-{number}.md").write_text(paragraph(number, version if number < 2 else 0))


def _index(room: Room, *arguments: str) -> Said:
    return room.command("index", *(arguments or (str(room.docs),)), "--json")


def _index_and_renew(room: Room) -> Said:
    """Index while the lease is renewed all the time, not every ten seconds."""
    with patch.object(lease, "HEARTBEAT_SECONDS", 0.02):
        return _index(room)


def _publish(room: Room, *arguments: str, settings: Mapping[str, str] | None = None) -> None:
    said = room.command("index", *(arguments or (str(room.docs),)), "--json", settings=settings)
    assert said.code == 0 and said.json["published"], said.err


def _published(room: Room) -> None:
    write_corpus(room)
    _publish(room)


def _two_generations(room: Room) -> None:
    _published(room)
    write_corpus(room, 1)
    _publish(room)


def _four_generations(room: Room) -> None:
    """Publish so often that two snapshots are dropped, one of them with the Milvus collection that it had."""
    write_corpus(room)
    _publish(room, settings=SMALLER_CHUNKS)
    os.environ.pop(*SMALLER_CHUNKS)
    _publish(room, str(room.docs), "--migrate")
    for version in (1, 2):
        write_corpus(room, version)
        _publish(room)


def _edited(room: Room) -> None:
    _published(room)
    (room.docs / "gauge-0.md").write_text(paragraph(0, 1))
    (room.docs / "gauge-8.md").write_text(paragraph(8))


def _renamed(room: Room) -> None:
    _published(room)
    (room.docs / "north").rename(room.docs / "south")


def _deleted(room: Room) -> None:
    _published(room)
    (room.docs / "gauge-0.md").unlink()
    (room.docs / "north" / "gauge-1.md").unlink()


def _rolled_back(room: Room) -> None:
    _two_generations(room)
    assert room.command("rollback", "@1", "--reason", "wrong").code == 0


def _two_sources(room: Room) -> None:
    _published(room)
    room.more.mkdir()
    for number in (20, 21):
        (room.more / f"gauge-{number}.md").write_text(paragraph(number))
    _publish(room, str(room.more))
    # Since then both sources have shared their shards in another version: what is left must be built.
    write_corpus(room, 1)
    _publish(room)


def _without_stores(room: Room) -> None:
    _published(room)
    shutil.rmtree(room.root / "milvus.db")
    for kind in ("bm25", "catalog", "passages"):
        shutil.rmtree(next((room.root / kind).iterdir()))


def maintain(room: Room, settings: Mapping[str, str] | None = None, later: dt.timedelta = LATER) -> Said:
    """Run ``maintain`` when everything that a sweep waits for is over, in batches of two rows."""
    moved = partial(sweeping.sweep, now=dt.datetime.now(dt.UTC) + later, policy=sweeping.SweepPolicy(batch=2))
    with patch.object(sweeping, "sweep", moved):
        return room.command("maintain", "--json", settings=settings)


def _purge(room: Room) -> Said:
    return room.command("purge", "gauge-0.md", "--source", "docs", "--reason", "a test", "--yes", "--json")


SMALLER_CHUNKS = {"GLOSSATOR__CHUNK__CHILD_TOKENS": "40"}
SHARED = {"GLOSSATOR__MILVUS__SHARED": "true"}
OTHER_SCORES = {"GLOSSATOR__BM25__K1": "1.9"}

OPERATIONS = {
    operation.name: operation
    for operation in (
        Operation("first", "first index", write_corpus, _index),
        Operation("edit", "index after an edit and an addition", _edited, _index),
        Operation(
            "shared",
            "index after an edit and an addition, Milvus Lite as a process of its own",
            _edited,
            _index,
            settings=SHARED,
            only=("milvus", "milvus server", "receipt", "snapshot", "flip"),
        ),
        Operation(
            "renew",
            "index after an edit and an addition, its lease renewed all the time",
            _edited,
            _index_and_renew,
            only=("lease",),
            varies=True,
        ),
        Operation("rename", "index after a folder was renamed", _renamed, _index),
        Operation("delete", "index after deletions", _deleted, lambda room: _index(room, "--allow-deletes", "2")),
        Operation(
            "chunks",
            "migration to another chunk size",
            _published,
            lambda room: _index(room, "--migrate"),
            settings=SMALLER_CHUNKS,
        ),
        Operation(
            "bm25",
            "migration to other BM25 parameters (stores only)",
            _published,
            lambda room: _index(room, "--migrate"),
            settings=OTHER_SCORES,
        ),
        Operation(
            "rollback",
            "rollback",
            _two_generations,
            lambda room: room.command("rollback", "@1", "--reason", "wrong", "--json"),
            again=(0, 2),
        ),
        Operation("resume", "resume", _rolled_back, lambda room: room.command("resume", "--json"), again=(0, 2)),
        Operation("maintain", "maintain (the sweep), forty days later", _four_generations, maintain),
        Operation("purge", "purge of a document", _two_generations, _purge, hides="gauge-0.md"),
        Operation(
            "remove",
            "removal of a source",
            _two_sources,
            lambda room: room.command("source", "remove", "more", "--allow-deletes", "2", "--json"),
            again=(0, 2),
        ),
        Operation(
            "repair",
            "repair of lost stores",
            _without_stores,
            lambda room: room.command("doctor", "--repair", "--json"),
            damaged=True,
        ),
    )
}
