"""Today's access: nothing written is lost, nothing damaged opens a document."""

from __future__ import annotations

import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tasks.lake.access import (
    GROUPS,
    TOMBSTONES,
    Tombstone,
    _read_groups,
    access_version,
    bury,
    change_groups,
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


def test_a_revocation_reaches_the_copy_that_a_killed_process_left_wider(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_groups(lake, lambda table: {"one": ("board",)})
    written: list[str] = []
    write = Lake.write_json

    def killed(self: Lake, key: str, value: object) -> None:
        if written:
            raise KeyboardInterrupt
        written.append(key)
        write(self, key, value)

    with monkeypatch.context() as patch:
        patch.setattr(Lake, "write_json", killed)
        with pytest.raises(KeyboardInterrupt):
            change_groups(lake, lambda table: {"one": ("board", "staff")})
    assert _read_groups(lake) == {"one": ("board",)}, "the file did not come as far as its copy"
    change_groups(lake, lambda table: {"one": ("board",)})
    lake.storage.delete(GROUPS)
    assert put_back_access(lake) == [GROUPS]
    assert _read_groups(lake) == {"one": ("board",)}
