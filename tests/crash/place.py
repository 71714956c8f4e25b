"""Where trials run: in memory where there is some (what a fault leaves does not depend on the disk), in processes of
their own that fork a child for everything they do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.crash.forks import ONE_THREAD, import_all, start
from tests.crash.outcome import enter
from tests.crash.room import Room

ROOT = Path(__file__).parents[2]
MEMORY = Path("/dev/shm")


@contextmanager
def in_memory(folder: Path) -> Iterator[Path]:
    """Yield a folder in memory, by the name of a fresh one on the disk, and delete it afterwards."""
    place = MEMORY / f"{folder.parent.parent.name}-{folder.name}-{id(folder)}" if MEMORY.is_dir() else folder
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def temporary(what: str) -> Iterator[Path]:
    """Yield a new folder in memory whose name says what it is for, and delete it afterwards."""
    place = Path(tempfile.mkdtemp(prefix=f"glossator-{what}-", dir=MEMORY if MEMORY.is_dir() else None))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def furnish(folder: Path, prepare: Callable[[Room], None]) -> Room:
    """Make a room with corpus and lake, kept as they are, and import everything that their making imports."""
    from tasks.load.language import _identifier

    shutil.rmtree(folder, ignore_errors=True)
    room = Room(folder)
    for path in (room.home, room.docs):
        path.mkdir(parents=True)

    def prepares() -> list[str]:
        enter()
        prepare(room)
        return list(sys.modules)

    import_all(start(prepares, room.log).value)
    _identifier()
    room.keep()
    return room


def run_lab(module: str, *arguments: str, input: str | None = None) -> list[dict[str, Any]]:
    """Run a lab of ``tests.crash`` in a process of its own; return the lines of JSON that it printed.

    Raises:
        AssertionError: it failed.
    """
    done = subprocess.run(
        [sys.executable, "-m", f"tests.crash.{module}", *arguments],
        input=input,
        cwd=ROOT,
        env={**os.environ, **ONE_THREAD, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        command = " ".join((module, *arguments))
        raise AssertionError(f"{command}: exit {done.returncode}\n{done.stdout[-500:]}\n{done.stderr[-4_000:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]
