"""Identity: golden digests, worked out apart from the code, and what must and must not change an id."""

from __future__ import annotations

import datetime as dt
import hashlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.documents import Metadata
from schemas.identity import (
    DOCUMENTS_PER_SHARD,
    acl_id,
    chunk_id,
    content_digest,
    digest,
    digest_rows,
    document_id,
    embed_key,
    embedded_digest,
    metadata_digest,
    part_key,
    shard_count,
    shard_of,
    snapshot_id,
    structure_digest,
    tags_id,
    text_digest,
)

DATE = dt.date(2025, 3, 4)
METADATA = Metadata("markdown", "T", None, "en", ("x",), DATE, ("a",))


def test_digests_of_fixed_inputs_never_change() -> None:
    """A changed digest makes every id of every published index another one: it needs a version, not an accident."""
    found = {
        "digest": digest("ab", "c", 7, None, b"x"),
        "rows": digest_rows([("a", 1), ("b", None)]),
        "document": document_id("docs", "guide/a.md"),
        "text": text_digest("灯塔\n"),
        "structure": structure_digest("x", "code", "python", (0, 5)),
        "metadata": metadata_digest(Metadata("markdown", "T", None, "en", ("b", "a"), DATE, ("staff",)), (0,)),
        "embedded": embedded_digest("c"),
        "vector": embed_key("m", embedded_digest("c")),
        "chunk": chunk_id("00ff", "c", METADATA, 0),
        "bare chunk": chunk_id("00ff", "c", Metadata("text"), 3),
        "part": part_key("chunk", "cfg", "in", None),
        "snapshot": snapshot_id("cfg", [("d1", "t", "m")], [("c1", 0, 5), ("c2", 5, 9)]),
    }
    assert found == {
        "digest": "f94f86feedac7bf9bebbd54ec1146533af6b09feaa8fd110c66a2a0f0c9662e9",
        "rows": "7de012b803533c353a7cb63ae430175f",
        "document": "719a6537b198321d",
        "text": "7ed07023e5cc0ea1e620c963f05a0f16",
        "structure": "1612e42380d7eede5f67e696d3ee807f",
        "metadata": "6ca5d9bb629ef2736c6882445b1dcf6e",
        "embedded": "d6f8703de36fb4aa21994ec4abd08646",
        "vector": "a380b6ad48fe3ddde4047cfee56f1097",
        "chunk": "0f86d44f3dd794e910d42d8683abbcb3",
        "bare chunk": "2dacd4ac01a72d1209c58452d90715c2",
        "part": "c971ac1a2f43d2ad4134e6e1882dc9a2",
        "snapshot": "55e51bc3df85dabc98b1dc0854eac3ce",
    }


def test_interned_sets_of_fixed_inputs_never_change() -> None:
    assert (acl_id(("b", "a", "b")), tags_id(["x"])) == (8905865655872311364, 9187949810039411786)


def test_content_digest_is_what_sha256sum_prints() -> None:
    assert content_digest(b"abc") == hashlib.sha256(b"abc").hexdigest()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("ab", "c"), ("a", "bc")),
        (("abc",), ("ab", "c")),
        (("",), ()),
        ((None,), ("",)),
        ((1,), ("1",)),
        (("a",), (b"a",)),
        ((1, 2), (12,)),
        ((-1,), (1,)),
    ],
)
def test_fields_are_length_prefixed_and_typed(one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    assert digest(*one) != digest(*other)


def test_order_of_fields_counts_and_a_bool_is_refused() -> None:
    assert digest("a", "b") != digest("b", "a")
    with pytest.raises(TypeError, match="bool"):
        digest(True)


def test_a_file_name_that_is_not_utf8_has_an_id() -> None:
    assert document_id("s", "x\udce9.md") != document_id("s", "x\udcea.md")


ROWS = st.lists(st.tuples(st.text(max_size=4), st.one_of(st.none(), st.integers())), max_size=8)


@given(ROWS, st.randoms(use_true_random=False))
def test_rows_in_any_order_have_one_digest(rows: list[tuple[str, int | None]], random: Any) -> None:
    shuffled = list(rows)
    random.shuffle(shuffled)
    assert digest_rows(shuffled) == digest_rows(rows)


def test_rows_are_counted_not_only_named() -> None:
    assert digest_rows([("a",)]) != digest_rows([("a",), ("a",)])
    assert digest_rows([("a", "b")]) != digest_rows([("a",), ("b",)])


@given(st.randoms(use_true_random=False))
def test_a_snapshot_id_does_not_know_the_order_of_its_contents(random: Any) -> None:
    documents = [(f"d{i}", "t", "m") for i in range(5)]
    chunks = [(f"c{i}", i, i + 1) for i in range(9)]
    expected = snapshot_id("cfg", documents, chunks)
    random.shuffle(documents)
    random.shuffle(chunks)
    assert snapshot_id("cfg", documents, chunks) == expected


def test_a_snapshot_id_changes_with_each_of_its_contents() -> None:
    documents, chunks = [("d", "t", "m")], [("c", 0, 5)]
    ids = {
        snapshot_id("cfg", documents, chunks),
        snapshot_id("other", documents, chunks),
        snapshot_id("cfg", [("e", "t", "m")], chunks),
        snapshot_id("cfg", [("d", "u", "m")], chunks),
        snapshot_id("cfg", [("d", "t", "n")], chunks),
        snapshot_id("cfg", documents, [("b", 0, 5)]),
        snapshot_id("cfg", documents, [("c", 1, 5)]),
        snapshot_id("cfg", documents, [("c", 0, 6)]),
        snapshot_id("cfg", documents, []),
        snapshot_id("cfg", [], chunks),
    }
    assert len(ids) == 10


SEEN_BY_FILTERS = {
    "type": "text",
    "language": "zh",
    "tags": ("x", "y"),
    "date": dt.date(2025, 3, 5),
    "groups": ("a", "b"),
}
LOOKED_UP = {"title": "Other", "syntax": "python"}


@pytest.mark.parametrize("field", SEEN_BY_FILTERS)
def test_a_chunk_id_changes_with_each_filterable_field(field: str) -> None:
    changed = replace(METADATA, **{field: SEEN_BY_FILTERS[field]})
    assert chunk_id("00ff", "c", changed, 0) != chunk_id("00ff", "c", METADATA, 0)


@pytest.mark.parametrize("field", LOOKED_UP)
def test_a_chunk_id_does_not_change_with_what_is_looked_up(field: str) -> None:
    changed = replace(METADATA, **{field: LOOKED_UP[field]})
    assert chunk_id("00ff", "c", changed, 0) == chunk_id("00ff", "c", METADATA, 0)


def test_every_metadata_field_is_either_filterable_or_looked_up() -> None:
    assert set(Metadata.__dataclass_fields__) == SEEN_BY_FILTERS.keys() | LOOKED_UP.keys()


def test_a_chunk_id_does_not_know_the_order_of_tags_and_groups() -> None:
    one = replace(METADATA, tags=("x", "y"), groups=("a", "b"))
    other = replace(METADATA, tags=("y", "x", "y"), groups=("b", "a"))
    assert chunk_id("00ff", "c", one, 0) == chunk_id("00ff", "c", other, 0)


def test_equal_chunks_of_a_document_differ_by_occurrence_and_of_two_documents_by_id() -> None:
    ids = {chunk_id(doc, text, METADATA, nth) for doc in ("00", "01") for text in ("c", "d") for nth in (0, 1)}
    assert len(ids) == 8


def test_no_access_statement_is_public_and_an_empty_one_is_not() -> None:
    assert acl_id(None) == 0
    assert acl_id(()) not in {0, acl_id(("a",))}


def test_no_tags_is_zero_and_tags_are_no_groups() -> None:
    assert tags_id(()) == 0
    assert tags_id(("a",)) != acl_id(("a",))


@given(st.sets(st.text(max_size=5), max_size=4))
def test_interned_sets_fit_a_positive_int64(members: set[str]) -> None:
    assert 0 < acl_id(tuple(members)) < 2**63


@given(st.integers(min_value=0, max_value=3_000_000))
def test_shard_counts_are_powers_of_two_and_just_large_enough(documents: int) -> None:
    shards = shard_count(documents)
    assert shards & (shards - 1) == 0
    assert shards * DOCUMENTS_PER_SHARD >= documents
    assert shards == 1 or (shards // 2) * DOCUMENTS_PER_SHARD < documents


@given(st.text(max_size=20), st.integers(min_value=0, max_value=12))
def test_every_document_has_a_shard(uri: str, power: int) -> None:
    doc_id = document_id("s", uri)
    shard = shard_of(doc_id, 2**power)
    assert 0 <= shard < 2**power
    # Halving the shards merges pairs: nothing else moves.
    assert shard_of(doc_id, 2 ** max(0, power - 1)) == shard % 2 ** max(0, power - 1)
