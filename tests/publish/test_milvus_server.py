"""Milvus Lite for several processes: one server, found by all, gone when nobody needs it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from schemas.errors import TransientError
from tasks.publish import milvus_server
from tasks.publish.milvus_server import connect, disconnect, running_server

ROOT = Path(__file__).parents[2]


def until(happened: Callable[[], bool], seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if happened():
            return True
        time.sleep(0.05)
    return False


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "milvus.db"
    yield path
    found = running_server(path)
    if found is not None:
        psutil.Process(found.pid).terminate()
        assert until(lambda: running_server(path) is None)


def client(folder: Path, then: str = "") -> subprocess.Popen[str]:
    code = f"""
from pathlib import Path
from schemas.errors import TransientError
from tasks.publish import milvus_server
print(milvus_server.connect(Path({str(folder)!r}), linger=0.5), flush=True)
{then}
"""
    return subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_all_processes_find_the_same_server(folder: Path) -> None:
    ours = connect(folder, linger=0.5)
    theirs = [client(folder) for _ in range(4)]
    assert [process.communicate(timeout=60)[0].strip() for process in theirs] == [ours] * 4


def test_processes_that_come_at_once_start_one_server(folder: Path) -> None:
    clients = [client(folder, "import time; time.sleep(2)") for _ in range(4)]
    assert len({process.communicate(timeout=60)[0].strip() for process in clients}) == 1


def test_it_listens_on_this_machine_only(folder: Path) -> None:
    connect(folder, linger=0.5)
    found = running_server(folder)
    assert found is not None
    listening = [c for c in psutil.Process(found.pid).net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    assert {connection.laddr.ip.removeprefix("::ffff:") for connection in listening} == {"127.0.0.1"}


def test_it_ends_when_the_last_client_has(folder: Path) -> None:
    connect(folder, linger=0.5)
    connect(folder, linger=0.5)
    found = running_server(folder)
    assert found is not None
    disconnect(folder)
    time.sleep(1.5)
    assert running_server(folder) == found
    disconnect(folder)
    assert until(lambda: running_server(folder) is None)
    assert until(lambda: not psutil.pid_exists(found.pid) or psutil.Process(found.pid).status() == "zombie")


def test_a_killed_client_does_not_keep_it(folder: Path) -> None:
    process = client(folder, "import time; time.sleep(60)")
    assert process.stdout is not None
    process.stdout.readline()
    assert running_server(folder) is not None
    process.kill()
    process.wait()
    assert until(lambda: running_server(folder) is None)


def test_a_killed_server_is_followed_by_another(folder: Path) -> None:
    connect(folder, linger=0.5)
    first = running_server(folder)
    assert first is not None
    os.kill(first.pid, signal.SIGKILL)
    assert until(lambda: running_server(folder) is None)
    connect(folder, linger=0.5)
    second = running_server(folder)
    assert second is not None and second.pid != first.pid


def test_a_discovery_file_of_another_process_is_not_believed(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    ours = milvus_server.Discovery(pid=os.getpid(), created=1.0, port=1, place=place_of(folder))
    folder.with_suffix(".server.json").write_text(ours.model_dump_json())
    assert running_server(folder) is None
    assert connect(folder, linger=0.5).startswith("http://127.0.0.1:")


@pytest.mark.parametrize("seconds", [-4_000, 1, 4_000])
def test_a_clock_that_was_set_makes_no_server_and_no_client_a_dead_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    uri = connect(folder, linger=60)
    boot_time = psutil.boot_time()
    monkeypatch.setattr("psutil._psplatform.boot_time", lambda: boot_time + seconds)
    assert psutil.boot_time() == boot_time + seconds
    assert connect(folder) == uri
    assert milvus_server._has_clients(folder)
    for _ in range(2):
        disconnect(folder)


def test_a_copy_of_a_lake_has_a_server_of_its_own(folder: Path, tmp_path: Path) -> None:
    uri = connect(folder, linger=0.5)
    copied = tmp_path / "copy" / folder.name
    shutil.copytree(folder.parent, copied.parent, ignore=shutil.ignore_patterns("copy"))
    assert running_server(copied) is None
    assert connect(copied, linger=0.5) != uri
    disconnect(copied)
    assert until(lambda: running_server(copied) is None)


@pytest.mark.parametrize("put_back", [False, True])
def test_a_server_whose_folder_is_taken_away_ends_and_writes_nothing_there(folder: Path, put_back: bool) -> None:
    connect(folder, linger=60)
    server = running_server(folder)
    assert server is not None
    away = folder.with_name("away.db")
    folder.rename(away)
    if put_back:  # From a backup, with all that lies beside it.
        shutil.copytree(away, folder)
    assert running_server(folder) is None
    assert until(lambda: not psutil.pid_exists(server.pid) or psutil.Process(server.pid).status() == "zombie")
    assert folder.exists() == put_back
    connect(away, linger=0.5)
    disconnect(away)
    assert until(lambda: running_server(away) is None)


def place_of(folder: Path) -> str:
    place = milvus_server._place(folder)
    assert place is not None
    return place


HOLDER = """
import os, sys, time
from pathlib import Path
from filelock import FileLock
from tasks.publish import milvus_server as server

folder, port = Path(sys.argv[1]), int(sys.argv[2])
with FileLock(folder.with_suffix(".lock")):
    created = server._created(os.getpid())
    folder.mkdir(exist_ok=True)
    server._announce(folder, server.Discovery(pid=os.getpid(), created=created, port=port, place=server._place(folder)))
    print("held", flush=True)
    time.sleep(1.5)
"""


@pytest.mark.parametrize("ending", [True, False])
def test_a_server_that_takes_long_to_end_is_waited_for_and_no_other_lock(
    folder: Path, ending: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(milvus_server, "LOCK_SECONDS", 0.2)
    command = [sys.executable, "-c", HOLDER, str(folder), str(milvus_server.CLOSING if ending else 1)]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, text=True)
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    try:
        if ending:
            connect(folder, linger=0.5)
            found = running_server(folder)
            assert found is not None and found.pid != holder.pid and found.port != milvus_server.CLOSING
            disconnect(folder)
        else:
            with pytest.raises(TransientError, match="waited 0 s for another process"):
                connect(folder, linger=0.5)
    finally:
        assert holder.wait(timeout=10) == 0


def test_a_server_that_ends_at_its_start_is_told_at_once_and_leaves_no_client(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    begun = time.monotonic()
    with pytest.raises(TransientError, match="did not start: its process ended at once"):
        connect(folder)
    assert time.monotonic() - begun < 20
    assert list(folder.with_suffix(".clients").iterdir()) == []
    assert milvus_server._connections[folder] == 0


def test_foreign_files_among_its_clients_are_no_clients(folder: Path) -> None:
    clients = folder.with_suffix(".clients")
    assert not milvus_server._has_clients(folder), "no folder yet"
    clients.mkdir()
    for name in (".DS_Store", ".tmp-1234", "notes"):
        (clients / name).write_text("1.0")
    assert not milvus_server._has_clients(folder)
    assert len(list(clients.iterdir())) == 3
