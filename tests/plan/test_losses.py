"""Nothing that is published gets lost because it cannot be read any more."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from flows.index import index
from flows.runner import PlainRunner
from schemas.errors import GlossatorError, PublishRefused
from tasks.plan.planner import PlanOptions
from tasks.plan.quarantine import read_quarantine
from tasks.plan.source import SourceGone
from tests.fixtures import closing_door, contents, lake_beside, make_corpus, plan_of, run

GOOD = {"good.md": "# Good\n\nA good page.\n", "other.md": "# Other\n\nAnother page.\n"}
BINARY = b"# Page\n\n" + bytes(range(1, 9)) * 20
MIGRATE = PlanOptions(migrate=True)


@pytest.fixture(autouse=True)
def _trusted_hints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a test are young; here their hints hold as if they were not."""
    monkeypatch.setattr("tasks.plan.listing.RACY_NS", -(10**12))


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    docs = make_corpus(tmp_path / "docs", GOOD)
    run(docs)
    return docs


def closed(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr("tasks.plan.source.os.open", closing_door(name))


@pytest.mark.parametrize("assignment", ["chunk.child_tokens=60", "bm25.stem=false"])
def test_a_stale_version_survives_a_migration_that_does_not_need_its_bytes(docs: Path, assignment: str) -> None:
    make_corpus(docs, GOOD | {"other.md": BINARY.decode("latin-1")})
    report = run(docs, assignment, options=MIGRATE)
    assert [failure.uri for failure in report.failed] == ["other.md"]
    assert contents(lake_beside(docs)).uris == set(GOOD)


def test_a_migration_that_would_lose_a_stale_version_is_refused(docs: Path) -> None:
    before = contents(lake_beside(docs))
    make_corpus(docs, GOOD | {"other.md": BINARY.decode("latin-1")})
    with pytest.raises(PublishRefused, match=r"other\.md.*1 published document\(s\)"):
        run(docs, "load.max_pages=7", options=MIGRATE)
    assert contents(lake_beside(docs)) == before
    make_corpus(docs, GOOD)
    assert run(docs, "load.max_pages=7", options=MIGRATE).failed == ()


def test_a_migration_that_would_lose_another_source_is_refused(docs: Path, tmp_path: Path) -> None:
    lake = lake_beside(docs)
    other = make_corpus(tmp_path / "other", {f"o{number}.md": f"# O {number}\n\nPage.\n" for number in range(3)})
    run(other, lake=lake)
    before = contents(lake)
    other.rename(tmp_path / "unmounted")
    with pytest.raises(SourceGone, match=r"source 'other' vanished.*is it mounted"):
        run(docs, "load.max_pages=7", options=MIGRATE)
    make_corpus(other, {"unrelated": ""})
    with pytest.raises(PublishRefused, match=r"3 published document\(s\)"):
        run(docs, "load.max_pages=7", options=MIGRATE)
    assert contents(lake) == before
    shutil.rmtree(other)
    (tmp_path / "unmounted").rename(other)
    report = run(docs, "load.max_pages=7", options=MIGRATE)
    assert (report.failed, contents(lake).uris) == ((), before.uris)
    assert read_quarantine(lake) == {}


def test_a_file_that_closes_after_it_was_listed_is_reported_and_tried_again(
    docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """llama_index#22638: a document that failed is skipped for ever."""
    make_corpus(docs, GOOD | {"new.md": "# New\n\nA new page.\n"})
    plan = plan_of(docs)
    with monkeypatch.context() as patch:
        closed(patch, "new.md")
        report = index(PlainRunner(), plan, PlanOptions(), "test")
    assert [failure.uri for failure in report.failed] == ["new.md"]
    assert len(read_quarantine(lake_beside(docs))) == 1
    report = run(docs)
    assert (report.failed, report.documents.added) == ((), 1)
    assert read_quarantine(lake_beside(docs)) == {}


def test_a_changed_file_that_closes_after_it_was_listed_stays_as_it_was(
    docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(lake_beside(docs))
    make_corpus(docs, GOOD | {"other.md": "# Other\n\nOther words.\n"})
    plan = plan_of(docs)
    with monkeypatch.context() as patch:
        closed(patch, "other.md")
        report = index(PlainRunner(), plan, PlanOptions(), "test")
    assert [failure.uri for failure in report.failed] == ["other.md"]
    assert contents(lake_beside(docs)) == before
    assert run(docs).documents.changed == 1


def test_a_file_that_vanishes_after_it_was_listed_is_gone(docs: Path) -> None:
    make_corpus(docs, GOOD | {"new.md": "# New\n\nA new page.\n", "more.md": "# More\n\nOne more.\n"})
    plan = plan_of(docs)
    (docs / "new.md").unlink()
    report = index(PlainRunner(), plan, PlanOptions(), "test")
    assert report.failed == ()
    assert contents(lake_beside(docs)).uris == {*GOOD, "more.md"}
    assert read_quarantine(lake_beside(docs)) == {}


def test_a_file_that_changes_after_it_was_listed_is_indexed_as_read(docs: Path) -> None:
    make_corpus(docs, GOOD | {"new.md": "# New\n\nFirst words.\n"})
    plan = plan_of(docs)
    (docs / "new.md").write_text("# New\n\nSecond words, a few more.\n")
    index(PlainRunner(), plan, PlanOptions(), "test")
    assert plan_of(docs).nothing_to_do
    assert contents(lake_beside(docs)).uris == {*GOOD, "new.md"}


def test_a_corpus_of_bad_files_alone_publishes_nothing(tmp_path: Path) -> None:
    docs = make_corpus(tmp_path / "docs", {"a.md": BINARY, "b.md": BINARY + b"\x01"})
    with pytest.raises(GlossatorError, match="no document of collection 'default' could be indexed"):
        run(docs)
    assert lake_beside(docs).current_flip() is None
    assert len(read_quarantine(lake_beside(docs))) == 2
    make_corpus(docs, {"a.md": "# A\n\nMended.\n", "b.md": BINARY})
    report = run(docs)
    assert (report.documents.added, [failure.uri for failure in report.failed]) == (1, ["b.md"])


def test_a_name_that_is_not_utf8_never_stands_for_a_document_that_is_spelled_as_it_is_shown(docs: Path) -> None:
    """`a\\xff.md` has a backslash in its name; another file has the byte, and its sidecar denies nothing to it."""
    (docs / "a\\xff.md").write_text("# Sandbank\n\nwords about the bank\n")
    run(docs)
    for name in (b"a\xff.md", b"a\xff.md.groups"):
        (docs / os.fsdecode(name)).write_bytes(b"\x00\xff")
    (docs / os.fsdecode(b"a\xff.md.groups")).write_text("hr")
    plan = plan_of(docs)
    assert plan.nothing_to_do and plan.failures == () and plan.restricted == 0
    (summary,) = plan.sources
    assert [name for name, _ in summary.unusable] == ["a\\xff.md", "a\\xff.md.groups"] and summary.denied == ()
