"""The change set: what each document is, compared with what is published."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import pytest

from schemas.identity import document_id
from schemas.snapshot import Failure
from tasks.plan.changes import ChangeSet, compare

Corpus = Mapping[str, str]


def published(docs: Corpus, **others: Corpus) -> pl.DataFrame:
    rows = [
        (document_id(source, uri), source, uri, digest)
        for source, corpus in {"docs": docs, **others}.items()
        for uri, digest in corpus.items()
    ]
    names = ["doc_id", "source", "uri", "content_digest"]
    return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")


def changes(before: Corpus, after: Corpus, failing: Corpus | None = None, **others: Corpus) -> ChangeSet:
    listed = pl.DataFrame(
        {"uri": list(after), "content_digest": list(after.values())},
        schema={"uri": pl.String, "content_digest": pl.String},
    )
    failures = {
        uri: Failure(
            doc_id=document_id("docs", uri),
            source="docs",
            uri=uri,
            stage="load",
            kind="PermanentError",
            message=message,
        )
        for uri, message in (failing or {}).items()
    }
    return compare("docs", listed, failures, published(before, **others))


def actions(found: ChangeSet) -> dict[str, str]:
    return dict(found.target.select("uri", "action").iter_rows())


def donors(found: ChangeSet) -> dict[str, str | None]:
    return dict(found.target.select("uri", "donor").iter_rows())


def deleted(found: ChangeSet) -> list[str]:
    return sorted(found.deleted["uri"].to_list())


def did(uri: str, source: str = "docs") -> str:
    return document_id(source, uri)


def test_the_first_listing_is_all_added() -> None:
    found = changes({}, {"a": "1", "b": "2"})
    assert actions(found) == {"a": "added", "b": "added"}
    assert found.target["doc_id"].to_list() == [did("a"), did("b")]
    assert donors(found) == {"a": None, "b": None}


def test_same_place_and_bytes_is_unchanged_and_other_bytes_changed() -> None:
    found = changes({"a": "1", "b": "2"}, {"a": "1", "b": "3"})
    assert actions(found) == {"a": "unchanged", "b": "changed"}
    assert dict(found.target.select("uri", "content_digest").iter_rows()) == {"a": "1", "b": "3"}
    assert deleted(found) == []


def test_a_gone_document_is_deleted() -> None:
    found = changes({"a": "1", "b": "2"}, {"a": "1"})
    assert deleted(found) == ["b"]
    assert "b" not in actions(found)


def test_a_new_place_with_the_bytes_of_a_gone_one_is_renamed() -> None:
    found = changes({"a": "1"}, {"b": "1"})
    assert actions(found) == {"b": "renamed"}
    assert donors(found) == {"b": did("a")}
    assert found.target["doc_id"].to_list() == [did("b")]
    assert deleted(found) == []


def test_a_new_place_with_the_bytes_of_one_that_stays_is_copied() -> None:
    found = changes({"a": "1"}, {"a": "1", "b": "1"})
    assert actions(found) == {"a": "unchanged", "b": "copied"}
    assert donors(found)["b"] == did("a")


def test_rename_and_edit_at_once_is_a_delete_and_an_add() -> None:
    found = changes({"a": "1"}, {"b": "2"})
    assert actions(found) == {"b": "added"}
    assert deleted(found) == ["a"]


def test_two_files_that_swap_are_both_changed_and_know_where_their_bytes_were() -> None:
    found = changes({"a": "1", "b": "2"}, {"a": "2", "b": "1"})
    assert actions(found) == {"a": "changed", "b": "changed"}
    assert donors(found) == {"a": did("b"), "b": did("a")}
    assert deleted(found) == []


def test_a_file_moved_over_another_knows_where_its_bytes_were() -> None:
    found = changes({"a": "1", "b": "2"}, {"b": "1"})
    assert actions(found) == {"b": "changed"}
    assert donors(found) == {"b": did("a")}
    assert deleted(found) == ["a"]


def test_equal_documents_are_each_counted_and_each_deleted() -> None:
    """llama_index#22706: two documents with equal content are never deleted."""
    assert actions(changes({}, {"a": "1", "b": "1"})) == {"a": "added", "b": "added"}
    assert deleted(changes({"a": "1", "b": "1"}, {"a": "1"})) == ["b"]
    assert deleted(changes({"a": "1", "b": "1"}, {})) == ["a", "b"]


def test_equal_documents_that_move_are_paired_in_order_and_the_rest_is_deleted_or_copied() -> None:
    found = changes({"a": "1", "b": "1"}, {"x": "1"})
    assert (actions(found), deleted(found)) == ({"x": "renamed"}, ["b"])
    assert donors(found) == {"x": did("a")}
    found = changes({"a": "1", "b": "1", "c": "1"}, {"c": "1", "x": "1", "y": "1", "z": "1"})
    assert actions(found) == {"c": "unchanged", "x": "renamed", "y": "renamed", "z": "copied"}
    assert donors(found) == {"c": did("c"), "x": did("a"), "y": did("b"), "z": did("c")}


def test_a_failing_document_that_is_published_stays_as_it_was() -> None:
    found = changes({"a": "1", "b": "2"}, {"a": "9", "b": "2"}, failing={"a": "is a scan"})
    assert actions(found) == {"a": "stale", "b": "unchanged"}
    assert dict(found.target.select("uri", "content_digest").iter_rows())["a"] == "1"
    assert deleted(found) == []


def test_an_unreadable_document_is_not_listed_and_still_not_deleted() -> None:
    found = changes({"a": "1", "b": "2"}, {"b": "2"}, failing={"a": "no permission"})
    assert actions(found) == {"a": "stale", "b": "unchanged"}
    assert deleted(found) == []


def test_a_failing_document_that_was_never_published_is_left_out() -> None:
    found = changes({"b": "2"}, {"a": "1", "b": "2"}, failing={"a": "is a scan"})
    assert actions(found) == {"b": "unchanged"}
    assert deleted(found) == []


def test_the_bytes_of_a_stale_document_are_copied_never_renamed() -> None:
    found = changes({"a": "1"}, {"a": "9", "b": "1"}, failing={"a": "is a scan"})
    assert actions(found) == {"a": "stale", "b": "copied"}
    assert donors(found) == {"a": did("a"), "b": did("a")}


def test_deletes_never_reach_another_source() -> None:
    found = changes({"a": "1"}, {}, other={"a": "1", "b": "2"})
    assert deleted(found) == ["a"]
    assert found.deleted["source"].to_list() == ["docs"]


def test_bytes_of_another_source_are_copied_not_renamed() -> None:
    found = changes({}, {"a": "1"}, other={"a": "1"})
    assert actions(found) == {"a": "copied"}
    assert donors(found) == {"a": document_id("other", "a")}


@pytest.mark.parametrize("after", [{}, {"a": "1"}, {"a": "2", "b": "1", "c": "3"}, {"x": "1", "y": "2", "z": "3"}])
def test_every_listed_document_has_one_row_and_every_gone_one_is_accounted_for(after: Corpus) -> None:
    before = {"a": "1", "b": "2", "c": "3"}
    found = changes(before, after)
    assert sorted(found.target["uri"].to_list()) == sorted(after)
    renamed = found.target.filter(pl.col("action") == "renamed")["donor"].to_list()
    gone = {did(uri) for uri in before if uri not in after}
    assert set(found.deleted["doc_id"].to_list()) | set(renamed) == gone
    assert not set(found.deleted["doc_id"].to_list()) & set(renamed)
