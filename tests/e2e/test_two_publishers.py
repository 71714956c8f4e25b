"""Two processes publish to one collection, one of them paused for longer than its lease: nothing is lost or undone.

The publishers are processes of their own that stop where the test wants them to: a signal (SIGSTOP) that nobody
handles, as when a laptop sleeps or a container is frozen. Their lease lasts a second instead of a minute.
"""

from __future__ import annotations

import datetime as dt
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tasks.lake.lease import publishing, read_lease
from tasks.publish.pointer import available, fence
from tasks.publish.sweep import sweep
from tests.fixtures import differences, made, made_cleanly
from tests.generations import AT_ONCE, Generations, generations

ROOT = Path(__file__).parents[2]
PUBLISHER = """
import os, signal, sys
from pathlib import Path

import flows.index
import tasks.lake.lease as leases
from tasks.lake.lake import Lake
from tasks.lake.storage import LocalStorage
from tasks.publish.milvus import MilvusStore
from tasks.publish.sweep import sweep
from tests.generations import AT_ONCE, Generations

leases.EXPIRY_SECONDS, leases.HEARTBEAT_SECONDS = 1.0, 0.2

def stop_once_before(owner, name):
    then = getattr(owner, name)
    def stopped(*arguments, **keywords):
        setattr(owner, name, then)
        os.kill(os.getpid(), signal.SIGSTOP)
        return then(*arguments, **keywords)
    setattr(owner, name, stopped)

owner, name = sys.argv[2].rsplit(".", 1)
stop_once_before({"flow": flows.index, "lake": Lake, "milvus": MilvusStore, "storage": LocalStorage}[owner], name)
collection = Generations(Path(sys.argv[1]))
if len(sys.argv) == 3:
    print(collection.publish().name)
else:
    with leases.publishing(collection.lake, "paused sweep", 60) as held:
        report = sweep(collection.lake, collection.config.milvus, held.still_ours, policy=AT_ONCE, full=True)
        print("finished" if report.finished else "ended early")
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a publisher and return when it has stopped; end all that are left."""
    processes: list[subprocess.Popen[str]] = []

    def begin(folder: Path, place: str, *more: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", PUBLISHER, str(folder), place, *more],
            cwd=ROOT,
            env=dict(os.environ, PYTHONPATH=str(ROOT)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        until(lambda: process.poll() is not None or psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
        assert process.poll() is None, process.communicate()[1]
        return process

    yield begin
    for process in processes:
        if process.poll() is None:
            process.kill()
            process.wait()


def until(happened: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def wake(process: subprocess.Popen[str]) -> str:
    """Let a stopped publisher go on; return what it says in the end."""
    process.send_signal(signal.SIGCONT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out.strip()


def outlive_the_lease(collection: Generations) -> None:
    """Wait until nobody holds the lease: a second has passed since the stopped publisher renewed it."""

    def over() -> bool:
        lease = read_lease(collection.lake)
        return lease is None or lease.expires < dt.datetime.now(dt.UTC)

    until(over)


def maintain(collection: Generations) -> None:
    """As the command does, without a grace."""
    with publishing(collection.lake, "maintain", 60) as held:
        fence(collection.lake, "", "maintain")
        assert sweep(collection.lake, collection.config.milvus, held.still_ours, policy=AT_ONCE, full=True).finished


def assert_whole(collection: Generations, generation: int) -> None:
    """Hold that readers find one generation, as a clean build makes it, and every retained snapshot is whole."""
    assert generations(collection.search()) == {generation}
    assert differences(made(collection.lake), made_cleanly(collection.corpus)) == []
    assert collection.ailments(available(collection.lake)) == []


def test_two_runs_at_once_lose_no_update(tmp_path: Path, start: Start) -> None:
    """SparrowDB#441, AegisAI#761: of two writers the later overwrites what the other has just written."""
    collection = Generations(tmp_path)
    collection.publish(0)
    (collection.corpus / "first.md").write_text("# First\n\nSeen by both.\n")
    one = start(tmp_path, "flow.publish")
    (collection.corpus / "second.md").write_text("# Second\n\nSeen by the other one alone.\n")
    (collection.corpus / "gauge-0.md").write_text("# Gauge 0\n\nThe gauge 0 is of generation-0 still.\n")
    other = start(tmp_path, "flow.publish")
    # Both have built what they saw. Now they are let go at the same moment.
    for process in (one, other):
        process.send_signal(signal.SIGCONT)
    names = [wake(process) for process in (one, other)]
    assert collection.current().name in names
    assert collection.current().counts.documents == 4 + 1 + 2
    assert_whole(collection, 0)


def test_two_runs_over_two_sources_at_once_publish_both(tmp_path: Path, start: Start) -> None:
    collection = Generations(tmp_path)
    collection.publish(0)
    collection.write(1)
    one = start(tmp_path, "flow.publish")
    # Another source of the same lake: neither run lists what the other one does.
    more = tmp_path / "more"
    more.mkdir()
    other = Generations(tmp_path)
    other.corpus = more
    (more / "more.md").write_text("# More\n\nOf another source.\n")
    other.publish()
    assert other.current().counts.documents == 4 + 1 + 1
    wake(one)
    assert collection.current().counts.documents == 4 + 1 + 1
    assert generations(collection.search()) == {1}
    assert collection.ailments() == []


@pytest.mark.parametrize("place", ["flow.verify", "flow.flip", "lake.create_flip"])
def test_a_publisher_that_slept_through_a_publish_and_a_sweep_plans_again(
    tmp_path: Path, start: Start, place: str
) -> None:
    collection = Generations(tmp_path)
    collection.publish(0)
    collection.write(1)
    sleeper = start(tmp_path, place)
    candidate = collection.rows() - collection.ids(collection.current().name)
    assert candidate, "its rows are written"
    outlive_the_lease(collection)
    collection.publish(2)
    maintain(collection)
    assert not candidate & collection.rows(), "its rows are swept: no snapshot names them"
    number = collection.flip().number
    # What it was about to publish is what the source holds again.
    collection.write(1)
    name = wake(sleeper)
    assert collection.current().name == name
    assert collection.flip().number == number + 1
    assert_whole(collection, 1)


def test_a_publisher_that_slept_while_the_source_changed_publishes_what_is_there_now(
    tmp_path: Path, start: Start
) -> None:
    collection = Generations(tmp_path)
    collection.publish(0)
    collection.write(1)
    sleeper = start(tmp_path, "lake.create_flip")
    outlive_the_lease(collection)
    newest = collection.publish(2).name
    assert wake(sleeper) == newest, "there is nothing left for it to do"
    assert_whole(collection, 2)


def test_a_publisher_that_slept_through_nothing_publishes_what_it_built(tmp_path: Path, start: Start) -> None:
    collection = Generations(tmp_path)
    collection.publish(0)
    collection.write(1)
    sleeper = start(tmp_path, "flow.verify")
    outlive_the_lease(collection)
    assert wake(sleeper) == collection.current().name
    assert_whole(collection, 1)


@pytest.mark.parametrize("place", ["storage.delete", "milvus.delete", "milvus.drop"])
def test_a_sweep_that_slept_takes_back_what_it_deleted(tmp_path: Path, start: Start, place: str) -> None:
    """It stops between its look at the lease and the deletion of a snapshot, of rows, of a Milvus collection."""
    settings = ["chunk.child_tokens=32"] if place == "milvus.drop" else []
    collection = Generations(tmp_path, *settings)
    collection.publish(0)
    now = Generations(tmp_path)
    for generation in (1, 2):
        now.publish(generation, migrate=generation == 1)
    sleeper = start(tmp_path, place, "sweep")
    outlive_the_lease(collection)
    # What it is about to delete is published again.
    collection.publish(0, migrate=True)
    assert wake(sleeper) == "ended early"
    assert generations(collection.search()) == {0}
    assert collection.ailments(available(collection.lake)) == []
    maintain(collection)
    assert collection.ailments(available(collection.lake)) == []
    assert collection.rows() == collection.ids(collection.current().name) | (
        set() if settings else collection.ids(available(collection.lake)[1])
    )
