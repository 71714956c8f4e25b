"""A source goes from the index as a whole, by a publish like any other: old or new, never a mix, and nothing redone."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.index import index
from flows.runner import PlainRunner
from query.opening import open_retriever
from schemas.errors import GlossatorError, PlanRefused
from schemas.report import IndexReport
from tasks.lake.lake import Lake
from tasks.plan.planner import PlanOptions, make_plan
from tasks.publish.history import rollback
from tests.fixtures import ailments, clean_build, contents, lake_beside, make_config, make_corpus, published, run

DOCS = {"a.md": "# Anchors\n\nAn anchor holds a ship.\n", "b.md": "# Buoys\n\nA buoy marks a channel.\n"}
MORE = {"m.md": "# Moorings\n\nA mooring holds a boat.\n", "copy.md": DOCS["a.md"]}


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """Two sources in one index."""
    docs = make_corpus(tmp_path / "docs", DOCS)
    run(docs)
    run(make_corpus(tmp_path / "more", MORE), lake=lake_beside(docs))
    return docs


def remove(lake: Lake, name: str, allow_deletes: int = 2) -> IndexReport:
    options = PlanOptions(allow_deletes=allow_deletes, without=(name,))
    return index(PlainRunner(), make_plan(lake, make_config(), [], options), options, "removal")


def test_what_is_left_is_what_a_clean_build_of_the_others_gives(docs: Path) -> None:
    lake = lake_beside(docs)
    report = remove(lake, "more")
    assert (report.documents.deleted, report.documents.unchanged, report.chunks_embedded) == (2, 2, 0)
    assert contents(lake) == clean_build(docs)
    assert ailments(docs) == {}


def test_the_other_sources_need_not_be_there(docs: Path) -> None:
    lake = lake_beside(docs)
    docs.rename(docs.with_name("unmounted"))
    docs.with_name("more").rename(docs.with_name("unmounted-too"))
    remove(lake, "more")
    assert contents(lake).documents == set(DOCS)


def test_documents_that_nobody_counted_stay(docs: Path) -> None:
    lake = lake_beside(docs)
    before = published(lake)
    with pytest.raises(PlanRefused, match=r"2 document\(s\) of source 'more'.*--allow-deletes 2"):
        remove(lake, "more", allow_deletes=1)
    assert published(lake) == before


def test_a_hold_holds_it(docs: Path) -> None:
    lake = lake_beside(docs)
    rollback(lake, None, author="me", reason="wrong", milvus=make_config().milvus)
    with pytest.raises(PlanRefused, match="held"):
        remove(lake, "docs")


def test_the_last_source_leaves_an_index_that_finds_nothing_and_can_be_filled_again(docs: Path) -> None:
    lake = lake_beside(docs)
    remove(lake, "more")
    remove(lake, "docs")
    assert contents(lake).documents == frozenset()
    assert published(lake).counts.documents == 0
    assert ailments(docs) == {}
    retriever = open_retriever(lake, make_config())
    for mode in ("hybrid", "dense", "bm25"):
        assert retriever.search("anchor", 5, mode).hits == ()
    retriever.close()
    assert run(docs).documents.added == 2
    assert contents(lake) == clean_build(docs)


def test_an_index_still_does_not_become_empty_by_itself(tmp_path: Path) -> None:
    docs = make_corpus(tmp_path / "docs", {"a.md": b"\x00\x01\x02\x03" * 50})
    with pytest.raises(GlossatorError, match="could be indexed"):
        run(docs)
