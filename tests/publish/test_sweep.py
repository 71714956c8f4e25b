"""The sweep deletes what no retained snapshot needs, when its time has come, and nothing else."""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
from contextlib import closing
from pathlib import Path

import pytest

from schemas.errors import GlossatorError, PublishRefused
from schemas.snapshot import VectorStoreRef
from tasks.lake.lake import Lake, part_path
from tasks.lake.storage import TEMPORARY
from tasks.publish.history import resume, rollback
from tasks.publish.milvus import open_milvus
from tasks.publish.pins import create_pin, remove_pin
from tasks.publish.stores import VECTORS
from tasks.publish.sweep import SweepPolicy, SweepReport, sweep
from tests.generations import AT_ONCE, Generations, generations

DEFAULT = SweepPolicy()


def clean(
    collection: Generations,
    policy: SweepPolicy = AT_ONCE,
    *,
    later: dt.timedelta = dt.timedelta(0),
    full: bool = False,
    dry_run: bool = False,
) -> SweepReport:
    now = dt.datetime.now(dt.UTC) + later
    return sweep(
        collection.lake, collection.config.milvus, lambda: True, now=now, policy=policy, full=full, dry_run=dry_run
    )


def files(lake: Lake, *folders: str) -> set[str]:
    root = lake.storage.local("x").parent
    return {
        path.relative_to(root).as_posix() for folder in folders for path in (root / folder).rglob("*") if path.is_file()
    }


def stores(lake: Lake) -> set[str]:
    return files(lake, "catalog", "bm25", "passages", "snapshots", "withdrawn")


def test_a_dropped_snapshot_leaves_nothing_and_the_others_everything(tmp_path: Path) -> None:
    collection = Generations(tmp_path)
    names = [collection.publish(generation).name for generation in range(3)]
    ids = [collection.ids(name) for name in names]
    snapshots = [collection.lake.read_snapshot(name) for name in names]
    report = clean(collection)
    assert collection.rows() == ids[1] | ids[2]
    assert report.rows.count == len(ids[0] - ids[1] - ids[2]) == 4
    assert report.snapshots.count == 1
    assert report.folders.count == 3
    assert report.parts.count == 5
    assert report.finished
    left = stores(collection.lake) | files(collection.lake, "parts")
    for old in (
        snapshots[0].catalog,
        snapshots[0].bm25,
        *(ref.key for refs in snapshots[0].parts.values() for ref in refs),
    ):
        assert not [path for path in left if old in path]
    assert collection.ailments() == []
    assert generations(collection.search()) == {2}
    assert generations(collection.search(name=names[1])) == {1}


def test_a_second_sweep_finds_nothing(tmp_path: Path) -> None:
    collection = Generations(tmp_path)
    for generation in range(3):
        collection.publish(generation)
    clean(collection)
    assert clean(collection, full=True) == SweepReport()


def test_rows_stay_fifteen_minutes_for_readers_who_have_not_moved_on(tmp_path: Path) -> None:
    collection = Generations(tmp_path)
    for generation in range(3):
        collection.publish(generation)
    before = collection.rows(), stores(collection.lake)
    assert clean(collection, DEFAULT, later=dt.timedelta(minutes=14), full=True) == SweepReport()
    assert (collection.rows(), stores(collection.lake)) == before
    report = clean(collection, DEFAULT, later=dt.timedelta(minutes=16))
    assert report.rows.count == 4
    # Passages may have been found by a run that has not published yet: they stay a day after their last use.
    assert report.folders.count == 2
    assert clean(collection, DEFAULT, later=dt.timedelta(hours=25)).folders.count == 1


def test_the_grace_is_counted_from_the_flip_that_dropped_it(tmp_path: Path) -> None:
    collection = Generations(tmp_path)
    names = [collection.publish(generation).name for generation in range(4)]
    dropped_by = collection.lake.read_flip(3).created, collection.lake.read_flip(4).created
    policy = dataclasses.replace(DEFAULT, passages=dt.timedelta(0))
    middle = dropped_by[0] + (dropped_by[1] - dropped_by[0]) / 2 + policy.grace
    sweep(collection.lake, collection.config.milvus, lambda: True, now=middle, policy=policy)
    assert not collection.lake.has_snapshot(names[0])
    assert collection.lake.has_snapshot(names[1])
    assert collection.ailments(names[1:]) == []


def test_a_dry_run_tells_exactly_what_would_go_and_deletes_nothing(tmp_path: Path) -> None:
    collection = Generations(tmp_path)
    for generation in range(4):
        collection.publish(generation)
    before = collection.rows(), stores(collection.lake), files(collection.lake, "parts", "state")
    foreseen = clean(collection, dry_run=True, full=True)
    assert (collection.rows(), stores(collection.lake), files(collection.lake, "parts", "state")) == before
    done = clean(collection, full=True)
    assert foreseen.model_copy(update={"dry_run": False}) == done
    assert foreseen.rows.count == 8


def test_pins_and_rollbacks_protect(tmp_path: Path) -> None:
    collection = Generations(tmp_path)
    names = [collection.publish(0).name]
    create_pin(collection.lake, names[0], author="", reason="")
    names += [collection.publish(generation).name for generation in range(1, 4)]
    rollback(collection.lake, names[0], author="", reason="", milvus=collection.config.milvus)
    clean(collection, full=True)
    remove_pin(collection.lake, names[0])
    clean(collection, full=True)
    assert generations(collection.search()) == {0}
    assert collection.ailments() == []
    resume(collection.lake, author="", reason="")
    collection.publish(5)
    assert collection.ailments() == []


def test_documents_that_come_back_after_their_rows_were_swept_are_inserted_again(tmp_path: Path) -> None:
    collection = Generations(tmp_path)
    policy = dataclasses.replace(DEFAULT, grace=dt.timedelta(0))  # Parts, passages and receipts are still there.
    first = collection.publish(0)
    for generation in (1, 2):
        collection.publish(generation)
    assert clean(collection, policy).rows.count == 4
    again = collection.publish(0)
    assert again.id == first.id
    assert generations(collection.search()) == {0}
    assert collection.ailments() == []


def test_a_run_that_never_published_leaves_rows_for_the_full_comparison_only(tmp_path: Path) -> None:
    collection = Generations(tmp_path)
    collection.publish(0)
    other = Generations(tmp_path)
    other.write(1)
    rows = _insert_without_publishing(other)
    assert collection.rows() > rows
    assert clean(collection).orphans.count == 0
    assert collection.rows() > rows
    report = clean(collection, full=True)
    assert report.orphans.count == len(rows) == 4
    assert collection.rows() == collection.ids(collection.current().name)
    collection.publish()
    assert generations(collection.search()) == {1}, "and its receipt does not vouch for rows that are gone"
    assert collection.ailments() == []


def _insert_without_publishing(collection: Generations) -> set[str]:
    from flows.index import build
    from flows.runner import PlainRunner
    from tasks.plan.planner import make_plan
    from tasks.plan.registry import list_sources
    from tasks.publish.catalog import read_catalog, write_catalog

    lake = collection.lake
    plan = make_plan(lake, collection.config, list_sources(lake))
    passages = build(PlainRunner(), plan, {})["passages"]
    catalog = write_catalog(lake, passages)
    VECTORS.compute(plan.workspace, catalog, passages, plan.parent)
    ids = set(read_catalog(lake, catalog, "chunks", ["chunk_id"])["chunk_id"].to_list())
    return ids - collection.ids(collection.current().name)


def test_the_sweep_ends_when_the_lease_is_lost_and_the_next_goes_on(tmp_path: Path) -> None:
    collection = Generations(tmp_path, documents=6)
    for generation in range(3):
        collection.publish(generation)
    policy = dataclasses.replace(AT_ONCE, batch=2)
    after_the_first_batch = iter([True])

    def lost_in_the_second_batch() -> bool:
        return len(collection.rows()) > 17 or next(after_the_first_batch, False)

    assert len(collection.rows()) == 19
    report = sweep(collection.lake, collection.config.milvus, lost_in_the_second_batch, policy=policy)
    assert not report.finished
    assert report.rows.count == 2
    assert len(collection.rows()) == 17
    assert collection.ailments() == []
    assert clean(collection, policy).rows.count == 6
    assert len(collection.rows()) == 13


def test_a_collection_of_milvus_goes_with_the_last_snapshot_that_names_it(tmp_path: Path) -> None:
    old = Generations(tmp_path)
    first = old.publish(0)
    new = Generations(tmp_path, "chunk.child_tokens=32")
    moved = new.publish(migrate=True)
    assert moved.vectors.collection != first.vectors.collection
    assert clean(new, full=True).collections.count == 0, "the old model is still the way back"
    new.publish(1)
    report = clean(new)
    assert report.collections.count == 1
    with closing(open_milvus(new.config.milvus, new.lake, moved.vectors)) as store:
        assert store.siblings() == [moved.vectors.collection]
    assert new.ailments() == []


def test_what_a_drop_left_that_was_cut_off_goes_with_the_next_sweep(tmp_path: Path) -> None:
    collection = Generations(tmp_path)
    collection.publish(0)
    folders = tmp_path / "lake" / "default" / "milvus.db" / "collections"
    gone = folders / f"g_default_{'0' * 16}"
    gone.mkdir()
    (gone / "data.parquet").write_bytes(b"rows")
    assert clean(collection).collections.count == 1
    assert [path.name for path in folders.iterdir()] == [collection.current().vectors.collection]
    assert collection.ailments() == []


def test_another_collection_whose_name_begins_alike_is_not_touched(tmp_path: Path) -> None:
    collection = Generations(tmp_path, name="docs")
    ref = collection.publish(0).vectors
    strangers = [
        f"g_docs_internal_{'0' * 16}",
        f"g_docs_{'a' * 16}_{'0' * 16}",
        f"g_docs_{'0' * 15}",
        f"g_docs_{'0' * 17}",
        f"g_docs_{'G' * 16}",
        f"g_doc_{'0' * 16}",
        "somebody_elses",
    ]
    ours = f"g_docs_{'0' * 16}"
    for name in (*strangers, ours):
        other = VectorStoreRef(collection=name, dimension=384, model="", model_identity="")
        with closing(open_milvus(collection.config.milvus, collection.lake, other)) as store:
            store.ensure()
    assert clean(collection).collections.count == 1
    with closing(open_milvus(collection.config.milvus, collection.lake, ref)) as store:
        assert store.siblings() == [ref.collection]
        for name in strangers:
            assert store._client.has_collection(name)


def test_parts_stay_seven_days_after_they_were_last_found(tmp_path: Path) -> None:
    collection = Generations(tmp_path)
    first = collection.publish(0)
    for generation in (1, 2):
        collection.publish(generation)
    lake, ref = collection.lake, first.parts["load"][0]
    path = lake.storage.local(part_path("load", ref.key))
    week_ago = dt.datetime.now(dt.UTC) - dt.timedelta(days=7, minutes=1)
    for stage in ("load", "chunk"):
        os.utime(lake.storage.local(part_path(stage, first.parts[stage][0].key)), (week_ago.timestamp(),) * 2)
    assert lake.find_part("load", ref.key) is not None, "found is used"
    assert clean(collection, dataclasses.replace(DEFAULT, grace=dt.timedelta(0))).parts.count == 1
    assert path.exists()
    assert lake.find_part("chunk", first.parts["chunk"][0].key) is None
    assert collection.ailments() == []


def test_old_records_and_interrupted_writes_go_and_the_rest_of_the_state_stays(tmp_path: Path) -> None:
    collection = Generations(tmp_path)
    snapshot = collection.publish(0)
    storage = collection.lake.storage
    old = dt.datetime.now(dt.UTC) - dt.timedelta(days=8)
    going = [
        "state/plans/old.arrow",
        "state/prefect/old",
        "state/vectors/old.json",
        f"parts/load/{TEMPORARY}1",
        f"state/{TEMPORARY}2",
        f"bm25/{snapshot.bm25}/{TEMPORARY}3",
        *(f"{folder}{TEMPORARY}4" for folder in ("flips/", "sources/", "access/", "")),
    ]
    staying = [
        "state/hints/x.arrow",
        "state/failures.json",
        "ledger/x",
        "flips/x",
        "access/x",
        "sources/s.json",
    ]
    for key in (*going, *staying):
        storage.write(key, b'{"collection": "", "catalog": ""}')
        os.utime(storage.local(key), (old.timestamp(),) * 2)
    storage.write(f"parts/load/{TEMPORARY}young", b"")
    report = clean(collection, DEFAULT)
    assert [key for key in going if storage.exists(key)] == []
    assert [key for key in staying if not storage.exists(key)] == []
    assert storage.exists(f"parts/load/{TEMPORARY}young")
    assert (report.records.count, report.temporary.count) == (3, 7)
    assert report.records.bytes == 3 * len(b'{"collection": "", "catalog": ""}')


def test_flips_are_never_swept(tmp_path: Path) -> None:
    collection = Generations(tmp_path)
    for generation in range(4):
        collection.publish(generation)
    clean(collection, later=dt.timedelta(days=400), full=True)
    assert [flip.number for flip in collection.lake.newest_flips()] == [4, 3, 2, 1]
    assert collection.ailments() == []


def test_a_snapshot_that_is_about_to_be_published_is_left_alone(tmp_path: Path) -> None:
    collection = Generations(tmp_path)
    current = collection.publish(0)
    candidate = current.model_copy(update={"id": "f" * 32})
    collection.lake.write_snapshot(candidate)
    clean(collection, DEFAULT, full=True)
    assert collection.lake.has_snapshot(candidate.name)
    clean(collection, DEFAULT, later=dt.timedelta(minutes=16))
    assert not collection.lake.has_snapshot(candidate.name)
    assert collection.ailments() == []


def test_nothing_is_swept_while_a_retained_snapshot_cannot_be_read(tmp_path: Path) -> None:
    collection = Generations(tmp_path)
    names = [collection.publish(generation).name for generation in range(3)]
    path = collection.lake.storage.local(f"snapshots/{names[1]}.json")
    whole, before = path.read_bytes(), (collection.rows(), stores(collection.lake))
    path.write_text("{")
    with pytest.raises(GlossatorError, match="nobody knows what it needs"):
        clean(collection, full=True)
    path.write_bytes(whole)
    assert (collection.rows(), stores(collection.lake)) == before


def test_a_damaged_dropped_snapshot_goes_and_its_rows_are_found_by_the_full_comparison(tmp_path: Path) -> None:
    collection = Generations(tmp_path)
    names = [collection.publish(generation).name for generation in range(3)]
    collection.lake.storage.local(f"snapshots/{names[0]}.json").write_text("{")
    report = clean(collection)
    assert report.unreadable == (names[0],)
    assert report.rows.count == 0
    assert clean(collection, full=True).orphans.count == 4
    assert collection.rows() == collection.ids(names[1]) | collection.ids(names[2])


def test_a_lake_without_a_publish_is_left_as_it_is(tmp_path: Path) -> None:
    collection = Generations(tmp_path)
    collection.lake.storage.write("bm25/x/file", b"a run is under way")
    assert clean(collection, full=True) == SweepReport()
    assert collection.lake.storage.exists("bm25/x/file")


def test_two_lakes_on_one_server_leave_each_others_rows_alone(tmp_path: Path) -> None:
    from milvus_lite.adapter.grpc.server import start_server_in_thread

    server, database, port = start_server_in_thread(str(tmp_path / "server.db"), host="127.0.0.1", port=0)
    try:
        uri = f"milvus.uri=http://127.0.0.1:{port}"
        (tmp_path / "a").mkdir()
        (tmp_path / "b").mkdir()
        ours, theirs = Generations(tmp_path / "a", uri), Generations(tmp_path / "b", uri, "chunk.child_tokens=32")
        for generation in range(3):
            ours.publish(generation)
            theirs.publish(generation)
        rows = theirs.rows()
        assert clean(ours, full=True).collections.count == 0
        assert theirs.rows() == rows
        assert theirs.ailments() == ours.ailments() == []
        (tmp_path / "c").mkdir()
        third = Generations(tmp_path / "c", uri)
        with pytest.raises(PublishRefused, match="belongs to another lake"):
            third.publish(0)
    finally:
        server.stop(grace=0).wait()
        database.close()
