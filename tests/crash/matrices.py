"""The matrices: every fault at every point of every operation that it fits, or at some of them.

``python -m tests.crash.matrices`` tries all, or those of the operations that are named, and writes the results;
``--fault NAME`` tries one fault, ``--slice N`` tries N points of each and writes none. Two operations at a time, each
in a lab of its own.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from tests.crash.all_faults import FAULTS, KILL
from tests.crash.faults import Fault
from tests.crash.operations import OPERATIONS
from tests.crash.place import run_lab, temporary
from tests.crash.results import Row, count, record
from tests.crash.trial import Trial

READER = {
    "old": "the old index",
    "new": "the new index",
    "the same": "the index, which stays the same",
    "nothing": "nothing is published yet",
    "an error": "an error that names the damage",
    "the other's": "the index of the other command",
}
ENDED = {
    "done": "went on and was done",
    "failed": "ended with one line that says why",
    "refused": "refused in one line",
    "stopped": "stopped in one line",
    "hung": "hung",
    "killed": "died",
}
AGAIN = {
    "finished": "finished the work",
    "nothing": "had nothing left to do",
    "refused": "said that it was done already",
    "failed": "failed",
}


@dataclass(frozen=True)
class Matrix:
    """What came of one operation and one fault.

    Attributes:
        points: names of all that it passes.
    """

    operation: str
    fault: str
    points: tuple[str, ...]
    trials: tuple[Trial, ...]

    @property
    def violations(self) -> list[str]:
        """What broke a promise, with where."""
        return [
            f"{self.operation}, {self.fault} at {trial.number} ({trial.point}): {problem}"
            for trial in self.trials
            for problem in trial.violations
        ]

    @property
    def missed(self) -> int:
        """Points that were not reached when it was their turn: of two threads, each may be the first."""
        return sum(not trial.point for trial in self.trials)

    def row(self) -> Row:
        """Return its row of the results."""
        struck = [trial for trial in self.trials if trial.point]
        return Row(
            operation=OPERATIONS[self.operation].title,
            points=count(trial.point.partition(":")[0] for trial in struck),
            reader=count(READER.get(trial.reader, trial.reader) for trial in struck if trial.reader),
            again=count(AGAIN[trial.again] for trial in struck),
            violations=self.violations,
            ended={} if FAULTS[self.fault].dies else count(_in_words(trial.ended) for trial in struck if trial.ended),
        )


def _in_words(ended: str) -> str:
    return " and ".join(ENDED[word] for word in ended.split(" and "))


def try_points(
    operations: Sequence[str], folder: Path, points: int, seed: int, faults: Sequence[str] = (KILL.name,)
) -> list[Matrix]:
    """Have faults strike operations at ``points`` of their points, in a process of their own.

    Args:
        points: 0 for all, -1 for as many as a fault says.
    """
    names = (",".join(operations), ",".join(faults))
    matrices: list[Matrix] = []
    for line in run_lab("lab", str(folder), *names, str(points), str(seed)):
        if "operation" in line:
            matrices.append(Matrix(line["operation"], line["fault"], tuple(line["points"]), ()))
        else:
            trial = Trial(**{**line, "violations": tuple(line["violations"])})
            matrices[-1] = replace(matrices[-1], trials=(*matrices[-1].trials, trial))
    return matrices


def main() -> int:
    """Run the matrices, print a line for each and a summary, and return the exit code."""
    parser = argparse.ArgumentParser(description="Have every fault strike every operation at every point.")
    parser.add_argument("operations", nargs="*", help=f"default: {' '.join(OPERATIONS)}")
    parser.add_argument("--fault", action="append", choices=list(FAULTS), help="default: all; repeatable")
    parser.add_argument("--slice", type=int, default=-1, help="points per operation; default: as many as a fault says")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    names = chosen.operations or list(OPERATIONS)
    begun = time.perf_counter()
    trials = broken = 0
    with temporary("crash") as place:
        for fault in (FAULTS[name] for name in chosen.fault or FAULTS):
            tried = [name for name in names if name in fault.operations]
            found = try_fault(fault, tried, place, chosen.slice, chosen.seed)
            if chosen.slice < 0:
                record(fault.title, _promise(fault), [matrix.row() for matrix in found])
            trials += sum(len(matrix.trials) - matrix.missed for matrix in found)
            broken += sum(len(matrix.violations) for matrix in found)
    _say(f"{trials} trials, {broken} violations, {time.perf_counter() - begun:.0f} s")
    return 1 if broken else 0


def try_fault(fault: Fault, operations: Sequence[str], place: Path, points: int, seed: int) -> list[Matrix]:
    """Run the matrices of a fault, two operations at a time, and print a line for each."""
    found: list[Matrix] = []
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(try_points, [name], place, points, seed, [fault.name]) for name in operations]
        for job in jobs:
            found += job.result()
            _show(found[-1])
    return found


def _promise(fault: Fault) -> str:
    if not fault.most:
        return fault.promise
    return f"{fault.promise} Tried at {fault.most} points of each operation at most, of as many kinds as there are."


def _show(matrix: Matrix) -> None:
    row = matrix.row()
    _say(
        f"{matrix.fault}, {matrix.operation}: {len(matrix.points)} points, {sum(row.points.values())} trials; "
        f"ended: {dict(row.ended)}; reader: {dict(row.reader)}; again: {dict(row.again)}; "
        f"{len(row.violations)} violations"
    )
    for violation in matrix.violations:
        _say(f"  {violation}")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
