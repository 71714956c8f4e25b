"""One publisher at a time: who holds the lease, how it ends, and what others are told."""

from __future__ import annotations

import datetime as dt
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from schemas.errors import TransientError
from tasks.lake import lease as leases
from tasks.lake.lake import Lake
from tasks.lake.lease import KEY, Lease, publishing, read_lease

ROOT = Path(__file__).parents[2]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path, "default")


def write(lake: Lake, **changes: object) -> None:
    now = dt.datetime.now(dt.UTC)
    lease = Lease(
        token="other",
        owner="somebody",
        host="elsewhere",
        pid=1,
        since=now - dt.timedelta(minutes=3),
        expires=now + dt.timedelta(minutes=1),
    )
    lake.storage.write(KEY, lease.model_copy(update=changes).model_dump_json().encode())


def test_it_is_held_inside_and_given_back(lake: Lake) -> None:
    with publishing(lake, "me", 0) as held:
        assert held.still_ours()
        assert read_lease(lake) == held.lease
    assert read_lease(lake) is None
    assert not held.still_ours()


def test_it_is_given_back_after_an_error(lake: Lake) -> None:
    with pytest.raises(ZeroDivisionError), publishing(lake, "me", 0):
        raise ZeroDivisionError
    assert read_lease(lake) is None


def test_a_second_publisher_is_told_who_holds_it_since_when(lake: Lake) -> None:
    write(lake, owner="nightly", since=dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC))
    told = r"nightly \(process 1 on elsewhere\).*since 2026-01-02 03:04:05 UTC"
    with pytest.raises(TransientError, match=told), publishing(lake, "me", 0):
        raise AssertionError("got in")


def test_a_second_publisher_waits_for_the_first(lake: Lake) -> None:
    entered = threading.Event()

    def first() -> None:
        with publishing(lake, "first", 0):
            entered.set()
            time.sleep(1.0)

    thread = threading.Thread(target=first)
    thread.start()
    assert entered.wait(5)
    begun = time.monotonic()
    with publishing(lake, "second", 30) as held:
        assert held.lease.owner == "second"
    assert 0.5 < time.monotonic() - begun < 10
    thread.join()


def test_an_expired_lease_is_taken_over_and_its_holder_notices(lake: Lake) -> None:
    with publishing(lake, "paused", 0) as paused:
        write(lake, token=paused.lease.token, expires=dt.datetime.now(dt.UTC) - dt.timedelta(seconds=1))
        assert not paused.still_ours()
        with publishing(lake, "next", 0) as held:
            assert held.still_ours()
            assert not paused.still_ours()
    assert read_lease(lake) is None


def test_a_holder_that_woke_up_does_not_remove_the_lease_of_another(lake: Lake) -> None:
    with publishing(lake, "paused", 0):
        write(lake, owner="next")
    now = read_lease(lake)
    assert now is not None and now.owner == "next"


def test_the_lease_of_a_dead_process_of_this_machine_is_taken_over(lake: Lake) -> None:
    code = f"""
import os
from pathlib import Path
from tasks.lake.lake import Lake
from tasks.lake.lease import publishing
with publishing(Lake(Path({str(lake.root)!r}), "default"), "killed", 0):
    os._exit(9)
"""
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 9
    left = read_lease(lake)
    assert left is not None and left.owner == "killed"
    with publishing(lake, "me", 0) as held:
        assert held.still_ours()


def test_the_lease_of_a_killed_process_that_nobody_waited_for_is_taken_over(lake: Lake) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    write(lake, pid=child.pid, host=socket.gethostname())
    with pytest.raises(TransientError), publishing(lake, "second", wait_seconds=0):
        pass
    child.kill()
    while psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    with publishing(lake, "second", wait_seconds=0) as held:
        assert held.lease.owner == "second"
    child.communicate()


def test_the_heartbeat_renews_it(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "HEARTBEAT_SECONDS", 0.05)
    with publishing(lake, "me", 0) as held:
        time.sleep(0.5)
        renewed = read_lease(lake)
        assert renewed is not None and renewed.expires > held.lease.expires
        assert held.still_ours()


def test_one_of_many_gets_an_expired_lease(lake: Lake) -> None:
    write(lake, expires=dt.datetime.now(dt.UTC) - dt.timedelta(seconds=1))
    inside: list[int] = []
    most: list[int] = []

    def one(number: int) -> None:
        with publishing(lake, str(number), 30):
            inside.append(number)
            most.append(len(inside))
            time.sleep(0.02)
            inside.remove(number)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 8 and max(most) == 1
