"""Faults around a command (another holder, a full disk, damage, an interruption) are told in one line, and readers
notice nothing."""

from __future__ import annotations

import gc
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.surroundings import as_nobody, nothing_changes

ROOT = Path(__file__).parents[2]
FAILED, USAGE, QUARANTINED, REFUSED, INTERRUPTED = 1, 2, 3, 4, 130

Write = Callable[..., Path]


# --- what is around it ------------------------------------------------------------------------------------------------


@pytest.mark.xdist_group("nobody")  # Both open the same parent folders for a while.
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv")
def test_a_lake_that_may_not_be_written_still_answers(home: Any, document: Write) -> None:
    document("# Added\n\nwords about dredging\n")
    with as_nobody(home) as nobody, nothing_changes(home):
        for path in [home.path / "data", *(home.path / "data").rglob("*")]:
            path.chmod(0o555 if path.is_dir() else 0o444)
            os.chown(path, 0, 0)
        done = home.run("index", prefix=nobody)
        assert done.code == FAILED
        assert re.search(r"no permission for \S+ -> check the owner of the lake folder", done.complaint)
        found = home.run("search", "tide gauge", "--json", prefix=nobody)
        assert found.code == 0 and found.json["dense_way"] == "exact" and found.json["notes"]


def test_vectors_held_by_another_process(home: Any, document: Write) -> None:
    document("# Added\n\nwords about dredging\n")
    program = (
        "import sys\nfrom pymilvus import MilvusClient\nclient = MilvusClient(uri=sys.argv[1])\n"
        "print('held', flush=True)\nsys.stdin.read()\nclient.close()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(home.lake / "milvus.db")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        with nothing_changes(home):
            done = home.run("index")
            assert done.code == FAILED
            assert "another process holds it" in done.complaint and "wait for the other" in done.complaint
            result = home.run("search", "tide gauge", "--json").json
            assert result["dense_way"] == "exact" and "another process holds it" in result["notes"][0]
            assert any(hit["dense"] for hit in result["hits"])
    finally:
        holder.communicate(timeout=30)
    assert home.run("index", "--json").json["chunks_embedded"] == 0, "what was embedded meanwhile is kept"


@contextmanager
def small_disk(lake: Path, *, spare: int) -> Iterator[Callable[[], None]]:
    """Move a lake to a file system with ``spare`` KiB of room; yield what makes room."""
    saved = lake.with_name("saved")
    lake.rename(saved)
    lake.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(lake)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    try:
        shutil.copytree(saved, lake, dirs_exist_ok=True)
        usage = os.statvfs(lake)
        used = (usage.f_blocks - usage.f_bfree) * usage.f_frsize // 1024

        def resize(kilobytes: int) -> None:
            subprocess.run(["mount", "-o", f"remount,size={kilobytes}k", str(lake)], check=True)

        resize(used + spare)
        yield lambda: resize(65_536)
    finally:
        gc.collect()
        subprocess.run(["umount", "--lazy", str(lake)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small file system")
@pytest.mark.parametrize("spare", [60, 700])
def test_a_full_disk(home: Any, document: Write, spare: int) -> None:
    document("\n\n".join(f"# Section {number}\n\nDredging of berth {number}." for number in range(300)))
    with small_disk(home.path / "data" / "lake", spare=spare) as make_room:
        with nothing_changes(home):
            done = home.run("index")
            assert done.code == FAILED
            assert re.search(r"disk is full|No space left", done.complaint) and "->" in done.complaint
        make_room()
        done = home.run("index", "--json")
        assert done.code == 0 and done.json["flip"] == 2 and done.json["documents"]["added"] == 1
        assert home.run("doctor").code == 0


def test_a_limit_on_the_size_of_files(home: Any, document: Write) -> None:
    document("\n\n".join(f"# Section {number}\n\nDredging of berth {number}." for number in range(300)))
    program = (
        "import resource, runpy, signal, sys\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, resource.RLIM_INFINITY))\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"sys.argv = ['glossator', 'index']\nrunpy.run_path({str(ROOT / 'glossator.py')!r}, run_name='__main__')\n"
    )
    with nothing_changes(home):
        done = home.python(program)
        assert done.code == FAILED
        assert "larger than this process may write -> raise the limit" in done.complaint
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    assert home.run("index", "--json").json["flip"] == 2


# --- damage -----------------------------------------------------------------------------------------------------------

READ_BY_SEARCH = ("bm25/*/data*.npy", "catalog/*/chunks.arrow", "passages/*/documents.arrow", "passages/*/vectors.npy")


@pytest.mark.parametrize("pattern", READ_BY_SEARCH)
def test_a_file_that_was_cut_short_is_told_and_built_anew(home: Any, pattern: str) -> None:
    answer = home.published()[1]
    file = next(home.lake.glob(pattern))
    os.truncate(file, 100)
    done = home.call("search", "tide gauge firmware", "--mode", "bm25")
    assert done.code == FAILED
    assert f"{file} is missing or cut short -> run `glossator doctor --repair`" in done.complaint
    assert home.run("doctor").code == FAILED
    mended = home.run("index", "--json").json
    assert mended["documents"]["unchanged"] == 31 and mended["chunks_embedded"] == 0
    assert home.published()[1] == answer
    assert home.run("doctor").code == 0


def test_bytes_that_changed_in_place_are_found_by_the_doctor_and_its_remedy_works(home: Any) -> None:
    answer = home.published()[1]
    file = next(home.lake.glob("bm25/*/indices*.npy"))
    data = bytearray(file.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 8] = b"\x7f" * 8
    file.write_bytes(data)
    done = home.run("doctor", "--json")
    assert done.code == FAILED
    finding = done.json[0]
    assert finding["check"] == "files" and str(file) in finding["message"]
    assert finding["remedy"] == f"run `glossator doctor --repair`: {file.parent.name} is built anew"
    assert home.run("doctor", "--repair").code == 0
    assert home.published()[1] == answer
    assert home.run("doctor").code == 0


@pytest.mark.parametrize("stage", ["load", "embed", "tokens"])
def test_a_damaged_part_is_named_and_computed_anew(home: Any, document: Write, stage: str) -> None:
    part = next(home.lake.glob(f"parts/{stage}/*.parquet"))
    os.truncate(part, 1_000)
    document("# Added\n\nwords about dredging\n")
    with nothing_changes(home):
        done = home.run("index")
        assert done.code == FAILED
        assert f"{part} is damaged" in done.complaint
        assert "delete that file and run `glossator index` again" in done.complaint
    part.unlink()
    report = home.run("index", "--json").json
    assert report["documents"]["added"] == 1
    findings = {finding["check"]: finding for finding in home.run("doctor", "--json").json}
    assert all(finding["ok"] for finding in findings.values())
    assert "1 parts of them are missing" in findings["kept"]["message"], "of the snapshot before, which is kept"


def test_lost_vectors_are_told_and_written_again(home: Any) -> None:
    shutil.rmtree(home.lake / "milvus.db")
    result = home.run("search", "tide gauge", "--json").json
    assert result["dense_way"] == "exact" and "are gone" in result["notes"][0]
    assert not (home.lake / "milvus.db").exists(), "a search writes nothing"
    assert home.run("doctor").code == FAILED
    assert home.run("index", "--json").json["chunks_embedded"] == 0
    assert home.run("search", "tide gauge", "--json").json["dense_way"] == "index"
    assert home.run("doctor").code == 0


@pytest.mark.parametrize(
    ("pattern", "hint"), [("flips/1.json", "doctor --repair"), ("snapshots/*.json", "glossator rollback")]
)
def test_a_damaged_pointer_or_snapshot(home: Any, pattern: str, hint: str) -> None:
    file = next(home.lake.glob(pattern))
    os.truncate(file, 40)
    for command in (("search", "tide"), ("index",), ("status",), ("doctor",)):
        done = home.call(*command)  # None comes as far as Milvus.
        assert done.code == FAILED
        assert f"{file} is damaged" in done.complaint and hint in done.complaint
    for pointer in ("flips/1.json", "copies/flip.json"):
        (home.lake / pointer).unlink()
    again = home.run("index", "--json").json
    assert again["flip"] == 1 and again["chunks_embedded"] == 0, "all parts are there"


# --- interruption -----------------------------------------------------------------------------------------------------


def test_an_interrupted_run_says_so_and_goes_on_next_time(home: Any) -> None:
    before = home.published()
    for number in range(60):
        text = "\n\n".join(f"# Berth {number}.{part}\n\n" + f"Dredging {number}. " * 60 for part in range(10))
        (home.docs / f"berth-{number}.md").write_text(text)
    running = subprocess.Popen(
        [sys.executable, str(ROOT / "glossator.py"), "index"],
        env=home.environment(),
        cwd=home.path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    plans = home.lake / "state" / "plans"
    known = len(list(plans.iterdir()))
    while len(list(plans.iterdir())) == known and time.monotonic() < deadline:
        time.sleep(0.02)  # The plan is made: the run is at work.
    time.sleep(0.3)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=30)
    assert running.returncode == INTERRUPTED, err[-1_000:]
    assert err == "glossator: interrupted; what is done so far is kept -> run the same command again to go on\n"
    assert out == ""
    assert home.published() == before
    assert home.run("index", "--json").json["documents"]["added"] == 60
