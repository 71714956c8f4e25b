"""A run through Prefect, with the real model, is killed three times over: the fourth publishes what one run would."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.lake.lake import Lake
from tests.e2e.home import Home
from tests.e2e.prefect_server import TASKS, Server

pytestmark = pytest.mark.xdist_group("prefect")

SEED = 4
KILLED = """
import sys
from pathlib import Path
from tests.crash.points import Points
import glossator

Points(Path({lake!r}), {point!r}, {occurrence}).install()
sys.argv = ["glossator", "index", {docs!r}]
glossator.main()
"""
WORK = (
    "part: before rename parts/chunk",
    "part: half-way through write parts/embed",
    "passages: before rename passages",
)
STORES = ("catalog: half-way", "bm25: before rename", "milvus: before upsert", "receipt: before write")


def write_documents(folder: Path) -> None:
    folder.mkdir()
    for number, subject in enumerate(("tide gauge", "bench mark", "sea wall", "harbour light")):
        text = f"# The {subject}\n\nThe {subject} of berth {number} is looked after by the harbour master.\n"
        (folder / f"{number}.md").write_text(text)


def kill(home: Home, docs: Path, point: str, occurrence: int = 1) -> None:
    """Index, and die at a point."""
    program = KILLED.format(lake=str(home.lake), point=point, occurrence=occurrence, docs=str(docs))
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=home.environment(),
        cwd=home.path,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, f"{point}: {done.returncode} {done.stderr[-2_000:]}"


def test_a_run_killed_at_work_at_the_stores_and_at_the_flip_ends_as_if_it_had_not_been(
    server: Server, tmp_path: Path
) -> None:
    rng = random.Random(SEED)
    docs = tmp_path / "docs"
    write_documents(docs)
    home, clean = Home(tmp_path / "home", server), Home(tmp_path / "clean")
    home.path.mkdir()
    for point in (rng.choice(WORK), rng.choice(STORES), "flip: before link"):
        kill(home, docs, point)
        assert Lake(home.lake.parent, "default").current_flip() is None, f"published before the flip: {point}"
    parts = {path: path.stat().st_ino for path in home.lake.glob("parts/*/*.parquet")}
    report = home.index(str(docs))
    assert report["published"] and report["documents"]["added"] == 4
    assert report["chunks_embedded"] == 0, "everything was embedded before the last kill"
    assert {path: path.stat().st_ino for path in home.lake.glob("parts/*/*.parquet")} == parts
    states = {name: run.state for name, run in server.task_runs(server.newest_flow(), len(TASKS)).items()}
    assert states == dict.fromkeys(TASKS, "Cached"), "all was finished, and only the flip was missing"
    assert report["snapshot"] == clean.index(str(docs), "--runner", "plain")["snapshot"]
    assert home.chunks() == clean.chunks()
