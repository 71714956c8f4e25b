"""What a snapshot lost comes back from the parts: the same snapshot, the same answers, not one embedding."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from filelock import FileLock, Timeout

from flows.meter import Meter
from query.opening import open_retriever
from schemas.config import MilvusConfig
from schemas.errors import TransientError
from schemas.snapshot import Snapshot
from tasks.lake.lake import MILVUS_FOLDER, Lake, bm25_folder, catalog_folder, part_path, passages_folder
from tasks.progress import listen, unlisten
from tasks.publish import milvus_folder
from tasks.publish.candidate import workspace_as_made
from tasks.publish.history import rollback
from tasks.publish.repair import RepairReport, _Repair, repair
from tests.fixtures import ailments, contents, lake_beside, make_config, make_corpus, plan_of, published, run, store_of

CORPUS = {f"n{number}.md": f"# Note {number}\n\nThe lamp of tower {number} is green.\n" for number in range(9)}


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = make_corpus(tmp_path / "docs", CORPUS)
    run(folder)
    return folder


def mended(lake: Lake, *assignments: str) -> tuple[list[RepairReport], int]:
    """Repair; return the reports, and how often a collection of Milvus was to be emptied."""
    fenced: list[None] = []
    meter = Meter()
    parts = embedded(lake)
    listen(meter)
    try:
        reports = repair(lake, make_config(*assignments), lambda: fenced.append(None))
    finally:
        unlisten(meter)
    assert meter.embedded == 0
    assert embedded(lake) == parts
    return reports, len(fenced)


def embedded(lake: Lake) -> dict[str, int]:
    """The parts with vectors, and when each was written."""
    folder = lake.storage.local("parts/embed")
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}


def answers(lake: Lake) -> list[tuple[str, float]]:
    with closing(open_retriever(lake, make_config())) as retriever:
        found = retriever.search("Which lamp is green at tower 4?", 5)
    assert found.dense_way is not None
    return [(hit.passage.chunk_id, hit.score) for hit in found.hits]


def passages(lake: Lake, snapshot: Snapshot) -> Path:
    return lake.storage.local(passages_folder(snapshot.parts["passages"][0].key))


def catalog(lake: Lake, snapshot: Snapshot) -> Path:
    return lake.storage.local(catalog_folder(snapshot.catalog))


def bm25(lake: Lake, snapshot: Snapshot) -> Path:
    return lake.storage.local(bm25_folder(snapshot.bm25))


def everything(lake: Lake, snapshot: Snapshot) -> Path:
    for find in (catalog, bm25):
        shutil.rmtree(find(lake, snapshot))
    return passages(lake, snapshot)


def lose(folder: Path) -> None:
    shutil.rmtree(folder)


def lose_a_file(folder: Path) -> None:
    next(folder.glob("*.arrow")).unlink()


def flip_a_byte(folder: Path) -> None:
    path = max(folder.iterdir(), key=lambda file: file.stat().st_size)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


@pytest.mark.parametrize("harm", [lose, lose_a_file, flip_a_byte])
@pytest.mark.parametrize("find", [passages, catalog, bm25, everything])
def test_damaged_folders_come_back(
    docs: Path, find: Callable[[Lake, Snapshot], Path], harm: Callable[[Path], None]
) -> None:
    lake = lake_beside(docs)
    before, asked, flip = contents(lake), answers(lake), lake.current_flip()
    harm(find(lake, published(lake)))
    assert "files" in ailments(docs)
    (report,), _ = mended(lake)
    assert report.healthy and report.rebuilt and not report.problems
    assert (contents(lake), answers(lake), lake.current_flip()) == (before, asked, flip)
    assert ailments(docs) == {}
    assert plan_of(docs).nothing_to_do


def lose_all(lake: Lake) -> None:
    from milvus_lite.server_manager import server_manager_instance

    server_manager_instance.release_server(str(lake.storage.local(MILVUS_FOLDER)))
    shutil.rmtree(lake.storage.local(MILVUS_FOLDER))


def lose_the_collection(lake: Lake) -> None:
    with closing(store_of(lake)) as store:
        store.drop()


def lose_rows(lake: Lake) -> None:
    with closing(store_of(lake)) as store:
        store.delete(sorted(store.ids())[:3])


def hold_rows_twice(lake: Lake) -> None:
    """As a kill during a flush leaves them: in a file of their own, and still in the log."""
    from milvus_lite.server_manager import server_manager_instance

    folder = lake.storage.local(MILVUS_FOLDER)
    with closing(store_of(lake)) as store:
        rows = store._client.get(store.ref.collection, ids=sorted(store.ids()), output_fields=["*"])
        store._client.upsert(store.ref.collection, [dict(row) for row in rows])
        logs = {path: path.read_bytes() for path in folder.glob("collections/*/wal/wal_data_*")}
        store.flush()
    server_manager_instance.release_server(str(folder))
    assert logs
    for path, data in logs.items():
        path.write_bytes(data)


def ruin(pattern: str) -> Callable[[Lake], None]:
    def ruin_files(lake: Lake) -> None:
        from milvus_lite.server_manager import server_manager_instance

        folder = lake.storage.local(MILVUS_FOLDER)
        with closing(store_of(lake)) as store:
            store.flush()
        server_manager_instance.release_server(str(folder))
        files = [path for path in folder.glob(f"collections/*/{pattern}") if path.is_file()]
        assert files
        for path in files:
            path.write_bytes(b"x" * path.stat().st_size)

    ruin_files.__name__ = pattern
    return ruin_files


@pytest.mark.parametrize(
    "harm",
    [
        lose_all,
        lose_the_collection,
        lose_rows,
        hold_rows_twice,
        ruin("schema.json"),
        ruin("manifest.json"),
        ruin("**/*.parquet"),
    ],
    ids=lambda harm: harm.__name__,
)
def test_vectors_come_back(docs: Path, harm: Callable[[Lake], None]) -> None:
    lake = lake_beside(docs)
    before, asked, flip = contents(lake), answers(lake), lake.current_flip()
    harm(lake)
    assert "milvus" in ailments(docs)
    (report,), _ = mended(lake)
    assert report.healthy
    assert report.rebuilt == (f"milvus/{published(lake).vectors.collection}",)
    assert (contents(lake), answers(lake), lake.current_flip()) == (before, asked, flip)


def test_a_collection_is_emptied_only_behind_a_fence(docs: Path) -> None:
    """A publisher that was paused has rows in it, and must not publish without them."""
    lake = lake_beside(docs)
    lose_rows(lake)
    assert mended(lake)[1] == 0
    ruin("schema.json")(lake)
    assert mended(lake)[1] == 1


@pytest.mark.parametrize("damage", [lose_rows, lambda lake: None], ids=["rows lost", "whole"])
def test_what_fails_for_the_moment_empties_no_collection(
    docs: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Lake], None]
) -> None:
    lake = lake_beside(docs)
    damage(lake)
    with closing(store_of(lake)) as store:
        rows = sorted(store.ids())

    def late(*_: object) -> None:
        raise TransientError("Milvus could not take 9 rows: Deadline Exceeded")

    with monkeypatch.context() as patch:
        patch.setattr("tasks.publish.repair.insert_vectors", late)
        (report,), fenced = mended(lake)
    assert fenced == 0
    assert bool(report.problems) == (damage is lose_rows)
    with closing(store_of(lake)) as store:
        assert sorted(store.ids()) == rows
    assert mended(lake)[0][0].healthy


def test_a_server_is_asked_for_rows_and_nothing_of_it_is_dropped(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = lake_beside(docs)
    config = make_config().model_copy(update={"milvus": MilvusConfig(uri="http://127.0.0.1:9")})
    space = workspace_as_made(lake, config, published(lake))

    def late(*_: object) -> None:
        raise TransientError("Deadline Exceeded")

    monkeypatch.setattr("tasks.publish.repair.insert_vectors", late)
    fenced: list[None] = []
    work = _Repair(space, lake, published(lake), lambda: fenced.append(None))
    with pytest.raises(TransientError, match="Deadline"):
        work._vectors()
    assert not fenced


def test_nobody_starts_the_server_while_a_collection_is_emptied(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = lake_beside(docs)
    ruin("schema.json")(lake)
    held: list[bool] = []
    clear = milvus_folder.clear

    def look(folder: Path, name: str) -> None:
        with pytest.raises(Timeout):
            FileLock(folder.with_suffix(".lock"), is_singleton=False).acquire(timeout=0)
        held.append(True)
        clear(folder, name)

    monkeypatch.setattr(milvus_folder, "clear", look)
    assert mended(lake)[0][0].healthy
    assert held == [True]


def test_a_collection_that_cannot_be_emptied_is_told(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = lake_beside(docs)
    ruin("schema.json")(lake)

    def refuse(path: Path, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(milvus_folder.shutil, "rmtree", refuse)
        (report,), _ = mended(lake)
    (problem,) = report.problems
    assert "no permission" in problem


def test_a_damaged_kept_snapshot_is_told_and_the_current_one_repaired(docs: Path) -> None:
    lake = lake_beside(docs)
    old = published(lake)
    run(make_corpus(docs, CORPUS | {"n0.md": "# Note 0\n\nThe lamp of tower 0 is red.\n"}))
    lake.storage.write(f"snapshots/{old.name}.json", b"{")
    lose(catalog(lake, published(lake)))
    (current, other), _ = mended(lake)
    assert current.healthy and current.rebuilt
    assert (other.snapshot, other.healthy) == (old.name, False)
    (problem,) = other.problems
    assert f"{old.name}.json is damaged" in problem


def test_a_whole_index_is_left_as_it_is(docs: Path) -> None:
    lake = lake_beside(docs)
    root = lake.storage.local("x").parent
    files = {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file() and "milvus" not in str(path)}
    (report,), _ = mended(lake)
    assert (report.healthy, report.rebuilt, report.before) == (True, (), report.after)
    assert {path: path.stat().st_mtime_ns for path in files} == files


def test_a_hold_and_the_snapshots_that_a_rollback_needs_stay(docs: Path) -> None:
    lake = lake_beside(docs)
    old = published(lake)
    run(make_corpus(docs, CORPUS | {"n0.md": "# Note 0\n\nThe lamp of tower 0 is red.\n"}))
    new = published(lake)
    flip = rollback(lake, None, author="me", reason="red is wrong", milvus=make_config().milvus)
    for kind in ("passages", "catalog", "bm25"):
        shutil.rmtree(lake.storage.local(kind))
    lose_all(lake)
    reports, _ = mended(lake)
    assert [report.snapshot for report in reports] == [old.name, new.name]
    assert all(report.healthy for report in reports)
    assert lake.current_flip() == flip
    assert flip.hold
    assert rollback(lake, new.name, author="me", reason="it was right", milvus=make_config().milvus).hold
    assert contents(lake).unstored == frozenset()
    assert ailments(docs) == {}


def test_a_repair_reads_no_source_and_asks_for_no_config(docs: Path) -> None:
    """It is made as the snapshot was, though a migration is due."""
    lake = lake_beside(docs)
    before = contents(lake)
    lose(passages(lake, published(lake)))
    docs.rename(docs.with_name("unmounted"))
    (report,), _ = mended(lake, "embed.model=hash:128", "chunk.child_tokens=60")
    assert report.healthy
    assert contents(lake) == before


def test_a_bm25_index_of_another_config_is_not_put_in_its_place(docs: Path) -> None:
    lake = lake_beside(docs)
    lose(bm25(lake, published(lake)))
    lose(catalog(lake, published(lake)))
    (report,), _ = mended(lake, "bm25.k1=0.5")
    assert not report.healthy
    assert report.rebuilt == (catalog_folder(published(lake).catalog),)
    (problem,) = report.problems
    assert "another config" in problem
    assert "set the configuration back" in problem
    assert mended(lake)[0][0].healthy


@pytest.mark.parametrize("stage", ["load", "tokens", "embed"])
def test_a_lost_part_is_left_to_the_next_index_and_all_else_is_mended(docs: Path, stage: str) -> None:
    lake = lake_beside(docs)
    before = contents(lake)
    part = lake.storage.local(part_path(stage, published(lake).parts[stage][0].key))  # type: ignore[index,arg-type]
    part.write_bytes(part.read_bytes()[:100])
    lose(catalog(lake, published(lake)))
    lose_rows(lake)
    parts = embedded(lake)
    (report,) = repair(lake, make_config(), lambda: None)
    assert {name: parts[name] for name in embedded(lake)} == embedded(lake)
    assert not report.healthy
    assert set(report.rebuilt) >= {
        catalog_folder(published(lake).catalog),
        f"milvus/{published(lake).vectors.collection}",
    }
    files = next(finding for finding in report.after if finding.check == "files")
    assert "1 of 5 parts are missing" in files.message
    assert "glossator index" in files.remedy
    assert contents(lake) == before
    run(docs)
    assert ailments(docs) == {}
    assert contents(lake) == before


def test_passages_without_their_parts_are_told_as_such(docs: Path) -> None:
    lake = lake_beside(docs)
    lake.storage.delete(part_path("embed", published(lake).parts["embed"][0].key))
    lose(passages(lake, published(lake)))
    (report,), _ = mended(lake)
    assert not report.healthy
    (problem,) = report.problems
    assert "parts/embed" in problem
    assert "run `glossator index` again" in problem
    before = published(lake).id
    run(docs)
    assert published(lake).id == before
    assert ailments(docs) == {}


def test_rows_stay_when_the_store_fails_for_the_moment(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = lake_beside(docs)
    lose_rows(lake)
    before = contents(lake)

    def late(*_: object) -> int:
        raise TransientError("Milvus could not take 9 rows: Deadline Exceeded")

    with monkeypatch.context() as patch:
        patch.setattr("tasks.publish.milvus.MilvusStore.insert", late)
        (report,), fences = mended(lake)
    assert not report.healthy and "Deadline Exceeded" in report.problems[0] and fences == 0
    assert contents(lake) == before
    assert mended(lake)[0][0].healthy
