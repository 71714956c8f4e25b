"""Quarantine: what fails harms only itself, is seen, and is tried again when that may help."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path

import pytest

import tasks.chunk.step
import tasks.plan.stages
from schemas.documents import ChunkedDocument
from schemas.snapshot import Failure
from tasks.plan.planner import PlanOptions
from tasks.plan.quarantine import read_quarantine, record_failures, release, still_failing
from tests.fixtures import closing_door, contents, lake_beside, make_corpus, plan_of, run

GOOD = "# Good\n\nA good page.\n"
BINARY = b"# Page\n\n" + bytes(range(1, 9)) * 20
STAGES = {"load": "l1", "chunk": "c1"}
FAILED = Failure(
    doc_id="00", source="docs", uri="a.md", stage="load", kind="PermanentError", message="no", content_digest="d1"
)


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    return make_corpus(tmp_path / "docs", {"good.md": GOOD, "bad.md": "# Bad\n\nFirst version, readable.\n"})


def test_a_bad_file_harms_only_itself_and_is_named(docs: Path) -> None:
    """ragflow#2814: one bad item blocks the queue."""
    (docs / "bad.md").write_bytes(BINARY)
    report = run(docs)
    assert (report.documents.added, report.documents.failed) == (1, 1)
    assert [(failure.uri, failure.kind) for failure in report.failed] == [("bad.md", "PermanentError")]
    assert "binary" in report.failed[0].message
    assert contents(lake_beside(docs)).uris == {"good.md"}


def test_a_bad_version_leaves_the_last_good_one_serving(docs: Path) -> None:
    """llama_index#22639: old vectors are deleted before the new ones exist."""
    run(docs)
    before = contents(lake_beside(docs))
    (docs / "bad.md").write_bytes(BINARY)
    report = run(docs)
    assert [failure.uri for failure in report.failed] == ["bad.md"]
    assert contents(lake_beside(docs)) == before
    assert not report.published


def test_a_known_failure_is_still_reported_when_there_is_nothing_to_do(docs: Path) -> None:
    """Connapse#400: failed documents are invisible."""
    (docs / "bad.md").write_bytes(BINARY)
    run(docs)
    plan = plan_of(docs)
    assert plan.nothing_to_do
    assert [failure.uri for failure in plan.failures] == ["bad.md"]
    assert [failure.uri for failure in run(docs).failed] == ["bad.md"]


def test_a_mended_file_is_indexed(docs: Path) -> None:
    """llama_index#22638: the hash is stored before the work succeeded; a document that failed is skipped for ever."""
    (docs / "bad.md").write_bytes(BINARY)
    run(docs)
    (docs / "bad.md").write_text("# Mended\n\nNow it is readable.\n")
    report = run(docs)
    assert (report.documents.added, report.failed) == (1, ())
    assert contents(lake_beside(docs)).uris == {"bad.md", "good.md"}
    assert read_quarantine(lake_beside(docs)) == {}


def test_the_bytes_that_worked_before_work_again_and_cost_nothing(docs: Path) -> None:
    run(docs)
    good = (docs / "bad.md").read_bytes()
    (docs / "bad.md").write_bytes(BINARY)
    run(docs)
    (docs / "bad.md").write_bytes(good)
    report = run(docs)
    assert (report.failed, report.chunks_embedded) == ((), 0)
    assert read_quarantine(lake_beside(docs)) == {}


def test_a_deleted_failure_is_forgotten_and_its_last_version_goes(docs: Path) -> None:
    run(docs)
    (docs / "bad.md").write_bytes(BINARY)
    run(docs)
    (docs / "bad.md").unlink()
    report = run(docs)
    assert (report.documents.deleted, report.failed) == (1, ())
    assert contents(lake_beside(docs)).uris == {"good.md"}
    assert read_quarantine(lake_beside(docs)) == {}


def test_a_copy_of_a_bad_file_fails_by_itself(docs: Path) -> None:
    (docs / "bad.md").write_bytes(BINARY)
    run(docs)
    (docs / "copy.md").write_bytes(BINARY)
    report = run(docs)
    assert sorted(failure.uri for failure in report.failed) == ["bad.md", "copy.md"]
    assert contents(lake_beside(docs)).uris == {"good.md"}


def test_an_unreadable_file_is_tried_at_every_run(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(docs)
    before = contents(lake_beside(docs))
    os.utime(docs / "bad.md", ns=(10**18, 10**18))
    with monkeypatch.context() as closed:
        closed.setattr("tasks.plan.source.os.open", closing_door("bad.md"))
        report = run(docs)
        assert [(failure.uri, failure.kind) for failure in report.failed] == [("bad.md", "PermanentError")]
        assert contents(lake_beside(docs)) == before
    assert run(docs).failed == ()
    assert read_quarantine(lake_beside(docs)) == {}


def stumble(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make chunking fail on the document with the word "Bad"."""
    chunk = tasks.chunk.step.chunk_document

    def stumbling(text: str, *arguments: object) -> ChunkedDocument:
        if "Bad" in text:
            raise RecursionError("too deep")
        return chunk(text, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(tasks.chunk.step, "chunk_document", stumbling)


def test_a_document_that_cannot_be_chunked_is_tried_again_when_chunking_changes(
    docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        stumble(broken)
        report = run(docs)
    assert [(failure.uri, failure.stage) for failure in report.failed] == [("bad.md", "chunk")]
    assert contents(lake_beside(docs)).documents == {"good.md"}
    assert plan_of(docs).nothing_to_do
    monkeypatch.setattr(tasks.plan.stages, "CHUNKER_VERSION", 10_000)
    plan = plan_of(docs, options=PlanOptions(migrate=True))
    assert (plan.failures, plan.counts.added) == ((), 1)


def test_a_part_without_a_document_that_failed_is_not_taken_for_the_whole(
    docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        stumble(broken)
        run(docs)
    lake_beside(docs).storage.delete("state/failures.json")  # disposable
    report = run(docs)
    assert (report.failed, report.documents.added) == ((), 1)
    assert contents(lake_beside(docs)).uris == {"bad.md", "good.md"}


@pytest.mark.parametrize(
    ("failure", "content", "stages", "expected"),
    [
        (FAILED, "d1", STAGES, True),
        (FAILED, "d2", STAGES, False),
        (FAILED, "", STAGES, False),
        (FAILED, "d1", STAGES | {"load": "l2"}, False),
        (FAILED, "d1", STAGES | {"chunk": "c2"}, True),
        (FAILED.model_copy(update={"stage": "chunk"}), "d1", STAGES | {"chunk": "c2"}, False),
        (FAILED.model_copy(update={"stage": "chunk"}), "d1", STAGES | {"load": "l2"}, False),
        (FAILED.model_copy(update={"transient": True}), "d1", STAGES, False),
        (FAILED.model_copy(update={"content_digest": ""}), "", STAGES, False),
    ],
)
def test_a_failure_stands_for_these_bytes_and_the_stages_up_to_its_own(
    tmp_path: Path, failure: Failure, content: str, stages: dict[str, str], expected: bool
) -> None:
    lake = lake_beside(tmp_path / "docs")
    record_failures(lake, ["docs"], [failure], STAGES)  # type: ignore[arg-type]
    assert still_failing(read_quarantine(lake)["00"], content, stages) is expected  # type: ignore[arg-type]


def test_attempts_are_counted_and_other_sources_keep_their_failures(tmp_path: Path) -> None:
    lake = lake_beside(tmp_path / "docs")
    other = FAILED.model_copy(update={"doc_id": "01", "source": "other"})
    record_failures(lake, ["docs", "other"], [FAILED, other], STAGES)  # type: ignore[arg-type]
    again = FAILED.model_copy(update={"content_digest": "d2"})
    record_failures(lake, ["docs"], [again], STAGES)  # type: ignore[arg-type]
    items = read_quarantine(lake)
    assert (items["00"].attempts, items["00"].failure) == (2, again)
    assert (items["01"].attempts, items["01"].failure) == (1, other)
    record_failures(lake, ["docs"], [], STAGES)  # type: ignore[arg-type]
    assert set(read_quarantine(lake)) == {"01"}


def test_a_failure_that_a_new_loader_does_not_cure_is_not_tried_for_ever(
    docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (docs / "bad.md").write_bytes(BINARY)
    run(docs)
    monkeypatch.setattr(tasks.plan.stages, "LOADER_VERSION", 10_000)
    assert [failure.uri for failure in run(docs, options=PlanOptions(migrate=True)).failed] == ["bad.md"]
    assert read_quarantine(lake_beside(docs)).popitem()[1].attempts == 2
    assert plan_of(docs).nothing_to_do


# --- another try ------------------------------------------------------------------------------------------------------


def test_a_released_document_is_tried_again_and_stays_listed_until_then(
    docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = lake_beside(docs)
    with monkeypatch.context() as broken:
        stumble(broken)
        run(docs)
        (doc_id, item) = read_quarantine(lake).popitem()
        assert item.waits
        assert run(docs).documents.failed == 1
        assert read_quarantine(lake)[doc_id] == item, "it was not tried, and is not written as if it were"
        release(lake, [doc_id])
        assert not read_quarantine(lake)[doc_id].waits
        run(docs)
        tried = read_quarantine(lake)[doc_id]
        assert (tried.attempts, tried.waits, tried.since) == (2, True, item.since)
        assert item.tried is not None and tried.tried is not None and tried.tried > item.tried
    release(lake, [doc_id])
    report = run(docs)
    assert (report.failed, report.documents.added) == ((), 1)
    assert read_quarantine(lake) == {}


def test_what_cannot_be_read_counts_as_tried_by_each_run(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as closed:
        closed.setattr("tasks.plan.source.os.open", closing_door("bad.md"))
        for attempts in (1, 2, 3):
            run(docs)
            (item,) = read_quarantine(lake_beside(docs)).values()
            assert (item.attempts, item.waits) == (attempts, False)
    assert "PermissionError" in item.failure.traceback
    assert "source.py" in item.failure.traceback


def test_since_is_the_first_failure_and_tried_the_last(tmp_path: Path) -> None:
    lake = lake_beside(tmp_path / "docs")
    first, second = (dt.datetime(2026, 5, day, tzinfo=dt.UTC) for day in (1, 2))
    record_failures(lake, ["docs"], [FAILED], STAGES, first)  # type: ignore[arg-type]
    record_failures(lake, ["docs"], [FAILED], STAGES, second)  # type: ignore[arg-type]
    assert (read_quarantine(lake)["00"].since, read_quarantine(lake)["00"].tried) == (first, first)
    again = FAILED.model_copy(update={"content_digest": "d2"})
    record_failures(lake, ["docs"], [again], STAGES, second)  # type: ignore[arg-type]
    assert (read_quarantine(lake)["00"].since, read_quarantine(lake)["00"].tried) == (first, second)


def test_a_quarantine_without_times_is_read(tmp_path: Path) -> None:
    """As the first version wrote it."""
    lake = lake_beside(tmp_path / "docs")
    lake.write_json("state/failures.json", [{"failure": FAILED.model_dump(), "stage_digest": "x", "attempts": 3}])
    assert (read_quarantine(lake)["00"].attempts, read_quarantine(lake)["00"].since) == (3, None)


def test_a_failure_says_where_in_the_code_it_happened(docs: Path) -> None:
    (docs / "bad.md").write_bytes(BINARY)
    run(docs)
    (item,) = read_quarantine(lake_beside(docs)).values()
    assert item.failure.traceback.startswith("Traceback (most recent call last)")
    assert "markdown.py" in item.failure.traceback


@pytest.mark.parametrize("what", ["pipe", "dangling link", "link out"])
def test_a_good_document_that_turns_into_something_else_keeps_its_last_version(tmp_path: Path, what: str) -> None:
    docs = make_corpus(tmp_path / "docs", {"a.md": "# A\n\na\n", "b.md": "# B\n\nb\n"})
    run(docs)
    path = docs / "a.md"
    path.unlink()
    if what == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/nowhere" if what == "dangling link" else "/etc/hostname")
    report = run(docs)
    assert [failure.uri for failure in report.failed] == ["a.md"]
    assert report.documents.deleted == 0
    assert contents(lake_beside(docs)).documents == {"a.md", "b.md"}
    path.unlink()
    assert run(docs).documents.deleted == 1, "whoever deletes a document leaves nothing behind"
