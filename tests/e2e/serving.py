"""A process that serves the flows, and the runs that a Prefect server starts in it."""

from __future__ import annotations

import datetime as dt
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from uuid import uuid4

import psutil

from tests.e2e.home import Home
from tests.e2e.prefect_server import Server

FINAL = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}
Found = TypeVar("Found")


def until(look: Callable[[], Found | None], seconds: float, what: str) -> Found:
    """Return what a look finds, as soon as it is something."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if (found := look()) is not None:
            return found
        time.sleep(0.05)
    raise TimeoutError(f"not within {seconds} s: {what}")


@contextmanager
def serving(home: Home, *arguments: str, module: str = "deployments.serve") -> Iterator[subprocess.Popen[bytes]]:
    """Serve from a home; its children end with it."""
    home.path.mkdir(exist_ok=True)
    environment = {**home.environment(), "PREFECT_RUNNER_POLL_FREQUENCY": "1"}
    with (home.path / "serve.log").open("ab") as log:
        command = [sys.executable, "-m", module, *arguments]
        process = subprocess.Popen(command, env=environment, cwd=home.path, stdout=log, stderr=log)
    try:
        yield process
    finally:
        if process.poll() is None:
            kill_all(process)


@contextmanager
def beating(server: Server) -> Iterator[None]:
    """Give a sign of life every half a second for each run that goes on, whoever works at it.

    Prefect's own come every 30 seconds at most. So a test that waits for the end of them need not wait for that long,
    and no run is too slow for it.
    """
    ended = threading.Event()

    def beat() -> None:
        going_on = {"flow_runs": {"state": {"type": {"any_": ["PENDING", "RUNNING"]}}}}
        while not ended.wait(0.5):
            signs = [
                {
                    "event": "prefect.flow-run.heartbeat",
                    "id": str(uuid4()),
                    "occurred": dt.datetime.now(dt.UTC).isoformat(),
                    "resource": {"prefect.resource.id": f"prefect.flow-run.{run['id']}"},
                    "related": [{"prefect.resource.id": f"prefect.tag.{tag}", "prefect.resource.role": "tag"}],
                }
                for run in server.ask("/flow_runs/filter", going_on)
                for tag in run["tags"]
            ]
            if signs:
                server.ask("/events", signs)

    heart = threading.Thread(target=beat)
    heart.start()
    try:
        yield
    finally:
        ended.set()
        heart.join()


def kill_all(process: subprocess.Popen[bytes]) -> None:
    """Kill the serving process, then the child that works for it: nobody is left to tell of it."""
    children = [one for one in psutil.Process(process.pid).children(recursive=True) if "milvus" not in _command(one)]
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    for child in children:
        child.kill()
    psutil.wait_procs(children, timeout=20)


def freeze(process: subprocess.Popen[bytes]) -> None:
    """Stop the child where it is."""
    for child in psutil.Process(process.pid).children(recursive=True):
        if "milvus" not in _command(child):
            child.suspend()


def _command(process: psutil.Process) -> str:
    return " ".join(process.cmdline())


def deployment(server: Server, name: str, seconds: float = 60) -> dict[str, Any]:
    """Return a deployment that some process serves, as soon as it does."""

    def look() -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = server.ask(f"/deployments/name/{name}/{name}")
        except urllib.error.HTTPError:
            return None
        return found

    return until(look, seconds, f"deployment {name}")


def start_run(server: Server, name: str, **parameters: Any) -> str:
    """Have the server start a run; return its id."""
    place = f"/deployments/{deployment(server, name)['id']}/create_flow_run"
    wanted = {"parameters": parameters, "state": {"type": "SCHEDULED"}, "idempotency_key": str(uuid4())}
    return str(server.ask(place, wanted)["id"])


def state_of(server: Server, run: str) -> tuple[str, str]:
    """Return type and message of a run's state."""
    state = server.ask(f"/flow_runs/{run}")["state"]
    return state["type"], state["message"] or ""


def final_state(server: Server, run: str, seconds: float) -> tuple[str, str]:
    """Return type and message of a run's last state, as soon as it has come to an end."""

    def look() -> tuple[str, str] | None:
        state = state_of(server, run)
        return state if state[0] in FINAL else None

    return until(look, seconds, f"run {run} ends")


def slots_taken(server: Server, name: str) -> int:
    """Return how many of a deployment's concurrency slots are taken."""
    return int(deployment(server, name)["global_concurrency_limit"]["active_slots"])
