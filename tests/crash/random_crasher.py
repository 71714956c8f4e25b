"""The random crasher: commands are killed at random moments while the corpus changes and somebody reads.

``python -m tests.crash.random_crasher --seed 1 --rounds 50``. A command is the command line in a process of its own,
with the plain runner and the Milvus server that all processes share. After each round everything runs to its end and
the doctor looks; every few rounds the index is compared with one that was built at once. The last line is a summary.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash.forks import ONE_THREAD, ChildFailed, begin, import_all, start
from tests.crash.inspection import Contents, ailments, answer, contents
from tests.crash.lab import DOCUMENTS_PER_SHARD
from tests.crash.operations import maintain
from tests.crash.reader import Watched, until, watch
from tests.crash.room import SETTINGS, Room, Said
from tests.crash.script import INDEX, Attempt, apply, draw

SHARED = {"GLOSSATOR__MILVUS__SHARED": "true", "GLOSSATOR__RUN__LEASE_WAIT_SECONDS": "120"}
ALONE = {"GLOSSATOR__MILVUS__SHARED": "false"}
EVERY = 5
"""Rounds from one comparison with a clean build to the next."""


@dataclass
class Tally:
    """What happened so far."""

    rounds: int = 0
    kills: int = 0
    too_late: int = 0
    compared: int = 0
    commands: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def summary(self, seed: int, watched: Watched, seconds: float) -> str:
        """Return the last line."""
        killed = ", ".join(f"{name} {count}" for name, count in sorted(self.commands.items()))
        refusals, violations = sum(watched.refusals.values()), len(self.violations)
        return (
            f"crash: seed {seed}, {self.rounds} rounds, {self.kills} kills ({killed}), {self.too_late} kills too late, "
            f"{watched.answers} answers from {len(watched.snapshots)} snapshots, {refusals} refusals, "
            f"{self.compared} comparisons with a clean build, {violations} violations, {seconds:.0f} s"
        )


class Crasher:
    """A lake under attack."""

    def __init__(self, folder: Path) -> None:
        self.room = Room(folder)
        for path in (self.room.home, self.room.docs):
            path.mkdir(parents=True)
        self.tally = Tally()

    def command(self, *words: str) -> Said:
        """Run a command in this process."""
        if words[0] == "maintain":
            return maintain(self.room, SHARED)
        return self.room.command(*(word.replace("{docs}", str(self.room.docs)) for word in words), settings=SHARED)

    def attack(self, attempt: Attempt) -> None:
        """Start a command and kill it."""
        apply(attempt.edits, self.room.docs)
        child = begin(lambda: self.command(*attempt.command), self.room.log)
        time.sleep(attempt.delay / 2)
        apply(attempt.meanwhile, self.room.docs)
        time.sleep(attempt.delay / 2)
        child.kill()
        if child.wait().signal:
            self.tally.kills += 1
            self.tally.commands[attempt.command[0]] += 1
        else:
            self.tally.too_late += 1

    def settle(self) -> None:
        """Run everything to its end, and look."""

        def finishes() -> tuple[Said, Said, tuple[str, ...]]:
            resumed = self.command("resume", "--json")
            # The configuration is that of the file again, whatever a command that was killed had on its line.
            indexed = self.command(*INDEX, "--migrate")
            return resumed, indexed, ailments(self.room.lake, self.room.config(SHARED), kept=True)

        resumed, indexed, sick = start(finishes, self.room.log).value
        self._unless(resumed.code in {0, 2}, f"resume ended with {resumed.code}: {resumed.err.strip()}")
        self._unless(indexed.code == 0, f"index ended with {indexed.code}: {indexed.err.strip()}")
        self._unless(sick == (), f"the doctor found {', '.join(sick)}")

    def compare(self) -> None:
        """Compare what is published with an index that is built at once."""
        clean = Room(self.room.path / "clean")
        shutil.rmtree(clean.path, ignore_errors=True)
        clean.home.mkdir(parents=True)

        def builds() -> Contents:
            said = clean.command("index", str(self.room.docs), "--json", settings=ALONE)
            assert said.code == 0, said.err
            config = clean.config(ALONE)
            return contents(clean.lake, config, answer(clean.lake, config))

        def reads() -> Contents:
            lake, config = self.room.lake, self.room.config(SHARED)
            return contents(lake, config, answer(lake, config))

        wanted: Contents = start(builds, self.room.log).value
        found: Contents = start(reads, self.room.log).value
        self.tally.compared += 1
        for name in ("snapshot", "rows", "hold"):
            same = getattr(found, name) == getattr(wanted, name)
            self._unless(same, f"{name} differs from a clean build")

    def _unless(self, holds: bool, violation: str) -> None:
        if not holds:
            self.tally.violations.append(f"round {self.tally.rounds + 1}: {violation}")


def crash(seed: int, rounds: int, folder: Path) -> tuple[Tally, Watched]:
    """Play the script of a seed."""
    crasher = Crasher(folder)
    end = folder / "end"
    _rehearse(folder / "rehearsal")
    reader = begin(lambda: watch(crasher.room.lake, crasher.room.config(SHARED), until(end)), folder / "reader.log")
    try:
        for number, now in enumerate(draw(seed, rounds), 1):
            for attempt in now.attempts:
                crasher.attack(attempt)
            crasher.settle()
            if number % EVERY == 0 or number == rounds:
                crasher.compare()
            crasher.tally.rounds = number
            for violation in crasher.tally.violations:
                sys.stdout.write(f"  {violation}\n")
                sys.stdout.flush()
    except ChildFailed as error:
        crasher.tally.violations.append(f"round {crasher.tally.rounds + 1}: {error}")
    finally:
        end.touch()
        watched: Watched = reader.wait().value
    crasher.tally.violations += watched.violations
    return crasher.tally, watched


def _rehearse(folder: Path) -> None:
    """Import everything that a command imports: none shall spend its last second on that."""
    room = Room(folder)
    for path in (room.home, room.docs):
        path.mkdir(parents=True)
    (room.docs / "a.md").write_text("# A\n\nA gauge.\n")

    def runs() -> list[str]:
        assert room.command("index", str(room.docs), settings=SHARED).code == 0
        answer(room.lake, room.config(SHARED))
        return list(sys.modules)

    from tasks.load.language import _identifier

    import_all(start(runs, folder / "log").value)
    _identifier()


def main() -> int:
    """Play a script, print what broke and a summary, and return the exit code."""
    parser = argparse.ArgumentParser(description="Kill commands at random moments.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=50)
    chosen = parser.parse_args()
    import schemas.identity

    schemas.identity.DOCUMENTS_PER_SHARD = DOCUMENTS_PER_SHARD
    os.environ.update(SETTINGS)
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="glossator-crash-", ignore_cleanup_errors=True) as folder:
        tally, watched = crash(chosen.seed, chosen.rounds, Path(folder))
    lines = [*tally.violations, *(f"refused {count} times: {what}" for what, count in watched.refusals.most_common())]
    lines.append(tally.summary(chosen.seed, watched, time.perf_counter() - begun))
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if tally.violations else 0


if __name__ == "__main__":
    if not ONE_THREAD.items() <= os.environ.items():
        again = [sys.executable, "-m", "tests.crash.random_crasher", *sys.argv[1:]]
        os.execve(sys.executable, again, {**os.environ, **ONE_THREAD})
    sys.exit(main())
