"""A Prefect server of our own, and what it knows of runs."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TASKS = {"load", "chunk", "contextualize", "embed", "tokens", "passages", "catalog", "bm25", "vectors"}
"""Names of the tasks of a run."""


@dataclass(frozen=True)
class TaskRun:
    """What Prefect knows of a task run."""

    state: str
    attempts: int


@dataclass(frozen=True)
class Server:
    """A Prefect server."""

    url: str

    def ask(self, path: str, body: Mapping[str, Any] | Sequence[Any] | None = None) -> Any:
        """Send a body, or get what is there. A server whose database is locked is asked again, as Prefect does."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data, {"content-type": "application/json"})
        for attempt in range(5):
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    return json.loads(answer.read() or b"null")
            except urllib.error.HTTPError as error:
                if error.code != 503 or attempt == 4:
                    raise
                time.sleep(1)
        raise AssertionError

    def newest_flow(self) -> str:
        """Return the id of the flow run that was started last, "" before the first."""
        flows = self.ask("/flow_runs/filter", {"sort": "START_TIME_DESC", "limit": 1})
        return str(flows[0]["id"]) if flows else ""

    def task_runs(self, flow: str, expected: int) -> dict[str, TaskRun]:
        """Return the task runs of a flow run by task name, when as many as expected have come to an end.

        The server records them from events, a moment after they happened.
        """
        deadline = time.monotonic() + 60
        while True:
            runs = self.ask("/task_runs/filter", {"flow_runs": {"id": {"any_": [flow]}}})
            ended = [run for run in runs if run["state_type"] in {"COMPLETED", "FAILED", "CRASHED"}]
            if len(ended) >= expected or time.monotonic() > deadline:
                return {
                    run["name"].split()[0].split("-")[0]: TaskRun(run["state_name"], run["run_count"]) for run in runs
                }
            time.sleep(0.2)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def running_server(folder: Path) -> Iterator[Server]:
    """Start a server on a free port; its files go into the folder."""
    port = free_port()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PREFECT_HOME": str(folder),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_LOGGING_LEVEL": "ERROR",
        "PREFECT_SERVER_EVENTS_PROACTIVE_GRANULARITY": "PT1S",
    }
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with (folder / "log").open("w") as log:
        child = subprocess.Popen([*command, "--no-ui"], env=environment, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield wait_for(Server(f"http://127.0.0.1:{port}/api"), child, folder / "log")
    finally:
        child.terminate()
        child.wait(timeout=60)


def wait_for(server: Server, child: subprocess.Popen[bytes], log: Path) -> Server:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert child.poll() is None, log.read_text()[-2_000:]
        try:
            with urllib.request.urlopen(f"{server.url}/health", timeout=5):
                return server
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise TimeoutError(log.read_text()[-2_000:])
