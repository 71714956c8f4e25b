"""Today's access: nothing written is lost, nothing damaged opens a document."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tasks.lake.access import (
    GROUPS,
    TOMBSTONES,
    Tombstone,
    access_version,
    bury,
    change_groups,
    damaged_copies,
    put_back_access,
    read_access,
    read_tombstones,
    unbury,
)
from tasks.lake.lake import Corrupt, Lake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path, "default")


def stone(doc_id: str, reason: str = "") -> Tombstone:
    when = dt.datetime(2025, 1, 2, tzinfo=dt.UTC)
    return Tombstone(doc_id=doc_id, source="docs", uri=f"{doc_id}.md", when=when, by="somebody", reason=reason)


def test_without_files_nothing_is_restricted_and_nothing_purged(lake: Lake) -> None:
    access = read_access(lake)
    assert (dict(access.groups), dict(access.tombstones)) == ({}, {})


def test_groups_come_back_sorted_and_are_plain_json(lake: Lake) -> None:
    change_groups(lake, lambda table: table | {"b": ("y", "x", "x"), "a": ()})
    assert dict(read_access(lake).groups) == {"a": (), "b": ("x", "y")}
    assert lake.read_json(GROUPS) == {"a": [], "b": ["x", "y"]}


def test_no_change_writes_nothing(lake: Lake) -> None:
    change_groups(lake, lambda table: table | {"a": ("x",)})
    before = access_version(lake)
    change_groups(lake, lambda table: table | {"a": ("x",)})
    assert access_version(lake) == before
    change_groups(lake, lambda table: table | {"a": ("y",)})
    assert access_version(lake) != before


def test_of_many_who_write_at_the_same_time_nobodys_word_is_lost(lake: Lake) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: change_groups(Lake(lake.root, "default"), lambda t: t | {f"{n}": ("g",)}), range(40)))
        list(pool.map(lambda n: bury(Lake(lake.root, "default"), stone(f"{n}")), range(40)))
    access = read_access(lake)
    assert len(access.groups) == len(access.tombstones) == 40


def test_the_first_tombstone_stays(lake: Lake) -> None:
    assert bury(lake, stone("a", "court order")).reason == "court order"
    assert bury(lake, stone("a", "again")).reason == "court order"
    assert read_tombstones(lake)["a"] == stone("a", "court order")
    unbury(lake, "a")
    unbury(lake, "a")
    assert read_tombstones(lake) == {}


@pytest.mark.parametrize("key", [GROUPS, TOMBSTONES])
@pytest.mark.parametrize("data", [b"", b"{", b"7", b'{"a": "x"}', b'[{"doc_id": 1}]', b"\xff"])
def test_a_damaged_file_is_no_empty_one(lake: Lake, key: str, data: bytes) -> None:
    change_groups(lake, lambda table: table | {"a": ("x",)})
    bury(lake, stone("b"))
    lake.storage.write(key, data)
    with pytest.raises(Corrupt, match="nobody knows who may see what"):
        read_access(lake)
    with pytest.raises(Corrupt):
        change_groups(lake, lambda table: {}) if key == GROUPS else unbury(lake, "b")
    assert lake.storage.read(key) == data, "what can be restored is not written over"


class Killed(BaseException):
    """In place of a kill."""


def killed_at(monkeypatch: pytest.MonkeyPatch, lake: Lake, key: str, act: Callable[[], object]) -> None:
    """Act, and be killed right before ``key`` is written."""
    write = lake.storage.write

    def die(where: str, data: bytes) -> None:
        if where == key:
            raise Killed
        write(where, data)

    with monkeypatch.context() as patch:
        patch.setattr(lake.storage, "write", die)
        with pytest.raises(Killed):
            act()


@pytest.mark.parametrize("place", ["copies/", ""])
@pytest.mark.parametrize("key", [GROUPS, TOMBSTONES])
def test_who_is_killed_at_the_very_first_write_leaves_a_lake_that_can_be_read(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, key: str, place: str
) -> None:
    def say() -> None:
        change_groups(lake, lambda table: table | {"a": ("x",)}) if key == GROUPS else bury(lake, stone("a"))

    killed_at(monkeypatch, lake, f"{place}{key}", say)
    access = read_access(lake)
    assert (dict(access.groups), dict(access.tombstones)) == ({}, {})
    assert damaged_copies(lake) == [] and put_back_access(lake) == []
    say()
    access = read_access(lake)
    assert len(access.groups) + len(access.tombstones) == 1


def test_a_right_that_was_half_given_does_not_come_back_after_it_was_taken(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_groups(lake, lambda table: table | {"a": ("x",)})
    killed_at(monkeypatch, lake, GROUPS, lambda: change_groups(lake, lambda table: table | {"a": ("x", "y")}))
    change_groups(lake, lambda table: table | {"a": ("x",)})  # The revocation: of what the file never gave.
    lake.storage.delete(GROUPS)
    assert put_back_access(lake) == [GROUPS]
    assert dict(read_access(lake).groups) == {"a": ("x",)}


def test_a_purge_that_was_half_taken_back_and_asked_for_again_stays(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    bury(lake, stone("a"))
    killed_at(monkeypatch, lake, TOMBSTONES, lambda: unbury(lake, "a"))
    bury(lake, stone("a", "again"))
    lake.storage.delete(TOMBSTONES)
    assert put_back_access(lake) == [TOMBSTONES]
    assert read_tombstones(lake) == {"a": stone("a")}


@pytest.mark.parametrize("key", [GROUPS, TOMBSTONES])
@pytest.mark.parametrize("by_repair", [True, False])
def test_a_damaged_copy_is_written_anew(lake: Lake, key: str, by_repair: bool) -> None:
    def say() -> None:
        change_groups(lake, lambda table: table | {"a": ("x",)})
        bury(lake, stone("a"))

    say()
    lake.storage.write(f"copies/{key}", b"{")
    assert damaged_copies(lake) == [f"copies/{key}"]
    if by_repair:
        assert put_back_access(lake) == [f"copies/{key}"]
    else:
        say()
    assert damaged_copies(lake) == []
    assert lake.read_json(f"copies/{key}") == lake.read_json(key)
