"""Records of a lake: no bit of them changes unnoticed, and what nothing else could make again has a second copy."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pytest

from schemas.snapshot import Flip
from tasks.lake.access import GROUPS, TOMBSTONES, Tombstone, bury, change_groups, put_back_access, read_access
from tasks.lake.lake import Corrupt, Lake
from tasks.lake.seal import open_record, seal_record

RECORD = json.dumps({"name": "a", "number": 12, "groups": ["x", "y"]}, indent=1).encode()


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path, "default")


def flip(number: int) -> Flip:
    return Flip(
        number=number, snapshot=f"{number}", author="me", reason="", created=dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    )


def test_a_sealed_record_is_plain_json_and_comes_back_as_it_was() -> None:
    assert json.loads(seal_record(RECORD)).items() >= json.loads(RECORD).items()
    assert open_record(seal_record(RECORD)) == RECORD
    assert open_record(RECORD) == RECORD, "an earlier version wrote no seal"
    assert open_record(seal_record(b"{}")) == b"{}"


def test_no_bit_of_a_record_flips_unnoticed() -> None:
    sealed = seal_record(RECORD)
    for place in range(8 * len(sealed)):
        data = bytearray(sealed)
        data[place // 8] ^= 1 << place % 8
        with pytest.raises(ValueError):  # Of the seal, or of JSON.
            json.loads(open_record(bytes(data)))


def test_a_lost_newest_flip_is_not_the_one_before_it(lake: Lake) -> None:
    for number in (1, 2):
        lake.create_flip(flip(number))
    lake.storage.delete("flips/2.json")
    with pytest.raises(Corrupt, match=r"flips/2\.json is missing.*doctor --repair"):
        lake.current_flip()
    assert lake.put_back_flip() == ["flips/2.json"]
    assert lake.current_flip() == flip(2)
    assert lake.put_back_flip() == []


@pytest.mark.parametrize("data", [b"", b"{", bytes(300)])
def test_a_damaged_newest_flip_is_put_back(lake: Lake, data: bytes) -> None:
    lake.create_flip(flip(1))
    lake.storage.write("flips/1.json", data)
    with pytest.raises(Corrupt, match=r"flips/1\.json is damaged.*doctor --repair"):
        lake.current_flip()
    assert lake.put_back_flip() == ["flips/1.json"]
    assert lake.current_flip() == flip(1)


def test_an_older_copy_never_takes_the_place_of_a_newer_flip(lake: Lake) -> None:
    lake.create_flip(flip(1))
    copy = lake.storage.read("copies/flip.json")
    lake.create_flip(flip(2))
    lake.storage.write("copies/flip.json", copy)  # As a publisher leaves it who was killed right after its flip.
    assert lake.put_back_flip() == []
    assert lake.current_flip() == flip(2)
    lake.storage.write("copies/flip.json", b"")
    assert lake.current_flip() == flip(2)


@pytest.mark.parametrize("key", [GROUPS, TOMBSTONES])
@pytest.mark.parametrize("lost", [True, False])
def test_who_may_see_what_is_put_back_as_it_was_last(lake: Lake, key: str, lost: bool) -> None:
    change_groups(lake, lambda table: {"a": ("x", "y"), "b": ("x",)})
    change_groups(lake, lambda table: {"a": ("x",), "b": ()})
    when = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    bury(lake, Tombstone(doc_id="c", source="docs", uri="c.md", when=when, by="me"))
    before = read_access(lake)
    path = lake.storage.local(key)
    if lost:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes().replace(b'"c', b'"d').replace(b'"b', b'"d'))
    with pytest.raises(Corrupt, match="nobody knows who may see what -> run `glossator doctor --repair`"):
        read_access(lake)
    assert put_back_access(lake) == [key]
    after = read_access(lake)
    assert (after.groups, after.tombstones) == (before.groups, before.tombstones)
    assert put_back_access(lake) == []


@pytest.mark.parametrize("data", [b"", b"{", bytes(300)])
def test_a_damaged_copy_is_written_anew_from_the_newest_flip(lake: Lake, data: bytes) -> None:
    for number in (1, 2):
        lake.create_flip(flip(number))
    lake.storage.write("copies/flip.json", data)
    assert lake.put_back_flip() == ["copies/flip.json"]
    lake.storage.delete("flips/2.json")
    with pytest.raises(Corrupt, match=r"flips/2\.json is missing"):
        lake.current_flip()


def test_a_flip_that_is_put_back_takes_nobodys_place(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.create_flip(flip(1))
    lake.storage.delete("flips/1.json")
    theirs = b"published meanwhile"
    read = lake.storage.read

    def publish_then_read(key: str) -> bytes:
        data = read(key)
        if key == "copies/flip.json" and not lake.storage.local("flips/1.json").exists():
            lake.storage.create("flips/1.json", theirs)
        return data

    exists = lake.storage.exists
    monkeypatch.setattr(lake.storage, "exists", lambda key: key != "flips/1.json" and exists(key))
    monkeypatch.setattr(lake.storage, "read", publish_then_read)
    assert lake.put_back_flip() == []
    assert read("flips/1.json") == theirs
