"""One trial: an operation is killed at a point, looked at, run again, compared, and tidied up after."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass

from schemas.snapshot import PartRef, Stage
from tasks import progress
from tests.crash.forks import Ended, start
from tests.crash.inspection import Answer, Contents, ailments, answer, contents, finished, names
from tests.crash.operations import Operation, maintain
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


@dataclass(frozen=True, slots=True)
class Reference:
    """The operation, not killed.

    Attributes:
        points: their names.
        old: what a reader is told before it, and what lies there.
    """

    points: tuple[str, ...]
    old: Answer
    there: Mapping[str, int]
    new: After


@dataclass(frozen=True, slots=True)
class Trial:
    """A kill and what came of it.

    Attributes:
        reader: what the reader saw: "old", "new", "the same" where these are one, "nothing" or "an error".
        again: what the operation did when it was run again: "finished", "nothing" or "refused".
        violations: of the promises, in words.
    """

    number: int
    point: str
    reader: str
    again: str
    violations: tuple[str, ...]


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


def _complete(room: Room, operation: Operation) -> After:
    computed, lake, config = _Computed(), room.lake, room.config(operation.settings)
    before = finished(room)
    points = Points(room.root)
    points.install()
    progress.listen(computed)
    said = operation.run(room)
    progress.unlisten(computed)
    after, idle = finished(room), all(name.startswith(_OF_ITSELF) for name in points.names)
    assert lake.current_flip() is not None, said
    found = answer(lake, config)
    published = contents(lake, config, found)
    tidied = maintain(room)
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
    )


def refer(room: Room, operation: Operation) -> Reference:
    """Run the operation without killing it, twice: counted, and looked at."""

    def old() -> tuple[Answer, Mapping[str, int]]:
        enter(operation)
        return answer(room.lake, room.config(operation.settings)), finished(room)

    def counted() -> list[str]:
        enter(operation)
        points = Points(room.root)
        points.install()
        said = operation.run(room)
        assert said.code == 0, said.err
        points.end()
        return points.names

    def looked() -> After:
        enter(operation)
        return _complete(room, operation)

    room.reset()
    told, there = start(old, room.log).value
    room.reset()
    points = start(counted, room.log).value
    room.reset()
    new: After = start(looked, room.log).value
    assert new.said.code == 0 and new.sick == (), (new.said, new.sick)
    return Reference(tuple(points), told, there, new)


def kill(room: Room, operation: Operation, at: int | str, occurrence: int = 1) -> Ended:
    """Run the operation in a child that kills itself at a point."""

    def dies() -> Said:
        enter(operation)
        points = Points(room.root, at, occurrence, room.path / "point")
        points.install()
        said = operation.run(room)
        points.end()
        return said

    return start(dies, room.log)


def attempt(room: Room, operation: Operation, reference: Reference, number: int) -> Trial:
    """Kill the operation at a point, and see."""
    room.reset()
    (room.path / "point").unlink(missing_ok=True)
    ended = kill(room, operation, number)
    if ended.signal != signal.SIGKILL:  # A thread of Milvus Lite passed fewer points than when they were counted.
        return Trial(number, "", "", "", ())
    point = (room.path / "point").read_text().splitlines()[1]

    def looked() -> tuple[Answer, tuple[str, ...], After]:
        enter(operation)
        lake, config = room.lake, room.config(operation.settings)
        return answer(lake, config), ailments(lake, config, kept=False), _complete(room, operation)

    try:
        told, sick, after = start(looked, room.log).value
    except AssertionError as error:
        return Trial(number, point, "", "failed", (str(error),))
    reader = _reader(operation, reference, told)
    problems = []
    if reader not in {"old", "new", "the same", "nothing", "an error"}:
        problems.append(f"a reader saw {reader}")
    if reader == "an error" and not operation.damaged:
        problems.append(f"a reader was refused: {told.error}")
    if sick and not operation.damaged:
        problems.append(f"the doctor found {sick[0]} before it was run again")
    problems += _compare(operation, reference, after)
    again = "refused" if after.said.code else "nothing" if after.idle else "finished"
    return Trial(number, point, reader, again, tuple(problems))


def _reader(operation: Operation, reference: Reference, told: Answer) -> str:
    if told.error:
        return "an error"
    if told == Answer():
        return "nothing" if reference.old == Answer() else "nothing, where something is published"
    if told == reference.new.answer:
        return "the same" if reference.old == reference.new.answer else "new"
    # A purged document is hidden at once, whatever is published.
    hidden = frozenset(passage for passage in reference.old.passages if passage[1] == operation.hides)
    if told.snapshot == reference.old.snapshot and told.passages in {
        reference.old.passages,
        reference.old.passages - hidden,
    }:
        return "old"
    return f"a mix: {len(told.passages)} passages of {told.snapshot}"


def _compare(operation: Operation, reference: Reference, after: After) -> list[str]:
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
