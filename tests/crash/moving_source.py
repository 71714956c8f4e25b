"""A source that moves: files and folders that vanish, change or turn into something else while a run looks at them.

``python -m tests.crash.moving_source`` tries all cases and writes the results.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.crash.forks import start
from tests.crash.inspection import Answer, ailments, answer
from tests.crash.moving_source_cases import ADDED, CASES, DOCUMENTS, DONE, FAILED, REFUSED, Case
from tests.crash.operations import paragraph
from tests.crash.outcome import enter
from tests.crash.place import furnish, run_lab, temporary
from tests.crash.results import Row, count, record
from tests.crash.room import Room, Said

FAULT = "a source that moves"
PROMISE = (
    "A folder of fourteen documents is published; two are edited, and one is added. Then the source moves while the "
    "next `index` lists or reads it. No published document may go, none may be shown in a version that never was, and "
    "the run must end: with the documents that could be read and a note on the others, or refused as a whole. When the "
    "source is quiet again, the same command must end with the snapshot of a lake that saw nothing of it."
)
LONGEST = 60
"""Seconds that a run may take."""


@dataclass(frozen=True, slots=True)
class Moved:
    """What came of a case."""

    case: str
    reader: str
    again: str
    violations: tuple[str, ...]


def _prepare(room: Room) -> None:
    for number in range(DOCUMENTS):
        (room.docs / f"gauge-{number}.md").write_text(paragraph(number))
    said = room.command("index", str(room.docs), "--json")
    assert said.code == 0, said


def attempt(room: Room, case: Case) -> Moved:
    """Index while the source moves, look, and index again when it is quiet."""
    room.reset()
    for name in ("docs", "unmounted", "clean"):
        shutil.rmtree(room.path / name, ignore_errors=True)
    shutil.copytree(room.path / "docs before", room.docs)
    for number in range(DOCUMENTS if case.everything else 2):
        (room.docs / f"gauge-{number}.md").write_text(paragraph(number, 1))
    (room.docs / ADDED).write_text(paragraph(50))
    lake, config = room.lake, room.config({})

    def moves() -> tuple[Answer, Said, Answer]:
        enter()
        signal.alarm(LONGEST)
        old = answer(lake, config)
        with case.fault(room):
            said = room.command("index", "--json")
        return old, said, answer(lake, config)

    ended = start(moves, room.log)
    if ended.signal:
        return Moved(case.name, "", "", (f"the run did not end, or died by signal {ended.signal}",))
    old, said, told = ended.value
    problems = []
    if said.code not in case.codes:
        problems.append(f"it ended with {said.code}: {said.err.strip()}")
    if said.code in {REFUSED, FAILED} and (" -> " not in said.err or "unexpected" in said.err):
        problems.append(f"it said {said.err.strip()}")
    gone = {uri for _, uri in old.passages} - {uri for _, uri in told.passages}
    if gone:
        problems.append(f"published documents went: {sorted(gone)}")
    if told.error:
        problems.append(f"a reader was refused: {told.error}")
    reader = "the old index" if told == old else "the new index, the last good version of what could not be read in it"
    if said.code in {REFUSED, FAILED} and told != old:
        problems.append("it was refused, and something was published")
    if case.codes == (DONE,):
        reader = "the new index"
    case.settle(room)

    def clean() -> Answer:
        enter()
        other = Room(room.path / "clean")
        other.home.mkdir(parents=True)
        shutil.copytree(room.docs, other.docs, symlinks=True)
        said = other.command("index", str(other.docs), "--json")
        assert said.code == 0, said
        return answer(other.lake, config)

    def again() -> tuple[Said, Answer, tuple[str, ...]]:
        enter()
        return room.command("index", "--json"), answer(lake, config), ailments(lake, config, kept=True)

    repeated, found, sick = start(again, room.log).value
    if repeated.code != 0:
        problems.append(f"run again, it ended with {repeated.code}: {repeated.err.strip() or repeated.out}")
    if found != start(clean, room.log).value:
        problems.append("run again, the index is not that of a lake that saw nothing of it")
    problems += [f"run again, the doctor finds {one}" for one in sick]
    done = "found nothing left to do" if not repeated.json.get("published") else "indexed what is there now"
    return Moved(case.name, reader, done, tuple(problems))


def lab(folder: Path, names: Sequence[str]) -> None:
    """Try cases, each in children of this process, and print a line of JSON for each."""
    room = furnish(folder, _prepare)
    shutil.copytree(room.docs, room.path / "docs before")
    for name in names:
        sys.stdout.write(json.dumps(asdict(attempt(room, CASES[name]))) + "\n")
        sys.stdout.flush()
    shutil.rmtree(folder, ignore_errors=True)


def try_cases(names: Sequence[str], folder: Path) -> list[Moved]:
    """Try cases in a process of their own."""
    lines = run_lab("moving_source", *names, "--lab", str(folder))
    return [Moved(**{**line, "violations": tuple(line["violations"])}) for line in lines]


def main() -> int:
    """Try the cases, print what came of them, and return the exit code."""
    names = [word for word in sys.argv[1:] if word in CASES] or list(CASES)
    if "--lab" in sys.argv:
        lab(Path(sys.argv[-1]), names)
        return 0
    with temporary("source") as place:
        found = try_cases(names, place)
    for moved in found:
        sys.stdout.write(f"{moved.case:16} reader: {moved.reader}; again: {moved.again} {list(moved.violations)}\n")
    if len(names) == len(CASES):
        record(FAULT, PROMISE, rows(found))
    return 1 if any(moved.violations for moved in found) else 0


def rows(found: Sequence[Moved]) -> list[Row]:
    """Return a row of the results for each move."""
    titles = dict.fromkeys(CASES[moved.case].title for moved in found)
    return [
        Row(
            operation=title,
            points={"source": len(own)},
            reader=count(moved.reader for moved in own),
            again=count(moved.again for moved in own),
            violations=[problem for moved in own for problem in moved.violations],
        )
        for title in titles
        if (own := [moved for moved in found if CASES[moved.case].title == title])
    ]


if __name__ == "__main__":
    sys.exit(main())
