"""The guard counts per source as well as in all, and a plan that is only looked at names every document."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from schemas.errors import PlanRefused
from schemas.plan import NamedChange
from tasks.plan.guard import refuse_deletions
from tasks.plan.planner import PlanOptions
from tests.fixtures import contents, lake_beside, make_corpus, plan_of, run

LOOK = PlanOptions(dry_run=True)


def pages(count: int, *, first: int = 0) -> dict[str, str]:
    return {
        f"p{number:02}.md": f"# Page {number}\n\nText of page {number}.\n" for number in range(first, first + count)
    }


def rows(**counts: int) -> pl.DataFrame:
    names = [name for name, count in counts.items() for _ in range(count)]
    return pl.DataFrame({"source": names}, schema={"source": pl.String})


@pytest.mark.parametrize(
    ("deleted", "published", "allowed", "refusal"),
    [
        ({"a": 11}, {"a": 30}, 0, "11 of 30 documents of source 'a' are gone"),
        ({"a": 11}, {"a": 30, "b": 900}, 0, "11 of 30 documents of source 'a' are gone"),
        ({"a": 11}, {"a": 30, "b": 900}, 10, "11 of 30 documents of source 'a' are gone"),
        ({"a": 11}, {"a": 30, "b": 900}, 11, None),
        ({"a": 10}, {"a": 10, "b": 900}, 0, None),
        ({"a": 11}, {"a": 110}, 0, None),
        ({"a": 12}, {"a": 110}, 0, "12 of 110 documents of source 'a' are gone"),
        ({"a": 11, "b": 12}, {"a": 20, "b": 20}, 12, "source 'a' are gone; 12 of 20 documents of source 'b'"),
        ({"a": 11, "b": 12}, {"a": 20, "b": 20}, 23, None),
        ({"a": 6, "b": 6}, {"a": 20, "b": 20}, 0, "12 of 40 documents are gone from their sources"),
        ({}, {"a": 3}, 0, None),
    ],
)
def test_more_than_ten_and_a_tenth_of_a_source_or_of_all_need_their_number(
    deleted: dict[str, int], published: dict[str, int], allowed: int, refusal: str | None
) -> None:
    found = refuse_deletions(rows(**deleted), rows(**published), allowed)
    if refusal is None:
        assert found is None
    else:
        assert found is not None
        assert refusal in found.what
        assert f"--allow-deletes {sum(deleted.values())}" in found.message


def test_a_source_that_goes_as_a_whole_always_needs_its_number() -> None:
    found = refuse_deletions(rows(a=2), rows(a=2, b=90), 1, ["a"])
    assert found is not None
    assert "2 document(s) of source 'a' would go" in found.what
    assert refuse_deletions(rows(a=2), rows(a=2, b=90), 2, ["a"]) is None


def test_half_of_a_small_source_does_not_hide_behind_a_large_one(tmp_path: Path) -> None:
    large = make_corpus(tmp_path / "large", pages(115))
    run(large)
    lake = lake_beside(large)
    small = make_corpus(tmp_path / "small", pages(12, first=200))
    run(small, lake=lake)
    before = contents(lake)
    make_corpus(small, pages(1, first=200))
    assert 11 < 0.1 * 127, "not a tenth of the whole"
    with pytest.raises(PlanRefused, match="11 of 12 documents of source 'small' are gone.*--allow-deletes 11"):
        run(small, lake=lake)
    assert contents(lake) == before
    assert run(small, lake=lake, options=PlanOptions(allow_deletes=11)).documents.deleted == 11


def test_a_plan_to_look_at_names_every_document_that_changes_and_says_what_would_be_refused(tmp_path: Path) -> None:
    docs = make_corpus(tmp_path / "docs", pages(15))
    run(docs)
    files = {"p00.md": pages(1)["p00.md"], "p01.md": "# Other\n\nwords\n", "new.md": "# New\n\npage\n"}
    files |= {"moved.md": pages(3)["p02.md"], "copy.md": files["p00.md"]}
    make_corpus(docs, files)
    plan = plan_of(docs, options=LOOK)
    gone = [f"p{number:02}.md" for number in range(3, 15)]
    assert plan.changes == (
        NamedChange(change="added", source="docs", uri="copy.md"),
        NamedChange(change="added", source="docs", uri="new.md"),
        NamedChange(change="changed", source="docs", uri="p01.md"),
        NamedChange(change="renamed", source="docs", uri="moved.md", was="p02.md"),
        *(NamedChange(change="deleted", source="docs", uri=uri) for uri in gone),
    )
    assert "12 of 15 documents of source 'docs' are gone" in plan.refused
    assert (plan.summary().changes, plan.summary().refused) == (plan.changes, plan.refused)
    allowed = plan_of(docs, options=PlanOptions(dry_run=True, allow_deletes=12))
    assert (allowed.refused, len(allowed.changes)) == ("", 16)
    assert plan_of(docs, options=PlanOptions(allow_deletes=12)).changes == (), "a run has no use for the names"
