"""The lab: all trials of some operations, in one process that forks a child for everything it does.

``python -m tests.crash.lab FOLDER OPERATION,... FAULT,... COUNT SEED`` prints lines of JSON: one with the points of an
operation and a fault, then one per trial. COUNT is how many points of each are tried, 0 for all, -1 for as many as the
fault says.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from json import dumps
from pathlib import Path

from tests.crash.all_faults import FAULTS, KILL
from tests.crash.forks import ONE_THREAD
from tests.crash.operations import OPERATIONS
from tests.crash.outcome import Reference
from tests.crash.place import furnish
from tests.crash.trial import attempt, points_of, refer

DOCUMENTS_PER_SHARD = 5
"""So few that a small corpus has two shards."""


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


def sample(points: Sequence[str], fits: Callable[[str], bool], count: int, seed: int) -> list[int]:
    """Return the numbers of points to try: all that fit, or ``count`` with as many kinds among them as there are."""
    asked = [number for number, name in enumerate(points, 1) if fits(name)]
    if not count or len(asked) <= count:
        return asked
    random.Random(seed).shuffle(asked)
    seen: Counter[str] = Counter()
    rounds = {}
    for number in asked:
        kind = points[number - 1].rpartition(" ")[0]  # What is done to what, without the name of the file.
        rounds[number] = seen[kind]
        seen[kind] += 1
    return sorted(sorted(asked, key=rounds.__getitem__)[:count])


def main(folder: Path, operations: Sequence[str], faults: Sequence[str], count: int, seed: int) -> None:
    """Print what came of all trials of some faults of some operations, or of ``count`` of each.

    Args:
        count: -1 for as many as the fault itself says.
    """
    import schemas.identity

    schemas.identity.DOCUMENTS_PER_SHARD = DOCUMENTS_PER_SHARD
    for name in operations:
        tried = [fault for fault in (FAULTS[one] for one in faults) if name in fault.operations]
        if not tried:
            continue
        room = furnish(folder / name, OPERATIONS[name].prepare)
        references: dict[str, Reference] = {}
        for fault in tried:
            operation = replace(OPERATIONS[name], settings={**OPERATIONS[name].settings, **fault.settings})
            settings = dumps(operation.settings, sort_keys=True)
            if settings not in references:
                references[settings] = refer(room, operation)
            reference = references[settings]
            points = points_of(room, operation, reference, fault)
            _say({"operation": name, "fault": fault.name, "points": points})
            if fault.name == KILL.name:
                numbers = choose(points, operation.only, max(count, 0), seed)
            elif fault.name == "twice":
                numbers = list(range(1, 1 + (fault.most if count < 0 else count)))
            else:
                numbers = sample(points, fault.fits, fault.most if count < 0 else count, seed)
            for number in numbers:
                _say(asdict((fault.attempt or attempt)(room, operation, reference, fault, number)))
        room.stop()
        shutil.rmtree(room.path, ignore_errors=True)


def _say(value: object) -> None:
    sys.stdout.write(dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    if not ONE_THREAD.items() <= os.environ.items():
        again = [sys.executable, "-m", "tests.crash.lab", *sys.argv[1:]]
        os.execve(sys.executable, again, {**os.environ, **ONE_THREAD})
    main(Path(sys.argv[1]), sys.argv[2].split(","), sys.argv[3].split(","), int(sys.argv[4]), int(sys.argv[5]))
