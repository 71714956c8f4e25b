"""The outcome: what an operation has made of a lake, and in what two outcomes differ that ought to be equal."""

from __future__ import annotations

import datetime as dt
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass

from schemas.snapshot import PartRef, Stage
from tasks import progress
from tests.crash.inspection import Answer, Contents, ailments, answer, contents, finished, names
from tests.crash.operations import LATER, Operation, maintain
from tests.crash.points import Points
from tests.crash.room import SETTINGS, Room, Said


@dataclass(frozen=True, slots=True)
class After:
    """A lake after the operation, run in one go or again after it was killed.

    Attributes:
        said: by the operation.
        computed: parts that were computed, not found: "stage/key" -> texts that went through the model.
        tidy: files that are left when ``maintain`` has run forty days later.
        tidied: what is published then.
        sick: what the doctor finds then, in all snapshots that are kept.
        before, after: finished work before the operation and after it, with inodes.
        idle: it changed nothing but records of itself.
        points: that it passed.
    """

    said: Said
    computed: Mapping[str, int]
    contents: Contents
    answer: Answer
    tidy: frozenset[str]
    tidied: Contents
    sick: tuple[str, ...]
    before: Mapping[str, int]
    after: Mapping[str, int]
    idle: bool
    points: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reference:
    """The operation, not killed.

    Attributes:
        points: their names.
        old: what a reader is told before it.
    """

    points: tuple[str, ...]
    old: Answer
    new: After


DISPOSABLE = "state/newest/"
"""Hints of parts that no snapshot names yet. One killed between a part and its hint leaves none, and a run that finds
the part by its key writes none: its snapshot names it."""
_OF_ITSELF = ("lease: ", "plan: ", "version hints: ", "models: ", "milvus files: before touch")
"""What a command writes that has nothing to do."""


class _Computed:
    """Hears which parts are computed."""

    def __init__(self) -> None:
        self.parts: dict[str, int] = {}

    def shard_done(self, stage: Stage, ref: PartRef, seconds: float) -> None:
        if not ref.reused:
            self.parts[f"{stage}/{ref.key}"] = ref.counts["computed"] if stage == "embed" else 0

    def store_begun(self, name: str) -> None: ...

    def store_done(self, name: str, seconds: float) -> None: ...

    def units_expected(self, stage: Stage, units: int) -> None: ...

    def units_done(self, stage: Stage, units: int) -> None: ...


def enter(operation: Operation | None = None) -> None:
    """Begin a child: with the configuration of an operation, and so that nobody in it sleeps long.

    Milvus's client waits half a second for an index that is there.
    """
    os.environ.update({**SETTINGS, **(operation.settings if operation else {})})
    sleep = time.sleep
    time.sleep = lambda seconds: sleep(min(seconds, 0.01))


def complete(room: Room, operation: Operation, later: dt.timedelta = LATER) -> After:
    """Run the operation in this process, and look at what lies there, also after a later ``maintain``."""
    computed, lake, config = _Computed(), room.lake, room.config(operation.settings)
    before = finished(room)
    points = Points(room.root)
    points.install()
    progress.listen(computed)
    said = operation.run(room)
    progress.unlisten(computed)
    points.end()
    passed = tuple(points.names)
    idle = all(name.startswith((*_OF_ITSELF, "end: ")) for name in passed)
    after = finished(room)
    assert lake.current_flip() is not None, said
    found = answer(lake, config)
    published = contents(lake, config, found)
    tidied = maintain(room, later=later)
    assert tidied.code == 0, tidied.err
    return After(
        said=said,
        computed=computed.parts,
        contents=published,
        answer=found,
        tidy=names(room),
        tidied=contents(lake, config, answer(lake, config)),
        sick=ailments(lake, config, kept=True),
        before=before,
        after=after,
        idle=idle,
        points=passed,
    )


def compare(operation: Operation, reference: Reference, after: After) -> list[str]:
    """Return what is not as it is without a kill."""
    wanted, problems = reference.new, []
    if after.said.code not in operation.again:
        problems.append(f"run again, it ended with {after.said.code}: {after.said.err.strip()}")
    problems += [
        f"{name} differs from a run that was not killed"
        for name in ("snapshot", "hold", "rows", "bm25", "tombstones")
        if getattr(after.contents, name) != getattr(wanted.contents, name)
    ]
    if after.answer != wanted.answer:
        problems.append("a reader is told something else than after a run that was not killed")
    problems += _twice(reference, after)
    if after.sick:
        problems.append(f"in the end the doctor found {after.sick[0]}")
    if after.tidied != wanted.tidied:
        problems.append("what is published or kept differs after maintain")
    problems += [f"left for ever: {path}" for path in sorted(after.tidy - wanted.tidy)]
    missing = sorted(path for path in wanted.tidy - after.tidy if not path.startswith(DISPOSABLE))
    return problems + [f"missing in the end: {path}" for path in missing]


def _twice(reference: Reference, after: After) -> list[str]:
    """Return what was finished and done again."""
    problems = [
        f"written again: {path}"
        for path, inode in sorted(after.before.items())
        if path in after.after and after.after[path] != inode
    ]
    done = {part for part in after.computed if _path_of(part) in after.before}
    problems += [f"computed again: {part}" for part in sorted(done)]
    expected = sum(texts for part, texts in reference.new.computed.items() if _path_of(part) not in after.before)
    embedded = sum(after.computed.values())
    if embedded > expected:
        problems.append(f"{embedded} texts were embedded where {expected} were missing")
    return problems


def _path_of(part: str) -> str:
    return f"{part}/manifest.json" if part.startswith("passages/") else f"parts/{part}.parquet"
