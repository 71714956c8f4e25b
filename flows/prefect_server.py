"""The temporary Prefect server of one run from the command line, where none is configured.

Prefect would start one by itself, in our process group: Ctrl-C in a terminal then ends the server first, and the run
waits more than a minute for it; a run that is killed leaves it behind. This one has a session of its own, listens on
a socket that is open before it starts (so that no port is lost to somebody else), and ends with its run, however that
ends: ``python -m flows.prefect_server FD``.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from schemas.errors import TransientError
from tasks.child import await_end_of, python_path

START_SECONDS = 120.0
STOP_SECONDS = 5.0
LOOK_EVERY = 0.5
"""Seconds between two looks at whether the run is still there."""
ENVIRONMENT = {"PREFECT_UI_ENABLED": "0", "PREFECT__SERVER_EPHEMERAL": "1", "PREFECT__SERVER_FINAL": "1"}
"""As Prefect sets it for its own temporary servers."""


@contextmanager
def temporary_server() -> Iterator[str]:
    """Run a Prefect server on 127.0.0.1 and yield the URL of its API.

    Raises:
        TransientError: it did not start.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/api"
        process = subprocess.Popen(
            [sys.executable, "-m", "flows.prefect_server", str(listener.fileno())],
            pass_fds=(listener.fileno(),),
            env={**os.environ, **ENVIRONMENT, "PYTHONPATH": python_path()},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    try:
        _await(process, f"{url}/health")
        yield url
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await(process: subprocess.Popen[bytes], health: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(OSError), direct.open(health, timeout=START_SECONDS):
            return
        time.sleep(0.1)
    code = process.poll()
    raise TransientError(
        "the temporary Prefect server did not "
        + (f"answer within {START_SECONDS:.0f} s" if code is None else f"start (exit code {code})"),
        hint="run it again, let PREFECT_API_URL name a server, or use --runner plain",
    )


def serve(descriptor: int) -> None:
    """Serve on an open socket until told to end, or until the process that started this one has."""
    import uvicorn

    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    uvicorn.run("prefect.server.api.server:create_app", factory=True, fd=descriptor, log_level="error", lifespan="on")


def _end_with(parent: int) -> None:
    await_end_of(parent, LOOK_EVERY)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(STOP_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
