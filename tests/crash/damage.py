"""Damage at rest: every kind of file of a published lake, damaged in every way.

``python -m tests.crash.damage`` tries all of them, or those kinds that are named, and writes the results; ``--slice N``
tries N of all and writes none.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from tests.crash.damage_lake import KINDS, damages_of, kept, prepare
from tests.crash.damage_trial import DamageTrial, attempt, examine_healthy
from tests.crash.forks import import_all, start
from tests.crash.lab import DOCUMENTS_PER_SHARD
from tests.crash.outcome import enter
from tests.crash.place import furnish, run_lab, temporary
from tests.crash.results import Row, count, record

FAULT = "damage to files"
PROMISE = (
    "A lake of two sources, with a pinned older snapshot, a purged and a quarantined document and a right that was "
    "taken away, has one file damaged: lost, cut, emptied, written over with zeros or without its end, or with one bit "
    "flipped. Each reader (vectors, words, both, somebody of a group, somebody of a group in the older snapshot) must "
    "get the answer of the whole lake, or one line that names the file and the way on; never another answer without a "
    "word, and nothing that is hidden. The doctor must find the damage, also in what is only kept, and doing what it "
    "says must bring back snapshot, rows, BM25 index and answers. `index`, with nothing changed and after an edit, "
    "must publish what it would without the damage, or refuse in words. Files of Milvus have no checksums of ours: the "
    "doctor compares the rows and asks the index, and a byte that changes neither rows nor answers is not told."
)
SEED = 1
Case = tuple[str, str]


def cases(kinds: Sequence[str]) -> list[Case]:
    """Return all (kind, damage)."""
    return [(name, damage) for name in kinds for damage in damages_of(KINDS[name])]


def lab(folder: Path, chosen: Sequence[Case], seed: int) -> None:
    """Try some cases, in one process that forks a child for everything that it does; print a line of JSON for each."""
    import schemas.identity

    schemas.identity.DOCUMENTS_PER_SHARD = DOCUMENTS_PER_SHARD
    room = furnish(folder, prepare)

    def rehearse() -> list[str]:
        enter()
        room.command("doctor", "--repair")
        return list(sys.modules)

    shutil.copytree(room.docs, room.path / "docs before", symlinks=True, copy_function=shutil.copy2)
    old = start(lambda: kept(room).name, room.log).value
    import_all(start(rehearse, room.log).value)
    healthy = examine_healthy(room, old)
    for name, damage in chosen:
        try:
            trial = attempt(room, KINDS[name], damage, seed, old, healthy)
        except AssertionError as error:
            trial = DamageTrial(name, damage, "", "", "", "", ("", ""), (f"the trial failed: {error}",))
        sys.stdout.write(json.dumps(asdict(trial)) + "\n")
        sys.stdout.flush()
    shutil.rmtree(folder, ignore_errors=True)


def try_cases(chosen: Sequence[Case], folder: Path, seed: int) -> list[DamageTrial]:
    """Try some cases in a process of their own."""
    trials = run_lab("damage", "--lab", str(folder), "--seed", str(seed), input=json.dumps(list(chosen)))
    return [
        DamageTrial(**{**trial, "runs": tuple(trial["runs"]), "violations": tuple(trial["violations"])})
        for trial in trials
    ]


def some(number: int, seed: int) -> list[Case]:
    """Draw cases, each of another kind."""
    rng = random.Random(seed)
    return [(name, rng.choice(damages_of(KINDS[name]))) for name in rng.sample(sorted(KINDS), number)]


def rows(trials: Sequence[DamageTrial]) -> list[Row]:
    """Return a row of the results for each kind."""
    found: list[Row] = []
    for name in dict.fromkeys(trial.kind for trial in trials):
        own = [trial for trial in trials if trial.kind == name]
        found.append(
            Row(
                operation=KINDS[name].title,
                points=count(trial.damage for trial in own),
                reader=count(trial.reader for trial in own),
                again=count(f"{trial.doctor}; mended by: {trial.remedy}" for trial in own),
                violations=[f"{trial.damage}: {problem}" for trial in own for problem in trial.violations],
            )
        )
    return found


def main() -> int:
    """Try the cases, print what came of them, and return the exit code."""
    parser = argparse.ArgumentParser(description="Damage every kind of file in every way.")
    parser.add_argument("kinds", nargs="*", help=f"default: {' '.join(KINDS)}")
    parser.add_argument("--slice", type=int, default=0)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--lab", type=Path)
    options = parser.parse_args()
    if options.lab:
        lab(options.lab, [(name, damage) for name, damage in json.loads(sys.stdin.read())], options.seed)
        return 0
    begun = time.perf_counter()
    chosen = some(options.slice, options.seed) if options.slice else cases(options.kinds or list(KINDS))
    with temporary("damage") as place, ThreadPoolExecutor(2) as pool:
        halves = [chosen[::2], chosen[1::2]]
        jobs = [pool.submit(try_cases, half, place / str(at), options.seed) for at, half in enumerate(halves)]
        trials = [trial for job in jobs for trial in job.result()]
    order = list(KINDS)
    trials.sort(key=lambda trial: order.index(trial.kind))
    for trial in trials:
        _say(
            f"{trial.kind:20} {trial.damage:28} reader: {trial.reader}; doctor: {trial.doctor}; {trial.remedy}; "
            f"{' / '.join(trial.runs)}"
        )
        for problem in trial.violations:
            _say(f"    ! {trial.path}: {problem}")
    if not options.slice:
        record(FAULT, PROMISE, rows(trials))
    broken = sum(len(trial.violations) for trial in trials)
    _say(f"{len(trials)} trials, {broken} violations, {time.perf_counter() - begun:.0f} s")
    return 1 if broken else 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
