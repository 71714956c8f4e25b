"""The lab: all trials of some operations, in one process that forks a child for everything it does.

``python -m tests.crash.lab FOLDER OPERATION,... COUNT SEED`` prints lines of JSON: one with the points of an operation,
then one per trial. COUNT is how many points of each are tried, 0 for all.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from json import dumps
from pathlib import Path

from tests.crash.forks import ONE_THREAD, import_all, start
from tests.crash.operations import OPERATIONS, Operation
from tests.crash.room import Room
from tests.crash.trial import attempt, enter, refer

DOCUMENTS_PER_SHARD = 5
"""So few that a small corpus has two shards."""


def furnish(folder: Path, operation: Operation) -> Room:
    """Make the room of an operation: corpus, lake, and everything imported that a run imports."""
    import schemas.identity
    from tasks.load.language import _identifier

    schemas.identity.DOCUMENTS_PER_SHARD = DOCUMENTS_PER_SHARD
    shutil.rmtree(folder, ignore_errors=True)
    room = Room(folder)
    for path in (room.home, room.docs):
        path.mkdir(parents=True)

    def prepare() -> list[str]:
        enter()
        operation.prepare(room)
        return list(sys.modules)

    def rehearse() -> list[str]:
        enter(operation)
        operation.run(room)
        return list(sys.modules)

    import_all(start(prepare, room.log).value)
    _identifier()
    room.keep()
    import_all(start(rehearse, room.log).value)
    return room


def choose(points: Sequence[str], only: Sequence[str], count: int, seed: int) -> list[int]:
    """Return the numbers of points to try: all of some kinds, or of these those around the flip and some others.

    Args:
        only: kinds; none is all.
        count: how many, 0 for all.
    """
    asked = [number for number, name in enumerate(points, 1) if not only or name.partition(":")[0] in only]
    if not count:
        return asked
    flips = [number for number in asked if points[number - 1].startswith("flip: before link")]
    near = {number for flip in flips for number in (flip, flip + 1)}
    others = [number for number in asked if number not in near]
    count = min(count, len(near) + 1) if only else count  # These take seconds each.
    drawn = random.Random(seed).sample(others, min(len(others), max(0, count - len(near))))
    return sorted(near | set(drawn))


def main(folder: Path, names: Sequence[str], count: int, seed: int) -> None:
    """Print what came of all trials of some operations, or of ``count`` of each."""
    for name in names:
        operation = OPERATIONS[name]
        room = furnish(folder / name, operation)
        reference = refer(room, operation)
        _say({"operation": name, "points": reference.points})
        for number in choose(reference.points, operation.only, count, seed):
            _say(asdict(attempt(room, operation, reference, number)))
        room.stop()
        shutil.rmtree(room.path, ignore_errors=True)


def _say(value: object) -> None:
    sys.stdout.write(dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    if not ONE_THREAD.items() <= os.environ.items():
        again = [sys.executable, "-m", "tests.crash.lab", *sys.argv[1:]]
        os.execve(sys.executable, again, {**os.environ, **ONE_THREAD})
    main(Path(sys.argv[1]), sys.argv[2].split(","), int(sys.argv[3]), int(sys.argv[4]))
