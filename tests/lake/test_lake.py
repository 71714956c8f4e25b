"""The lake: parts, folders and flips come back as they were written, or not at all."""

from __future__ import annotations

import datetime as dt
import errno
import io
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import polars as pl
import pyarrow as pa
import pytest

from schemas.errors import GlossatorError, TransientError
from schemas.snapshot import Failure, Flip, PartRef
from schemas.tables import CONTEXTS, TOKENS
from tasks.lake.lake import MANIFEST, Corrupt, Lake, part_path
from tasks.lake.storage import NotFound

NOW = dt.datetime(2025, 3, 4, tzinfo=dt.UTC)
FAILURE = Failure(doc_id="00", source="s", uri="灯.md", stage="chunk", kind="ValueError", message="no")
REF = PartRef(
    stage="contextualize",
    shard=3,
    key="k",
    config="cfg",
    reads={"chunks": "x"},
    rows_digest="r",
    counts={"chunks": 40},
    failures=(FAILURE,),
)


def contexts(rows: int = 40) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "doc_id": f"{row:016x}",
                "index": row,
                "chunk_id": f"{row:032x}",
                "context": "Title > 灯塔",
                "origin": "structural",
                "language": "zh",
                "embedded_digest": f"{row:032d}",
                "embedded": f"text {row}",
            }
            for row in range(rows)
        ],
        schema=CONTEXTS,
    )


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path, "default")


def flip(number: int) -> Flip:
    return Flip(number=number, snapshot=f"s{number}", author="a", reason="r", created=NOW)


# --- parts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [0, 1, 40])
def test_a_part_comes_back_as_it_was_written(lake: Lake, rows: int) -> None:
    assert lake.write_part(REF, contexts(rows)) == REF
    table = lake.read_part("contextualize", "k")
    assert table.schema.equals(CONTEXTS)
    assert table.equals(contexts(rows))


def test_dictionary_columns_come_back(lake: Lake) -> None:
    terms = pa.array(["b", "a", "b"]).dictionary_encode()
    table = pa.table([pa.array(["x", "y"]), pa.ListArray.from_arrays(pa.array([0, 1, 3], pa.int32()), terms)], TOKENS)
    lake.write_part(REF.model_copy(update={"stage": "tokens"}), table)
    assert lake.read_part("tokens", "k")["tokens"].to_pylist() == [["b"], ["a", "b"]]


def test_a_ref_is_read_from_its_part_and_marked_as_reused(lake: Lake) -> None:
    lake.write_part(REF, contexts())
    assert lake.find_part("contextualize", "k") == REF.model_copy(update={"reused": True})


def test_some_columns_can_be_read_alone(lake: Lake) -> None:
    lake.write_part(REF, contexts())
    assert lake.read_part("contextualize", "k", ["index"]).column_names == ["index"]


def test_any_parquet_reader_opens_a_part(lake: Lake) -> None:
    lake.write_part(REF, contexts())
    data = lake.storage.read(part_path("contextualize", "k"))
    assert pl.read_parquet(io.BytesIO(data))["embedded"].to_list() == contexts()["embedded"].to_pylist()


def test_equal_rows_make_equal_files(tmp_path: Path) -> None:
    lakes = [Lake(tmp_path / name, "default") for name in "ab"]
    for one in lakes:
        one.write_part(REF, contexts())
    first, second = (one.storage.read(part_path("contextualize", "k")) for one in lakes)
    assert first == second


def test_a_missing_part_is_none_or_not_found(lake: Lake) -> None:
    assert lake.find_part("chunk", "k") is None
    with pytest.raises(NotFound, match="computed anew"):
        lake.read_part("chunk", "k")


def test_a_part_with_any_flipped_bit_is_corrupt_and_gives_no_rows(lake: Lake) -> None:
    lake.write_part(REF, contexts())
    path = lake.storage.local(part_path("contextualize", "k"))
    good = path.read_bytes()
    rng = random.Random(5)
    # Every byte of the footer, which Parquet itself does not check, and a sample of the rest.
    places = {*range(len(good) - 1_500, len(good)), *rng.sample(range(len(good)), 300)}
    for place in places:
        damaged = bytearray(good)
        damaged[place] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(Corrupt, match=r"damaged.*delete that file"):
            lake.read_part("contextualize", "k", ["embedded"])
        with pytest.raises(Corrupt):
            lake.find_part("contextualize", "k")


@pytest.mark.parametrize("kept", [0, 3, 8, 100, -1])
def test_a_part_that_was_cut_short_is_corrupt(lake: Lake, kept: int) -> None:
    lake.write_part(REF, contexts())
    path = lake.storage.local(part_path("contextualize", "k"))
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(Corrupt, match="damaged"):
        lake.read_part("contextualize", "k")
    with pytest.raises(Corrupt, match="damaged"):
        lake.find_part("contextualize", "k")


def test_the_newest_part_of_a_shard_is_remembered_while_it_exists(lake: Lake) -> None:
    lake.write_part(REF, contexts())
    later = lake.write_part(REF.model_copy(update={"key": "later"}), contexts())
    assert lake.newest_part("contextualize", 3) == later
    assert lake.newest_part("contextualize", 4) is None
    lake.storage.delete(part_path("contextualize", "later"))
    assert lake.newest_part("contextualize", 3) is None


def test_a_damaged_hint_of_the_newest_part_is_only_a_lost_hint(lake: Lake) -> None:
    lake.write_part(REF, contexts())
    lake.storage.write("state/newest/contextualize/3.json", b"{")
    assert lake.newest_part("contextualize", 3) is None


# --- folders ---------------------------------------------------------------------------------------------


def test_a_folder_without_its_manifest_does_not_exist(lake: Lake) -> None:
    lake.write_folder("bm25/x", {"a": b"1", "b": b"22"})
    assert lake.has_folder("bm25/x")
    lake.storage.delete(f"bm25/x/{MANIFEST}")
    assert not lake.has_folder("bm25/x")
    with pytest.raises(NotFound):
        lake.open_folder("bm25/x")


def test_the_manifest_is_written_last(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop_at_second(descriptor: int) -> None:
        if os.fstat(descriptor).st_size == 2:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", stop_at_second)
    with pytest.raises(TransientError):
        lake.write_folder("bm25/x", {"a": b"1", "b": b"22"})
    assert not lake.has_folder("bm25/x")


def test_a_file_of_a_folder_that_is_gone_or_cut_short_is_noticed_without_reading(lake: Lake) -> None:
    lake.write_folder("bm25/x", {"a": b"1", "b": b"22"})
    assert (lake.open_folder("bm25/x") / "b").read_bytes() == b"22"
    lake.storage.local("bm25/x/b").write_bytes(b"2")
    with pytest.raises(Corrupt, match="missing or cut short"):
        lake.open_folder("bm25/x")
    lake.storage.local("bm25/x/b").unlink()
    with pytest.raises(Corrupt, match="missing or cut short"):
        lake.open_folder("bm25/x")


def test_verifying_a_folder_finds_a_flipped_byte(lake: Lake) -> None:
    lake.write_folder("bm25/x", {"a": b"1", "b": b"22"})
    lake.open_folder("bm25/x", verify=True)
    lake.storage.local("bm25/x/b").write_bytes(b"23")
    with pytest.raises(Corrupt, match="differs from its checksum"):
        lake.open_folder("bm25/x", verify=True)


# --- flips and small documents ---------------------------------------------------------------------------


def test_before_the_first_flip_nothing_is_current(lake: Lake) -> None:
    assert lake.current_flip() is None
    assert lake.current_snapshot() is None


def test_the_highest_flip_is_current_by_number_not_by_name(lake: Lake) -> None:
    for number in (1, 2, 9, 10):
        lake.create_flip(flip(number))
    assert lake.current_flip() == flip(10)


def test_a_second_flip_of_the_same_number_is_refused_and_changes_nothing(lake: Lake) -> None:
    lake.create_flip(flip(1))
    with pytest.raises(TransientError, match=r"somebody else has published flip 1.*run the same command again"):
        lake.create_flip(flip(1).model_copy(update={"snapshot": "other"}))
    assert lake.current_flip() == flip(1)


def test_files_that_are_no_flips_are_not_read_as_flips(lake: Lake) -> None:
    lake.create_flip(flip(1))
    lake.storage.local("flips/.DS_Store").write_bytes(b"")
    lake.storage.local("flips/2.json.swp").write_bytes(b"")
    assert lake.current_flip() == flip(1)


@pytest.mark.parametrize("damage", [b"", b"{", b"{}", b"\xff"])
def test_damaged_flips_snapshots_and_documents_say_so(lake: Lake, damage: bytes) -> None:
    lake.create_flip(flip(1))
    lake.storage.local("flips/1.json").write_bytes(damage)
    with pytest.raises(Corrupt, match=r"flips/1\.json is damaged"):
        lake.current_flip()
    lake.storage.write("snapshots/x.json", damage)
    with pytest.raises(Corrupt, match=r"snapshots/x\.json is damaged"):
        lake.read_snapshot("x")
    lake.storage.write("state/hints/s.arrow", damage)
    with pytest.raises(Corrupt, match=r"s\.arrow is damaged"):
        lake.read_frame("state/hints/s.arrow")


def test_json_and_tables_come_back(lake: Lake) -> None:
    lake.write_json("state/x.json", {"灯": [1, None]})
    assert lake.read_json("state/x.json") == {"灯": [1, None]}
    frame = pl.DataFrame(pl.from_arrow(contexts(2)))
    lake.write_frame("state/t.arrow", frame)
    table = lake.read_frame("state/t.arrow")
    assert table is not None
    assert table.equals(frame)
    assert lake.read_frame("state/other.arrow") is None


def fails_to_read(number: int) -> Callable[..., NoReturn]:
    def call(*arguments: object, **keywords: object) -> NoReturn:
        raise OSError(number, os.strerror(number), "a file")

    return call


def test_a_part_that_the_disk_fails_to_read_is_not_called_damaged(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.write_part(REF, contexts())
    monkeypatch.setattr(pa, "memory_map", fails_to_read(errno.EIO))
    with pytest.raises(TransientError, match=r"contextualize/k.parquet: Input/output error -> run the same command"):
        lake.find_part("contextualize", "k")
    monkeypatch.setattr(pa, "memory_map", fails_to_read(errno.EISDIR))
    with pytest.raises(Corrupt, match="is damaged"):
        lake.find_part("contextualize", "k")


def test_a_folder_that_the_disk_fails_to_read_is_not_called_damaged(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.write_folder("catalog/c", {"one": b"1"})
    path = lake.open_folder("catalog/c", verify=True) / "one"
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda self: fails_to_read(errno.EIO)() if self == path else read(self))
    with pytest.raises(TransientError, match="one: Input/output error"):
        lake.open_folder("catalog/c", verify=True)


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES])
def test_a_folder_whose_files_cannot_be_looked_at_is_told_not_taken_for_damaged(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    lake.write_folder("bm25/k", {"a": b"1"})
    stat = Path.stat

    def failing(self: Path, **options: bool) -> os.stat_result:
        if self.name == "a":
            raise OSError(number, os.strerror(number), str(self))
        return stat(self, **options)

    monkeypatch.setattr(Path, "stat", failing)
    for look in (lake.open_folder, lake.has_folder, lambda folder: lake.storage.exists(f"{folder}/a")):
        with pytest.raises(GlossatorError, match="bm25/k/a") as caught:
            look("bm25/k")
        assert not isinstance(caught.value, Corrupt)
        assert isinstance(caught.value, TransientError) == (number == errno.EIO)
