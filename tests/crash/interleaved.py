"""Two commands of one lake, one within the other or beside it: a process that is paused, and two runs at once.

They share the process of Milvus Lite, as commands do; the folder itself takes one process only. One that is paused
while it starts or finds that process keeps all others from it: then they end with words, and nothing of theirs is lost.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import shutil
import signal
import time
from dataclasses import dataclass, replace
from unittest.mock import patch

from tasks.publish import milvus_server
from tests.crash.faults import Fault
from tests.crash.forks import Ended, begin, start
from tests.crash.inspection import Answer, Contents, ailments, answer, contents
from tests.crash.operations import Operation, maintain, paragraph
from tests.crash.outcome import Reference, enter
from tests.crash.points import Points
from tests.crash.room import Room, Said
from tests.crash.trial import MOST_SECONDS, Trial, how, look, where

OTHER = "gauge-5.md"
"""The document that is edited while a process is paused."""
EVERY = 4
"""Of so many trials one has a ``maintain`` meanwhile, with its clock moved on, and the others an index."""
OFFSET_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Seen:
    """What lies there after both: right then, and when all of it was indexed once more."""

    told: Answer
    sick: tuple[str, ...]
    again: Said
    indexed: Said
    contents: Contents
    answer: Answer
    healthy: tuple[str, ...]


def pause(point: str) -> None:
    """Stop all threads of this process until somebody else lets it go on."""
    os.kill(os.getpid(), signal.SIGSTOP)


def attempt_pause(room: Room, operation: Operation, reference: Reference, fault: Fault, number: int) -> Trial:
    """Pause the operation at a point until its lease has expired and another command has run to its end."""
    room.reset()
    (room.path / "point").unlink(missing_ok=True)
    document = room.docs / "north" / OTHER
    before = document.read_text()

    def works() -> Said:
        enter(operation)
        points = Points(room.root, number, log=room.path / "point", strike=pause)
        points.install()
        said = operation.run(room)
        points.end()
        return said

    child = begin(works, room.log)
    try:
        _, status = os.waitpid(child.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            os.close(child.pipe)
            return Trial(number, "", "", "", "", ())
        maintains = number % EVERY == 0
        if not maintains:
            document.write_text(paragraph(5, 9))
        _let_expire(room)
        other: Ended = start(lambda: _other(room, operation, maintains=maintains), room.path / "other.log")
        os.kill(child.pid, signal.SIGCONT)
        ended = child.wait()
        return _judge(room, operation, number, other, ended)
    finally:
        document.write_text(before)


def _let_expire(room: Room) -> None:
    path = room.root / "lease.json"
    if path.exists():
        lease = json.loads(path.read_text())
        lease["expires"] = (dt.datetime.now(dt.UTC) - dt.timedelta(seconds=1)).isoformat()
        path.write_text(json.dumps(lease))


def _other(room: Room, operation: Operation, *, maintains: bool) -> Said:
    enter(operation)
    signal.alarm(MOST_SECONDS)
    with patch.object(milvus_server, "LOCK_SECONDS", 1.0):  # It may wait in vain, and nobody shall wait for it.
        return maintain(room) if maintains else _index(room)


def _index(room: Room) -> Said:
    return room.command("index", str(room.docs), "--migrate", "--allow-deletes", "2", "--json")


def _judge(room: Room, operation: Operation, number: int, other: Ended, ended: Ended) -> Trial:
    point = where(room)
    end, problems = how(room, ended)
    _, others = how(room, other)
    problems += [f"the other command: {problem}" for problem in others]
    told = other.value.err if other.value else ""
    # Who is paused while it holds a lock keeps others out: they wait, and say in one line for whom.
    waited = (point.startswith("milvus server: ") and "waited" in told) or (
        "access/" in point and "has been writing" in told
    )
    if other.value is not None and other.value.code != 0 and not waited:
        problems.append(f"the other command ended with {other.value.code}: {other.value.err.strip()}")

    def looks() -> _Seen:
        enter(operation)
        signal.alarm(MOST_SECONDS)
        lake, config = room.lake, room.config(operation.settings)
        told, sick = answer(lake, config), ailments(lake, config, kept=True)
        again, indexed = operation.run(room), _index(room)
        found = answer(lake, config)
        return _Seen(
            told, sick, again, indexed, contents(lake, config, found), found, ailments(lake, config, kept=True)
        )

    def builds() -> tuple[Contents, Answer]:
        enter(operation)
        clean = Room(room.path / "clean")
        clean.home.mkdir(parents=True, exist_ok=True)
        said = clean.command("index", str(room.docs), "--json")
        assert said.code == 0, said.err
        config = clean.config(operation.settings)
        found = answer(clean.lake, config)
        return contents(clean.lake, config, found), found

    clean = Room(room.path / "clean")
    try:
        seen: _Seen = start(looks, room.log).value
        wanted, whole = start(builds, room.log).value
    except AssertionError as error:
        return Trial(number, point, end, "", "failed", (*problems, str(error)))
    finally:
        clean.stop()
        shutil.rmtree(clean.path, ignore_errors=True)
    if seen.told.error:
        problems.append(f"a reader was refused: {seen.told.error}")
    edited = {passage for passage in whole.passages if passage[1] == f"north/{OTHER}"}
    publishes = number % EVERY != 0  # Else it only maintained.
    if publishes and not seen.told.error and not waited and not edited <= seen.told.passages:
        problems.append("what the other command published is lost")
    problems += [f"the doctor found {what}" for what in (seen.sick + seen.healthy)[:1]]
    if seen.again.code not in {*operation.again, 2}:
        problems.append(f"run again, it ended with {seen.again.code}: {seen.again.err.strip()}")
    if seen.indexed.code != 0:
        problems.append(f"the last index ended with {seen.indexed.code}: {seen.indexed.err.strip()}")
    hidden = frozenset(passage for passage in whole.passages if passage[1] == operation.hides)
    if seen.answer.passages != whole.passages - hidden:
        problems.append("readers are told something else than from a clean build")
    if not operation.hides:
        problems += [
            f"{name} differs from a clean build"
            for name in ("snapshot", "rows", "hold")
            if getattr(seen.contents, name) != getattr(wanted, name)
        ]
    reader = "the other's" if seen.told.snapshot != wanted.snapshot else "new"
    return Trial(number, point, end, reader, "finished", tuple(problems))


def attempt_twice(room: Room, operation: Operation, reference: Reference, fault: Fault, number: int) -> Trial:
    """Run the operation twice at once; the second begins a little later."""
    room.reset()
    offset = random.Random(number).uniform(0, OFFSET_SECONDS)

    def works() -> Said:
        enter(operation)
        signal.alarm(MOST_SECONDS)
        return operation.run(room)

    one = begin(works, room.log)
    time.sleep(offset)
    two = begin(works, room.path / "other.log")
    ends = [how(room, child.wait()) for child in (one, two)]
    problems = [problem for _, found in ends for problem in found]
    words = sorted(end for end, _ in ends)
    trial = Trial(number, "start: two runs at once", " and ".join(words), "", "", ())
    if "done" not in words:
        problems.append("neither of the two was done")
    looked = look(room, operation, reference, trial, dt.timedelta(days=fault.later_days))
    return replace(looked, violations=(*problems, *looked.violations))
