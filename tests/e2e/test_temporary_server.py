"""A run without a configured Prefect server: it has a temporary one, which ends with it however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.e2e.home import ROOT, Home, write_berths
from tests.e2e.serving import until

pytestmark = pytest.mark.xdist_group("prefect")

SOON = 20.0
"""Seconds: a run that waits for a server that is gone takes more than a minute."""
GOES_ON = "what is done so far is kept -> run the same command again to go on\n"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A run at its first documents, the leader of a process group as on a terminal."""
    write_berths(tmp_path / "docs")
    home = Home(tmp_path / "home")
    process = start(home, tmp_path / "docs")
    try:
        until(lambda: True if (home.lake / "parts" / "load").exists() else process.poll(), 60, "the first documents")
        yield process
    finally:
        process.kill()
        process.communicate()


def start(home: Home, docs: Path) -> subprocess.Popen[str]:
    home.path.mkdir()
    return subprocess.Popen(
        [sys.executable, str(ROOT / "glossator.py"), "index", str(docs), "--set", "embed.model=hash:384"],
        env=home.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def server_of(process: subprocess.Popen[str]) -> psutil.Process:
    children = psutil.Process(process.pid).children()
    return next(child for child in children if "flows.prefect_server" in child.cmdline())


def test_ctrl_c_in_a_terminal_ends_the_run_at_once(running: subprocess.Popen[str]) -> None:
    server = server_of(running)
    begun = time.monotonic()
    os.killpg(running.pid, signal.SIGINT)  # As a terminal does: all of the group.
    out, err = running.communicate(timeout=120)
    assert running.returncode == 128 + signal.SIGINT
    assert (out, err) == ("", f"glossator: interrupted; {GOES_ON}")
    assert time.monotonic() - begun < SOON
    assert not server.is_running()


def test_the_server_of_a_run_that_is_killed_ends_too(running: subprocess.Popen[str]) -> None:
    server = server_of(running)
    running.kill()
    running.communicate()
    assert until(lambda: None if server.is_running() else True, 60, "the server has ended")


def test_a_configured_server_that_does_not_answer_is_named(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# A\n\nAn anchor.\n")
    home = Home(tmp_path / "home", settings={"PREFECT_API_URL": "http://127.0.0.1:9/api"})
    process = start(home, tmp_path / "docs")
    _, err = process.communicate()
    assert process.returncode == 1
    assert err.startswith("glossator: no Prefect server answers at http://127.0.0.1:9/api -> ")
    assert "Traceback" not in err
