"""Storage: whole or not at all, exclusive creation, keys that stay inside, errors that say what to do."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from schemas.errors import GlossatorError, TransientError
from tasks.lake.storage import TEMPORARY, AlreadyExists, LocalStorage, NotFound

ROOT = Path(__file__).parents[2]
CONTENDERS = 8


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path / "lake")


def files(storage: LocalStorage) -> list[str]:
    return sorted(path.relative_to(storage.root).as_posix() for path in storage.root.rglob("*") if path.is_file())


def failing(code: int) -> OSError:
    return OSError(code, os.strerror(code))


def test_what_is_written_is_read_and_replaced_whole(storage: LocalStorage) -> None:
    storage.write("a/b/c", b"one")
    storage.write("a/b/c", b"")
    assert storage.read("a/b/c") == b""
    assert files(storage) == ["a/b/c"]


def test_nothing_under_a_key_is_not_found(storage: LocalStorage) -> None:
    with pytest.raises(NotFound, match="does not exist"):
        storage.read("a")
    assert not storage.exists("a")
    storage.delete("a")  # deleting nothing is done already


def test_creating_twice_is_refused_and_keeps_the_first(storage: LocalStorage) -> None:
    storage.create("flips/1", b"first")
    with pytest.raises(AlreadyExists):
        storage.create("flips/1", b"second")
    assert storage.read("flips/1") == b"first"
    assert files(storage) == ["flips/1"]


def test_exactly_one_of_many_threads_creates(storage: LocalStorage) -> None:
    barrier = Barrier(CONTENDERS)

    def contend(number: int) -> bool:
        barrier.wait()
        try:
            storage.create("flips/1", str(number).encode())
        except AlreadyExists:
            return False
        return True

    with ThreadPoolExecutor(CONTENDERS) as pool:
        won = list(pool.map(contend, range(CONTENDERS)))
    assert won.count(True) == 1
    assert storage.read("flips/1") == str(won.index(True)).encode()
    assert files(storage) == ["flips/1"]


def test_exactly_one_of_many_processes_creates(storage: LocalStorage, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    code = (
        "import sys, time; from pathlib import Path; from tasks.lake.storage import *\n"
        "storage, gate = LocalStorage(Path(sys.argv[1])), Path(sys.argv[2])\n"
        "print('ready', flush=True)\n"
        "while not gate.exists(): time.sleep(0.001)\n"
        "try: storage.create('flips/1', sys.argv[3].encode()); print('won')\n"
        "except AlreadyExists: print('lost')\n"
    )
    contenders = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(storage.root), str(gate), str(number)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(CONTENDERS)
    ]
    for contender in contenders:
        assert contender.stdout is not None
        assert contender.stdout.readline() == "ready\n"
    gate.touch()
    said = [contender.communicate(timeout=60)[0].strip() for contender in contenders]
    assert sorted(said) == ["lost"] * (CONTENDERS - 1) + ["won"]
    assert storage.read("flips/1") == str(said.index("won")).encode()


@pytest.mark.parametrize("key", ["", ".", "/etc/passwd", "..", "../x", "a/../../x", "a/..", "/"])
def test_keys_never_leave_the_root(storage: LocalStorage, key: str) -> None:
    for verb in (storage.read, storage.exists, storage.delete, storage.local):
        with pytest.raises(ValueError, match="not a key"):
            verb(key)
    for writing in (storage.write, storage.create):
        with pytest.raises(ValueError, match="not a key"):
            writing(key, b"x")
    assert not storage.root.exists()


def test_listing_is_sorted_direct_and_without_temporaries(storage: LocalStorage) -> None:
    for key in ("s/b", "s/a", "s/deep/c", f"s/{TEMPORARY}0a0b"):
        storage.write(key, b"")
    assert list(storage.keys("s")) == ["s/a", "s/b", "s/deep"]
    assert list(storage.keys("nothing")) == []


@pytest.mark.parametrize("verb", ["write", "create"])
@pytest.mark.parametrize("call", ["fsync", "open"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_failed_write_leaves_neither_a_temporary_nor_half_a_file(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, verb: str, call: str, code: int
) -> None:
    storage.write("kept", b"old")

    def fail(*_: object, **__: object) -> int:
        raise failing(code)

    with monkeypatch.context() as broken:
        broken.setattr(os if call == "fsync" else Path, call, fail)
        with pytest.raises(TransientError, match="->"):
            getattr(storage, verb)("kept" if verb == "write" else "new", b"new")
    assert files(storage) == ["kept"]
    assert storage.read("kept") == b"old"


def test_a_rename_or_link_that_fails_leaves_no_temporary(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise failing(errno.ENOSPC)

    storage.write("kept", b"old")
    monkeypatch.setattr(Path, "replace", fail)
    monkeypatch.setattr(os, "link", fail)
    with pytest.raises(TransientError, match="the disk is full"):
        storage.write("kept", b"new")
    with pytest.raises(TransientError, match="the disk is full"):
        storage.create("other", b"new")
    assert files(storage) == ["kept"]


def test_a_full_disk_says_what_to_do(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise failing(errno.ENOSPC)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(TransientError, match=r"the disk is full.* -> free space and run the same command again"):
        storage.write("a", b"x")


@pytest.mark.parametrize("verb", ["read", "write", "create", "exists", "delete", "keys"])
def test_a_missing_permission_is_named_and_not_retried(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    storage.write("a/b", b"x")

    def deny(*_: object, **__: object) -> None:
        raise failing(errno.EACCES)

    for owner, call in ((Path, "open"), (Path, "unlink"), (Path, "stat"), (os, "scandir")):
        monkeypatch.setattr(owner, call, deny)
    with pytest.raises(GlossatorError, match=r"no permission for .* -> check the owner") as caught:
        match verb:
            case "write" | "create":
                getattr(storage, verb)("a/b", b"y")
            case "keys":
                list(storage.keys("a"))
            case _:
                getattr(storage, verb)("a/b")
    assert not isinstance(caught.value, TransientError)


def test_an_interrupted_write_leaves_no_temporary(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        storage.write("a", b"x")
    assert files(storage) == []


def test_too_many_open_files_are_told_as_that(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.write("a", b"x")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1, hard))  # What is open stays so.
    try:
        with pytest.raises(TransientError) as reading:
            storage.read("a")
        with pytest.raises(TransientError) as writing:
            storage.write("b", b"x")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for told in (str(reading.value), str(writing.value)):
        assert told.startswith("this process has too many open files: cannot open ")
        assert "ulimit -n" in told and "disk" not in told
