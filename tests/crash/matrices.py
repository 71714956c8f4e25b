"""The matrices: every operation, killed at every point, or at some of them.

``python -m tests.crash.matrices`` tries all, or those of the operations that are named, and writes the results;
``--slice N`` tries N points of each and writes none. Two operations at a time, each in a lab of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from tests.crash.forks import ONE_THREAD
from tests.crash.operations import OPERATIONS
from tests.crash.results import Row, count, record
from tests.crash.trial import Trial

ROOT = Path(__file__).parents[2]
MEMORY = Path("/dev/shm")
FAULT = "kill -9"
PROMISE = (
    "The operation runs on eight documents in two shards, with the plain runner and Milvus Lite in the same process. "
    "It is killed before each single change that it makes on the disk or in the vector store, half-way through each "
    "write, and after the last. Then a reader asks a question whose answer is the whole snapshot, the doctor examines "
    "what is published, and the same command runs again. It must end with the snapshot, rows and BM25 index of a run "
    "that was not killed; no finished part is written or computed again and no text embedded twice; and after a "
    "`maintain` with the clock moved on forty days no file and no row may be left that such a run would not leave."
)
READER = {
    "old": "the old index",
    "new": "the new index",
    "the same": "the index, which stays the same",
    "nothing": "nothing is published yet",
    "an error": "an error that names the damage",
}
AGAIN = {
    "finished": "finished the work",
    "nothing": "had nothing left to do",
    "refused": "said that it was done already",
    "failed": "failed",
}


@dataclass(frozen=True)
class Matrix:
    """What came of one operation.

    Attributes:
        points: names of all that it passes.
    """

    operation: str
    points: tuple[str, ...]
    trials: tuple[Trial, ...]

    @property
    def violations(self) -> list[str]:
        """What broke a promise, with where."""
        return [
            f"{self.operation}, killed at {trial.number} ({trial.point}): {problem}"
            for trial in self.trials
            for problem in trial.violations
        ]

    @property
    def missed(self) -> int:
        """Points that were not reached when it was their turn: of two threads, each may be the first."""
        return sum(not trial.point for trial in self.trials)

    def row(self) -> Row:
        """Return its row of the results."""
        killed = [trial for trial in self.trials if trial.point]
        return Row(
            operation=OPERATIONS[self.operation].title,
            points=count(trial.point.partition(":")[0] for trial in killed),
            reader=count(READER.get(trial.reader, trial.reader) for trial in killed),
            again=count(AGAIN[trial.again] for trial in killed),
            violations=self.violations,
        )


def try_points(operations: Sequence[str], folder: Path, points: int, seed: int) -> list[Matrix]:
    """Kill operations at ``points`` of their points, 0 for all, in a process of their own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.lab", str(folder), ",".join(operations), str(points), str(seed)],
        cwd=ROOT,
        env={**os.environ, **ONE_THREAD, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise AssertionError(f"the lab of {operations} ended with {done.returncode}:\n{done.stderr[-4_000:]}")
    matrices: list[Matrix] = []
    for line in map(json.loads, done.stdout.splitlines()):
        if "operation" in line:
            matrices.append(Matrix(line["operation"], tuple(line["points"]), ()))
        else:
            trial = Trial(**{**line, "violations": tuple(line["violations"])})
            matrices[-1] = replace(matrices[-1], trials=(*matrices[-1].trials, trial))
    return matrices


def main() -> int:
    """Run the matrices, print a line for each and a summary, and return the exit code."""
    parser = argparse.ArgumentParser(description="Kill every operation at every point.")
    parser.add_argument("operations", nargs="*", help=f"default: {' '.join(OPERATIONS)}")
    parser.add_argument("--slice", type=int, default=0, help="points per operation; default: all")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    names = chosen.operations or list(OPERATIONS)
    begun = time.perf_counter()
    place = Path(tempfile.mkdtemp(prefix="glossator-crash-", dir=MEMORY if MEMORY.is_dir() else None))
    found: list[Matrix] = []
    try:
        with ThreadPoolExecutor(2) as pool:
            jobs = [pool.submit(try_points, [name], place, chosen.slice, chosen.seed) for name in names]
            for job in jobs:
                found += job.result()
                _show(found[-1])
    finally:
        shutil.rmtree(place, ignore_errors=True)
    if not chosen.slice:
        record(FAULT, PROMISE, [matrix.row() for matrix in found])
    kills = sum(len(matrix.trials) - matrix.missed for matrix in found)
    broken = sum(len(matrix.violations) for matrix in found)
    _say(f"{len(found)} operations, {kills} kills, {broken} violations, {time.perf_counter() - begun:.0f} s")
    return 1 if broken else 0


def _show(matrix: Matrix) -> None:
    row = matrix.row()
    _say(
        f"{matrix.operation:9} {len(matrix.points)} points, {sum(row.points.values())} kills; "
        f"reader: {dict(row.reader)}; again: {dict(row.again)}; {len(row.violations)} violations"
    )
    for violation in matrix.violations:
        _say(f"  {violation}")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
