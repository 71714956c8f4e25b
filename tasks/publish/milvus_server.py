"""Milvus Lite for several processes: its gRPC server, started on demand and found by whoever comes next.

Milvus Lite allows one process. So the first process that needs the vectors starts a server of its own process group
on 127.0.0.1; it writes where it listens into a discovery file, and ends a few seconds after the last client has.
Clients are processes with a file in a folder, so that one that was killed does not keep the server alive.

All of it happens under one file lock: nobody connects to a server that is about to end, and no two are started. One
that ends says so, and is waited for: Milvus Lite finishes the index that it is building, minutes for 300,000 rows.
The server has no authentication: any user of this machine can read the vectors, list the documents' paths, and change
or drop the rows (``doctor --repair`` writes them again). It holds no text.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from schemas.errors import GlossatorError, TransientError
from schemas.snapshot import Record
from tasks.child import python_path
from tasks.lake.storage import LocalStorage

LINGER_SECONDS = 10.0
START_SECONDS = 60.0
LOCK_SECONDS = 90.0
CLOSING_SECONDS = 1_800.0
"""How long a server that is ending is waited for."""
CLOSING = 0
"""In place of its port."""


_counting = threading.Lock()
_connections: Counter[Path] = Counter()


class Discovery(Record):
    """Where the server of a folder listens, and which process it is.

    Attributes:
        port: ``CLOSING`` once it listens no more.
        place: of the folder, see ``_place``: a copy of a lake, or one that was moved, has somebody else's file.
    """

    pid: int
    created: float
    port: int
    place: str


def connect(folder: Path, linger: float = LINGER_SECONDS) -> str:
    """Return the URI of the folder's server, started if there is none, and count this process as its client.

    Args:
        linger: seconds that a server started now stays after its last client.

    Raises:
        TransientError: it did not start; the message names its log.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        _register(folder)
        try:
            found = _running(folder)
            if found is None:
                found = _await(folder, _spawn(folder, linger))
        except BaseException:  # Nobody would take it back, and the next server would never end.
            disconnect(folder)
            raise
    return f"http://127.0.0.1:{found.port}"


def disconnect(folder: Path) -> None:
    """Take back one ``connect``; after the last, this process is a client no more."""
    with _counting:
        _connections[folder] -= 1
        if _connections[folder] <= 0:
            _client_file(folder, os.getpid()).unlink(missing_ok=True)


@contextmanager
def kept_running(folder: Path) -> Iterator[None]:
    """Let the server that is started inside stay until the end, however long nobody asks it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        _register(folder)
    try:
        yield
    finally:
        disconnect(folder)


def running_server(folder: Path) -> Discovery | None:
    """Return the server of a folder while its process lives, be it that it is ending."""
    return _announced(folder)


def _discovery(folder: Path) -> Path:
    return folder.with_suffix(".server.json")


def _log(folder: Path) -> Path:
    return folder.with_suffix(".server.log")


def _clients(folder: Path) -> Path:
    return folder.with_suffix(".clients")


def _client_file(folder: Path, pid: int) -> Path:
    return _clients(folder) / str(pid)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep everybody from starting, stopping and finding the server of a folder."""
    lock, begun = FileLock(folder.with_suffix(".lock")), time.monotonic()
    while True:
        try:
            lock.acquire(timeout=LOCK_SECONDS)
            break
        except Timeout as error:
            waited = time.monotonic() - begun
            if _closing(folder) and waited < CLOSING_SECONDS:
                continue
            raise TransientError(
                f"waited {waited:.0f} s for another process to start or stop the vector store in {folder}",
                hint="run the same command again",
            ) from error
    try:
        yield
    finally:
        lock.release()


def _created(pid: int) -> float | None:
    """Return when a living process began; None for one that is gone, or waits for its parent to be told so.

    In seconds since the machine was started: the time of day when it began is another one once the clock was set.
    """
    try:
        process = psutil.Process(pid)
        began = process.create_time() - psutil.boot_time()
        return None if process.status() == psutil.STATUS_ZOMBIE else began
    except psutil.Error:
        return None


def _is_alive(pid: int, created: float) -> bool:
    # A process number is used again; its time of creation is not.
    now = _created(pid)
    return now is not None and abs(now - created) < 1.0


def _register(folder: Path) -> None:
    with _counting:
        LocalStorage(_clients(folder)).write(str(os.getpid()), str(_created(os.getpid())).encode())
        _connections[folder] += 1


def _has_clients(folder: Path) -> bool:
    alive = False
    try:
        files = [file for file in _clients(folder).iterdir() if re.fullmatch("[0-9]+", file.name)]
    except FileNotFoundError:
        return False
    for file in files:
        try:
            pid, created = int(file.name), float(file.read_text())
        except (OSError, ValueError):
            continue  # Removed at this moment, or none of ours.
        if _is_alive(pid, created):
            alive = True
        else:
            file.unlink(missing_ok=True)
    return alive


def _announced(folder: Path) -> Discovery | None:
    """Return what a living server has announced."""
    try:
        found = Discovery.model_validate_json(_discovery(folder).read_bytes())
    except (OSError, ValueError):
        return None
    return found if found.place == _place(folder) and _is_alive(found.pid, found.created) else None


def _place(folder: Path) -> str | None:
    """Return what tells a folder from all others, now and here: its path, and its number in the file system."""
    try:
        return f"{folder.resolve()} {folder.stat().st_ino}"
    except OSError:
        return None


def _closing(folder: Path) -> bool:
    found = _announced(folder)
    return found is not None and found.port == CLOSING


def _running(folder: Path) -> Discovery | None:
    found = _announced(folder)
    if found is None or found.port == CLOSING:
        return None
    with suppress(OSError), socket.create_connection(("127.0.0.1", found.port), timeout=5):
        return found
    return None


def _spawn(folder: Path, linger: float) -> subprocess.Popen[bytes]:
    _discovery(folder).unlink(missing_ok=True)
    environment = {**os.environ, "PYTHONPATH": python_path()}
    with _log(folder).open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tasks.publish.milvus_server", str(folder), str(linger)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )


def _await(folder: Path, process: subprocess.Popen[bytes]) -> Discovery:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        found = _running(folder)
        if found is not None:
            return found
        if process.poll() is not None:
            break
        log = _log(folder).read_text(errors="replace")
        if "Traceback" in log:
            break
        time.sleep(0.05)
    last = _log(folder).read_text(errors="replace").strip().rpartition("\n")[2]
    raise TransientError(
        f"the vector store in {folder} did not start: {last or _end(process)}",
        hint=f"see {_log(folder)}; if another program holds the folder, end it and try again",
    )


def _end(process: subprocess.Popen[bytes]) -> str:
    code = process.poll()
    return "no answer" if code is None else f"its process ended at once ({code})"


def serve(folder: Path, linger: float) -> None:
    """Serve a folder on a free port of 127.0.0.1 until no client is left."""
    from milvus_lite.adapter.grpc.server import start_server_in_thread

    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is meant for the command in the foreground.
    server, store, port = start_server_in_thread(str(folder), host="127.0.0.1", port=0)
    created, place = _created(os.getpid()), _place(folder)
    assert created is not None and place is not None
    announcement = Discovery(pid=os.getpid(), created=created, port=port, place=place)
    _announce(folder, announcement)

    def close() -> None:
        with suppress(GlossatorError):  # On a full disk too the store is closed; who comes meanwhile finds the lock.
            _announce(folder, announcement.model_copy(update={"port": CLOSING}))
        server.stop(grace=2).wait()
        store.close()
        _discovery(folder).unlink(missing_ok=True)

    idle_since = time.monotonic()
    while True:
        stopped = stop.wait(0.5)
        if _place(folder) != place:
            os._exit(1)  # It was moved, deleted or replaced: nothing that this process knows is true there.
        if not stopped and _has_clients(folder):
            idle_since = time.monotonic()
        elif stopped or time.monotonic() - idle_since > linger:
            # Who holds the lock for so long may be about to come: look again.
            with suppress(TransientError), locked(folder):
                if stopped or not _has_clients(folder):
                    close()
                    return


def _announce(folder: Path, announcement: Discovery) -> None:
    LocalStorage(folder.parent).write(_discovery(folder).name, announcement.model_dump_json().encode())


if __name__ == "__main__":
    serve(Path(sys.argv[1]), float(sys.argv[2]))
