"""Going back: wholly, at once, to what is retained; and nobody publishes until somebody resumes."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
from pathlib import Path

import pytest

from schemas.errors import PlanRefused, PublishRefused, TransientError, UsageError
from schemas.snapshot import Flip
from tasks.plan.planner import PlanOptions, make_plan
from tasks.plan.registry import list_sources
from tasks.publish.candidate import flip as publish_flip
from tasks.publish.history import list_snapshots, resolve, resume, rollback
from tasks.publish.pins import create_pin, read_pins, remove_pin
from tasks.publish.pointer import available
from tasks.publish.sweep import sweep
from tests.generations import AT_ONCE, Generations, generations

ROOT = Path(__file__).parents[2]


@pytest.fixture
def three(tmp_path: Path) -> tuple[Generations, list[str]]:
    """Three generations, published one after the other, all of them retained."""
    collection = Generations(tmp_path)
    names = [collection.publish(0).name]
    create_pin(collection.lake, names[0], author="ann", reason="first")
    names += [collection.publish(generation).name for generation in (1, 2)]
    return collection, names


def go_back(collection: Generations, to: str | None = None, reason: str = "bad documents") -> Flip:
    return rollback(collection.lake, to, author="ann", reason=reason, milvus=collection.config.milvus)


def test_a_flip_records_what_is_retained(three: tuple[Generations, list[str]]) -> None:
    collection, names = three
    assert collection.flip().retained == (names[2], names[1], names[0])
    assert available(collection.lake) == [names[2], names[1], names[0]]


def test_a_rollback_shows_readers_the_old_index_wholly(three: tuple[Generations, list[str]]) -> None:
    collection, names = three
    before = collection.search(name=names[1])
    assert generations(collection.search()) == {2}
    flip = go_back(collection)
    assert (flip.number, flip.snapshot, flip.hold, flip.author) == (4, names[1], True, "ann")
    after = collection.search()
    # Vectors, BM25, passages and catalog: the same hits, scores on both sides, and words.
    assert after.hits == before.hits
    assert generations(after) == {1}
    assert len(after.hits) == 5
    assert all(hit.dense for hit in after.hits)
    assert any(hit.bm25 for hit in after.hits)
    assert collection.ailments() == []


def test_a_hold_refuses_a_plan_and_says_who_and_why(three: tuple[Generations, list[str]]) -> None:
    collection, names = three
    go_back(collection, reason="prices are wrong")
    with pytest.raises(PlanRefused, match=r"held since .* UTC by ann: prices are wrong -> glossator resume"):
        collection.publish(3)
    assert collection.current().name == names[1]


def test_a_plan_may_be_looked_at_during_a_hold_but_not_published(three: tuple[Generations, list[str]]) -> None:
    collection, names = three
    go_back(collection)
    plan = make_plan(collection.lake, collection.config, list_sources(collection.lake), PlanOptions(dry_run=True))
    assert plan.counts.changed == 4
    assert "held since" in plan.summary().held
    snapshot = collection.lake.read_snapshot(names[2])
    with pytest.raises(PublishRefused, match="held since"):
        publish_flip(collection.lake, plan, snapshot, author="bob", reason="sneaks in")
    assert collection.flip().number == 4


def test_a_publisher_that_planned_before_the_hold_fails(three: tuple[Generations, list[str]]) -> None:
    collection, names = three
    collection.write(3)
    plan = make_plan(collection.lake, collection.config, list_sources(collection.lake))
    go_back(collection)
    resume(collection.lake, author="ann", reason="")
    with pytest.raises(TransientError, match="flip 4"):
        publish_flip(collection.lake, plan, collection.lake.read_snapshot(names[2]), author="bob", reason="late")
    assert collection.flip().number == 5
    assert collection.current().name == names[1]


def test_resume_releases_and_the_next_run_publishes(three: tuple[Generations, list[str]]) -> None:
    collection, names = three
    go_back(collection)
    flip = resume(collection.lake, author="bob", reason="repaired")
    assert (flip.snapshot, flip.hold, flip.reason) == (names[1], False, "repaired")
    assert generations(collection.search()) == {1}
    collection.publish(7)
    assert generations(collection.search()) == {7}
    assert collection.ailments() == []


def test_resume_without_a_hold_is_a_mistake(three: tuple[Generations, list[str]]) -> None:
    with pytest.raises(UsageError, match="not held"):
        resume(three[0].lake, author="ann", reason="")


def test_a_second_rollback_goes_further_back_not_forward(three: tuple[Generations, list[str]]) -> None:
    collection, names = three
    assert go_back(collection).snapshot == names[1]
    assert go_back(collection).snapshot == names[0]
    with pytest.raises(UsageError, match=f"no snapshot before {names[0][:12]} is kept") as refusal:
        go_back(collection)
    assert f"kept: {names[1][:12]}, {names[2][:12]}" in str(refusal.value)
    assert go_back(collection, names[2]).snapshot == names[2], "and forward again by name"
    assert generations(collection.search()) == {2}


def test_previous_after_a_resume_and_a_publish_is_what_readers_had_before(
    three: tuple[Generations, list[str]],
) -> None:
    collection, names = three
    go_back(collection)
    resume(collection.lake, author="ann", reason="")
    collection.publish(5)
    assert resolve(collection.lake, "previous") == names[1]


def test_what_is_not_retained_is_refused_with_what_is(tmp_path: Path) -> None:
    collection = Generations(tmp_path)
    names = [collection.publish(generation).name for generation in range(4)]
    for to in (names[0], "#1"):
        with pytest.raises(PublishRefused, match="was dropped") as refusal:
            go_back(collection, to)
        assert names[2][:12] in str(refusal.value)
        assert names[3][:12] not in str(refusal.value), "the current one is no way back"
    sweep(collection.lake, collection.config.milvus, lambda: True, policy=AT_ONCE)
    with pytest.raises(UsageError, match="was swept"):
        go_back(collection, "#1")
    with pytest.raises(UsageError, match="begins with"):
        go_back(collection, names[0])
    assert collection.current().name == names[3]


@pytest.mark.parametrize("what", ["catalog", "bm25", "passages", "milvus.db/collections", "snapshot"])
def test_a_snapshot_of_which_something_is_gone_is_refused(three: tuple[Generations, list[str]], what: str) -> None:
    collection, names = three
    snapshot = collection.lake.read_snapshot(names[1])
    key = {
        "catalog": f"catalog/{snapshot.catalog}/chunks.arrow",
        "bm25": f"bm25/{snapshot.bm25}/manifest.json",
        "passages": f"passages/{snapshot.parts['passages'][0].key}/vectors.npy",
        "milvus.db/collections": f"milvus.db/collections/{snapshot.vectors.collection}",
        "snapshot": f"snapshots/{names[1]}.json",
    }[what]
    path = collection.lake.storage.local(key)
    if what == "snapshot":
        path.write_text("{")
    else:
        path.rename(path.with_name("lost"))
    with pytest.raises(PublishRefused, match="cannot be served") as refusal:
        go_back(collection, names[1])
    assert names[0][:12] in str(refusal.value)
    assert collection.flip().number == 3


def test_the_current_snapshot_is_no_way_back(three: tuple[Generations, list[str]]) -> None:
    with pytest.raises(UsageError, match="current already"):
        go_back(three[0], "current")


def test_a_damaged_current_snapshot_does_not_hinder_a_rollback(three: tuple[Generations, list[str]]) -> None:
    collection, names = three
    collection.lake.storage.local(f"snapshots/{names[2]}.json").write_text("{")
    flip = go_back(collection)
    assert flip.snapshot == names[1]
    assert names[2] in flip.retained, "a restored file can serve again"


def test_an_empty_collection_has_no_history(tmp_path: Path) -> None:
    collection = Generations(tmp_path)
    assert list_snapshots(collection.lake) == []
    with pytest.raises(UsageError, match="is empty"):
        go_back(collection)


def test_snapshots_are_listed_with_all_that_is_known(three: tuple[Generations, list[str]]) -> None:
    collection, names = three
    go_back(collection)
    entries = list_snapshots(collection.lake)
    assert [entry.name for entry in entries] == [names[1], names[2], names[0]]
    assert [entry.flips for entry in entries] == [(2, 4), (3,), (1,)]
    assert [entry.current for entry in entries] == [True, False, False]
    assert all(entry.retained for entry in entries)
    assert [entry.pinned.reason if entry.pinned else None for entry in entries] == [None, None, "first"]
    assert {(entry.documents, entry.chunks) for entry in entries} == {(5, 5)}


def test_a_person_may_name_a_snapshot_in_many_ways(three: tuple[Generations, list[str]]) -> None:
    collection, names = three
    lake = collection.lake
    assert resolve(lake, names[0][:8]) == names[0]
    assert resolve(lake, names[0]) == names[0]
    assert resolve(lake, "#2") == resolve(lake, "@2") == names[1]
    assert resolve(lake, "current") == names[2]
    assert resolve(lake, "previous") == names[1]
    for wrong, why in (("zzz", "begins with"), ("", "begins with"), ("#9", "no flip 9"), ("#", "begins with")):
        with pytest.raises(UsageError, match=why):
            resolve(lake, wrong)


def test_an_ambiguous_beginning_is_refused(three: tuple[Generations, list[str]]) -> None:
    lake = three[0].lake
    lake.storage.write(f"snapshots/{three[1][0][:30]}zz.json", b"{}")
    with pytest.raises(UsageError, match="several"):
        resolve(lake, three[1][0][:20])


def test_pins_are_kept_by_name_and_replaced(three: tuple[Generations, list[str]]) -> None:
    collection, names = three
    create_pin(collection.lake, names[0], author="bob", reason="audit", now=dt.datetime(2025, 1, 1, tzinfo=dt.UTC))
    assert read_pins(collection.lake)[names[0]].author == "bob"
    remove_pin(collection.lake, names[0])
    assert read_pins(collection.lake) == {}
    with pytest.raises(UsageError, match="not pinned"):
        remove_pin(collection.lake, names[0])
    collection.publish(3)
    with pytest.raises(PublishRefused, match="was dropped"):
        create_pin(collection.lake, names[0], author="bob", reason="too late")


def test_a_rollback_loads_neither_a_model_nor_prefect_nor_a_store(three: tuple[Generations, list[str]]) -> None:
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from schemas.config import MilvusConfig\n"
        "from tasks.lake.lake import Lake\n"
        "import glossator\n"
        "from tasks.publish.history import rollback\n"
        f"lake = Lake(Path({str(three[0].lake.root)!r}), 'default')\n"
        "rollback(lake, None, author='', reason='', milvus=MilvusConfig())\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=dict(os.environ), capture_output=True, check=True, text=True
    )
    loaded = set(done.stdout.split())
    assert "tasks" in loaded
    assert not loaded & {"prefect", "torch", "sentence_transformers", "pymilvus", "milvus_lite", "bm25s"}
    assert three[0].flip().hold
