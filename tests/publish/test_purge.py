"""A purged document is nowhere: not in what is published, nor in what was, nor in what never was; however often the
purge was cut off."""

from __future__ import annotations

import datetime as dt
import os
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import tasks.publish.purge
from flows.index import build
from flows.runner import PlainRunner
from query.snapshot_reader import SnapshotReader
from schemas.errors import GlossatorError, TransientError
from schemas.snapshot import Flip
from tasks.lake.access import Tombstone, bury, read_tombstones, unbury
from tasks.lake.lake import Lake, part_path
from tasks.plan.planner import workspace
from tasks.plan.quarantine import read_quarantine
from tasks.publish.doctor import examine
from tasks.publish.history import resolve
from tasks.publish.pins import create_pin, read_pins, remove_pin
from tests.fixtures import (
    ailments,
    contents,
    lake_beside,
    made_cleanly,
    make_config,
    make_corpus,
    plan_of,
    published,
    run,
    store_of,
)
from tests.purging import MARKER, OTHERS, SECRET, erase, holding, stone

TOMBSTONE = ["access/tombstones.json", "copies/access/tombstones.json"]


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """Three snapshots: without the secret, with it, and with more of it."""
    docs = make_corpus(tmp_path / "docs", OTHERS)
    run(docs)
    make_corpus(docs, OTHERS | {"secret.md": SECRET})
    run(docs)
    make_corpus(
        docs, OTHERS | {"secret.md": f"{SECRET}\n## New\n\nAnd zyxquokka it stays.\n", "o1.md": "# New\n\nnew\n"}
    )
    run(docs)
    return docs


def test_it_is_everywhere_before(docs: Path) -> None:
    places = {name.partition("/")[0] + "/" + name.split("/")[1] for name in holding(lake_beside(docs))}
    assert {"parts/load", "parts/contextualize", "parts/tokens"} <= places
    assert {name.partition("/")[0] for name in places} == {"parts", "passages", "bm25"}


def test_nothing_of_it_is_left_and_all_else_is_as_a_clean_build_would_have_it(docs: Path) -> None:
    lake = lake_beside(docs)
    before = lake.snapshot_names()
    report = erase(lake)
    assert holding(lake) == []
    assert (len(report.rebuilt), report.dropped, report.flip, report.rows) == (2, (), 4, 3)
    assert report.searched > 10 and report.lines == 3
    assert ailments(docs) == {}
    (docs / "secret.md").unlink()
    assert published(lake).id == made_cleanly(docs).id
    assert plan_of(docs).nothing_to_do
    flip = lake.current_flip()
    assert flip is not None
    assert set(flip.retained) == set(lake.snapshot_names())
    assert len(before) == len(flip.retained) + 1, "without the secret, the first and the second are one"


def test_every_snapshot_that_is_retained_can_be_gone_back_to(docs: Path) -> None:
    lake = lake_beside(docs)
    erase(lake)
    for name in lake.snapshot_names():
        snapshot = lake.read_snapshot(name)
        assert [finding for finding in examine(workspace(lake, make_config()), lake, snapshot) if not finding.ok] == []
        reader = SnapshotReader(lake, name)
        assert "secret.md" not in reader.documents().column("uri").to_pylist()
        assert all(MARKER.decode() not in reader.passage(row).text for row in range(reader.size))


def test_vectors_of_it_are_gone_and_those_of_others_stay(docs: Path) -> None:
    lake = lake_beside(docs)
    with closing(store_of(lake)) as store:
        ids = set(store.ids())
        assert store.count_document(stone().doc_id) == 3
    erase(lake)
    with closing(store_of(lake)) as store:
        assert store.count_document(stone().doc_id) == 0
        assert len(ids) - len(set(store.ids())) == 3
    assert contents(lake).unstored == frozenset()


def test_a_run_does_not_bring_it_back_until_it_is_let_in_again(docs: Path) -> None:
    lake = lake_beside(docs)
    erase(lake)
    plan = plan_of(docs)
    assert plan.nothing_to_do
    assert plan.sources[0].unusable == (("secret.md", "purged on 2025-01-02 by me"),)
    make_corpus(docs, OTHERS | {"secret.md": f"{SECRET}\nChanged: zyxquokka.\n"})
    run(docs)
    assert "secret.md" not in contents(lake).documents and holding(lake) == []
    unbury(lake, stone().doc_id)
    report = run(docs)
    assert report.documents.added == 1 and report.chunks_embedded > 0
    assert "secret.md" in contents(lake).documents and contents(lake).unstored == frozenset()
    assert ailments(docs) == {}


@pytest.mark.parametrize("deletions", [0, 1, 2, 4, 7, 11, 16, 22])
def test_a_purge_that_was_cut_off_is_finished_by_the_next(docs: Path, deletions: int) -> None:
    lake = lake_beside(docs)
    left = [deletions]

    def still_ours() -> bool:
        left[0] -= 1
        return left[0] >= 0

    with pytest.raises(TransientError, match="same purge again"):
        erase(lake, still_ours=still_ours)
    reader = SnapshotReader(lake, published(lake).name)
    hidden = reader.visibility.of(None).chunks
    assert all(MARKER.decode() not in reader.passage(row).text for row in range(reader.size) if hidden[row])
    erase(lake)
    assert holding(lake) == []
    assert ailments(docs) == {}
    (docs / "secret.md").unlink()
    assert published(lake).id == made_cleanly(docs).id
    assert erase(lake).files == 0


def test_a_purge_that_goes_on_writes_no_part_twice(docs: Path) -> None:
    lake = lake_beside(docs)
    flip = lake.current_flip()
    assert flip is not None
    left = iter(flip.retained[1:])
    with pytest.raises(TransientError):  # Asked before each snapshot is written; its parts are made by then.
        erase(lake, still_ours=lambda: next(left, None) is not None)
    made = {path: path.stat().st_ino for path in (lake.root / "default" / "parts").glob("*/*.parquet")}
    erase(lake)
    stayed = {path for path, inode in made.items() if path.exists() and path.stat().st_ino == inode}
    assert stayed == {path for path in made if path.exists()}
    named = {ref.key for stage, refs in published(lake).parts.items() if stage != "passages" for ref in refs}
    assert named <= {path.stem for path in stayed}


def test_a_run_may_come_between_two_halves_of_a_purge(docs: Path) -> None:
    lake = lake_beside(docs)
    bury(lake, stone())
    assert run(docs).documents.deleted == 1
    erase(lake)
    assert holding(lake) == []
    assert ailments(docs) == {}


def test_what_was_never_published_is_erased_too(tmp_path: Path) -> None:
    docs = make_corpus(tmp_path / "docs", OTHERS)
    run(docs)
    make_corpus(docs, OTHERS | {"secret.md": SECRET})
    build(PlainRunner(), plan_of(docs))
    lake = lake_beside(docs)
    assert holding(lake) != []
    (lake.root / "default/parts/load/.tmp-0123").write_bytes(b"zyxquokka")
    os.utime(lake.root / "default/parts/load/.tmp-0123", (10**9, 10**9))
    report = erase(lake)
    assert holding(lake) == []
    assert report.flip is None
    assert ailments(docs) == {}


def test_why_it_could_not_be_indexed_is_forgotten(tmp_path: Path) -> None:
    docs = make_corpus(tmp_path / "docs", OTHERS | {"secret.md": "---\ngroups: {a: b}\n---\n# zyxquokka\n"})
    lake = lake_beside(docs)
    assert [failure.uri for failure in run(docs).failed] == ["secret.md"]
    assert holding(lake, b"secret.md") != []
    erase(lake)
    assert read_quarantine(lake) == {}
    assert holding(lake, b"secret.md") == TOMBSTONE
    assert holding(lake, stone().doc_id.encode()) == TOMBSTONE
    assert ailments(docs) == {} and plan_of(docs).nothing_to_do


def test_its_name_is_left_with_the_tombstone_only(tmp_path: Path) -> None:
    uri = "a-name-that-is-longer-than-a-cell-zyxquokka.md"
    many = {f"a-name-that-is-longer-than-a-cell-{number}.md": f"# {number}\n\nText {number}.\n" for number in range(60)}
    docs = make_corpus(tmp_path / "docs", many | {uri: "# A\n\nThe words of it are few.\n"})
    run(docs)
    lake = lake_beside(docs)
    erase(lake, uri)
    assert [name for name in holding(lake) if not name.startswith("milvus.db")] == TOMBSTONE


def test_a_copy_is_another_document(docs: Path) -> None:
    make_corpus(docs, OTHERS | {"secret.md": SECRET, "copy.md": SECRET})
    run(docs)
    lake = lake_beside(docs)
    before = contents(lake)
    report = erase(lake)
    after = contents(lake)
    assert after.documents == before.documents - {"secret.md"}
    assert after.chunks == {name: uri for name, uri in before.chunks.items() if uri != "secret.md"}
    assert report.lines < 3
    assert ailments(docs) == {}
    erase(lake, "copy.md")
    assert holding(lake) == []


def test_the_last_document_may_go(tmp_path: Path) -> None:
    docs = make_corpus(tmp_path / "docs", {"secret.md": SECRET})
    run(docs)
    lake = lake_beside(docs)
    erase(lake)
    assert holding(lake) == []
    assert published(lake).counts.documents == 0
    assert SnapshotReader(lake, published(lake).name).size == 0
    assert plan_of(docs).nothing_to_do
    make_corpus(docs, {"secret.md": SECRET, "new.md": "# New\n\nWords.\n"})
    assert run(docs).documents.added == 1
    assert ailments(docs) == {}


def test_a_hold_stays_and_what_is_retained_is_recorded(docs: Path) -> None:
    lake = lake_beside(docs)
    flip = lake.current_flip()
    assert flip is not None
    names = lake.snapshot_names()
    held = Flip(
        number=4,
        snapshot=flip.snapshot,
        author="a",
        reason="r",
        created=flip.created,
        retained=tuple(names[:2]),
        hold=True,
    )
    lake.create_flip(held)
    erase(lake)
    now = lake.current_flip()
    assert now is not None and (now.number, now.hold) == (5, True)
    assert set(now.retained) <= set(lake.snapshot_names())
    assert holding(lake) == []


def test_a_pin_goes_over_to_the_snapshot_that_was_made_anew(docs: Path) -> None:
    lake = lake_beside(docs)
    flip = lake.current_flip()
    assert flip is not None
    (older,) = set(flip.retained) - {flip.snapshot}
    create_pin(lake, older, author="a", reason="audit")
    report = erase(lake)
    (pin,) = read_pins(lake).values()
    assert pin.snapshot in report.rebuilt
    assert (pin.author, pin.reason) == ("a", "audit")
    assert holding(lake) == []


def test_a_run_that_goes_on_after_a_purge_leaves_nothing_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The document was never published, so that the purge moved no pointer and the run was not overtaken by it."""
    docs = make_corpus(tmp_path / "docs", OTHERS)
    run(docs)
    lake = lake_beside(docs)
    make_corpus(docs, OTHERS | {"secret.md": SECRET})
    write = Lake.write_part

    def purge_first(self: Lake, ref: Any, table: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(Lake, "write_part", write)
            if ref.stage == "contextualize" and stone().doc_id not in read_tombstones(lake):
                erase(lake)
        return write(self, ref, table)

    monkeypatch.setattr(Lake, "write_part", purge_first)
    report = run(docs)
    assert stone().doc_id in read_tombstones(lake)
    assert holding(lake) == []
    assert not report.published or report.documents.added == 0
    (docs / "secret.md").unlink()
    assert published(lake).id == made_cleanly(docs).id
    assert ailments(docs) == {}


def test_the_first_publish_after_a_purge_keeps_the_days_and_the_way_back(docs: Path) -> None:
    lake = lake_beside(docs)
    for age, name in enumerate(reversed(lake.current_flip().retained)):  # type: ignore[union-attr]
        snapshot = lake.read_snapshot(name)
        lake.write_snapshot(snapshot.model_copy(update={"created": snapshot.created - dt.timedelta(days=2 - age)}))
    erase(lake)
    made_anew = set(lake.current_flip().retained)  # type: ignore[union-attr]
    assert len(made_anew) == 2
    assert resolve(lake, "previous") in made_anew
    make_corpus(docs, {"new.md": "# New\n\nWords.\n"})
    run(docs)
    assert made_anew <= set(lake.current_flip().retained)  # type: ignore[union-attr]


def test_a_passing_error_drops_no_snapshot(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = lake_beside(docs)
    before = set(lake.snapshot_names())

    def full(*arguments: object) -> None:
        raise TransientError("the disk is full")

    with monkeypatch.context() as patch, pytest.raises(TransientError, match="the disk is full"):
        patch.setattr(tasks.publish.purge, "without", full)
        erase(lake)
    assert before <= set(lake.snapshot_names())
    assert erase(lake).dropped == ()
    assert holding(lake) == []


def test_a_pinned_snapshot_that_cannot_be_made_anew_is_not_dropped_unasked(docs: Path) -> None:
    lake = lake_beside(docs)
    flip = lake.current_flip()
    assert flip is not None
    (older,) = set(flip.retained) - {flip.snapshot}
    create_pin(lake, older, author="a", reason="audit")
    snapshot = lake.read_snapshot(older)
    lake.storage.delete(part_path("chunk", snapshot.parts["chunk"][0].key))
    with pytest.raises(GlossatorError, match=f"glossator unpin {older}"):
        erase(lake)
    remove_pin(lake, older)
    assert erase(lake).dropped == (older,)
    assert holding(lake) == []


def test_snapshots_of_another_model_are_made_anew_as_they_were(docs: Path, tmp_path: Path) -> None:
    from tasks.plan.planner import PlanOptions

    run(docs, "embed.model=hash:64", "chunk.child_tokens=60", options=PlanOptions(migrate=True))
    lake = lake_beside(docs)
    erase(lake)
    assert holding(lake) == []
    models = {lake.read_snapshot(name).vectors.model for name in lake.snapshot_names()}
    assert models == {"hash:64", "hash:384"}
    for name in lake.snapshot_names():
        reader = SnapshotReader(lake, name)
        assert reader.bm25.size == reader.size > 0


def test_a_write_that_ends_after_the_purge_is_found_out(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tasks.publish.purge as module

    lake = lake_beside(docs)
    late = next(
        path
        for path in (lake.root / "default/parts/load").iterdir()
        if MARKER in str(pq.read_table(path).to_pylist()).encode()
    )
    copy = shutil.copy(late, docs.parent / "late")
    forget = module._forget

    def slow(lake: Lake, stone: Tombstone) -> None:
        forget(lake, stone)
        shutil.copy(copy, late)

    monkeypatch.setattr(module, "_forget", slow)
    with pytest.raises(GlossatorError, match="purge again"):
        erase(lake)
    monkeypatch.undo()
    erase(lake)
    assert holding(lake) == []
