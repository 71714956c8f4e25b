"""One trial: something happens to an operation at a point; it is looked at, run again, compared, and tidied up."""

from __future__ import annotations

import datetime as dt
import signal
import sys
from dataclasses import dataclass, replace

from tests.crash.faults import CHANGES, Fault
from tests.crash.forks import ChildFailed, Ended, import_all, start
from tests.crash.inspection import Answer, ailments, answer
from tests.crash.operations import Operation
from tests.crash.outcome import After, Reference, compare, complete, enter
from tests.crash.points import Points
from tests.crash.room import Room, Said

MOST_SECONDS = 120
"""A command that takes longer hangs."""
ORDERLY = frozenset({0, 1, 3, 4, 130, 143})
"""Exit codes of a command that something happened to: those of ``schemas/errors.py``, and those of signals."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What happened to an operation, and what came of it.

    Attributes:
        point: where; "" where it was not reached.
        ended: how the command ended: "killed", "failed", "refused", "stopped" or "done".
        reader: what the reader saw: "old", "new", "the same" where these are one, "nothing" or "an error".
        again: what the operation did when it was run again: "finished", "nothing" or "refused".
        violations: of the promises, in words.
    """

    number: int
    point: str
    ended: str
    reader: str
    again: str
    violations: tuple[str, ...]


def refer(room: Room, operation: Operation) -> Reference:
    """Run the operation while nothing happens to it."""

    def old() -> Answer:
        enter(operation)
        return answer(room.lake, room.config(operation.settings))

    def looked() -> tuple[After, list[str]]:
        enter(operation)
        return complete(room, operation), list(sys.modules)

    room.reset()
    told = start(old, room.log).value
    room.reset()
    new, modules = start(looked, room.log).value
    import_all(modules)
    assert new.said.code == 0 and new.sick == (), (new.said, new.sick)
    return Reference(new.points, told, new)


def points_of(room: Room, operation: Operation, reference: Reference, fault: Fault) -> tuple[str, ...]:
    """Return the names of the points at which a fault may strike, and of those between them."""
    if fault.border == CHANGES:
        return reference.points

    def counted() -> list[str]:
        enter(operation)
        points = Points(room.root)
        fault.watch(points, room)
        said = operation.run(room)
        assert said.code == 0, said.err
        return points.names

    room.reset()
    return tuple(start(counted, room.log).value)


def strike(room: Room, operation: Operation, fault: Fault, number: int) -> Ended:
    """Run the operation in a child, with a fault at a point."""

    def works() -> Said:
        enter(operation)
        signal.alarm(MOST_SECONDS)
        points = Points(room.root, number, log=room.path / "point", strike=fault.strike(room), later=fault.later)
        fault.watch(points, room)
        said = operation.run(room)
        if fault.border == CHANGES:
            points.end()
        return said

    (room.path / "point").unlink(missing_ok=True)
    return start(works, room.log)


def where(room: Room) -> str:
    """Return the name of the point at which the last child was struck, "" where it was not."""
    log = room.path / "point"
    return log.read_text().splitlines()[1] if log.exists() else ""


def attempt(room: Room, operation: Operation, reference: Reference, fault: Fault, number: int) -> Trial:
    """Have a fault strike the operation at a point, and see."""
    room.reset()
    try:
        ended = strike(room, operation, fault, number)
    except ChildFailed as error:
        return Trial(number, where(room) or "start", "", "", "failed", (str(error),))
    point = where(room)
    if not point:  # A thread of Milvus Lite passed fewer points than when they were counted.
        return Trial(number, "", "", "", "", ())
    end, problems = how(room, ended, dies=fault.dies)
    trial = look(room, operation, reference, Trial(number, point, end, "", "", ()), dt.timedelta(days=fault.later_days))
    return replace(trial, violations=(*problems, *trial.violations))


def how(room: Room, ended: Ended, *, dies: bool = False) -> tuple[str, list[str]]:
    """Return how a command ended, and what was not orderly about that."""
    if dies:
        return "killed", [] if ended.signal == signal.SIGKILL else ["it was killed and went on"]
    if ended.signal == signal.SIGALRM:
        return "hung", [f"it hung for {MOST_SECONDS} s"]
    if ended.signal:
        return "killed", [f"it ended by signal {ended.signal}, and said nothing"]
    said: Said = ended.value
    lines = said.err.splitlines()
    problems = []
    if said.code not in ORDERLY:
        problems.append(f"it ended with {said.code}: {said.err.strip()}")
    if said.code == 1 and not lines and _report_tells(said):
        return "failed", problems
    if said.code not in {0, 3}:
        if len(lines) != 1 or not lines[0].startswith("glossator: ") or " -> " not in lines[0]:
            problems.append(f"it did not say in one line what happened and what to do: {said.err.strip()!r}")
        if "unexpected" in said.err:
            problems.append(f"it did not expect that: {said.err.strip()}")
    printed = room.log.read_text(errors="replace")
    if "Traceback" in said.err + said.out + printed:
        problems.append(f"a traceback: {(said.err + printed).strip()[-600:]}")
    words = {0: "done", 3: "done", 4: "refused", 130: "stopped", 143: "stopped"}
    return words.get(said.code, "failed"), problems


def _report_tells(said: Said) -> bool:
    """Tell whether a repair that failed says of each snapshot that is not healthy what is wrong and what to do."""
    reports = said.json
    sick = [finding for report in reports for finding in report["after"] if not finding["ok"]]
    problems = [problem for report in reports for problem in report["problems"]]
    return (
        all(finding["remedy"] for finding in sick)
        and all(" -> " in problem for problem in problems)
        and bool(sick or problems)
    )


def look(room: Room, operation: Operation, reference: Reference, trial: Trial, later: dt.timedelta) -> Trial:
    """Look at what a fault left, run the operation again, and compare."""

    def looked() -> tuple[Answer, tuple[str, ...], After]:
        enter(operation)
        signal.alarm(MOST_SECONDS)
        lake, config = room.lake, room.config(operation.settings)
        return answer(lake, config), ailments(lake, config, kept=False), complete(room, operation, later)

    try:
        ended = start(looked, room.log)
        assert not ended.signal, f"run again, it hung for {MOST_SECONDS} s"
        told, sick, after = ended.value
    except AssertionError as error:
        return replace(trial, again="failed", violations=(str(error),))
    reader = _reader(operation, reference, told)
    problems = []
    if reader not in {"old", "new", "the same", "nothing", "an error"}:
        problems.append(f"a reader saw {reader}")
    if reader == "an error" and not operation.damaged:
        problems.append(f"a reader was refused: {told.error}")
    if trial.ended == "done" and reader == "old" and reference.new.answer != reference.old:
        problems.append("it said that it was done, and readers have the old index")
    if sick and not operation.damaged:
        problems.append(f"the doctor found {sick[0]} before it was run again")
    problems += compare(operation, reference, after)
    again = "refused" if after.said.code else "nothing" if after.idle else "finished"
    return replace(trial, reader=reader, again=again, violations=tuple(problems))


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
