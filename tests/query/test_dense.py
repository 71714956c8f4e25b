"""The dense side returns exactly the visible neighbours, whatever else the index holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from query.dense import search_dense
from query.snapshot_reader import SnapshotReader

MakeIndex = Callable[..., Any]


def nearest(reader: SnapshotReader, vector: np.ndarray, allowed: np.ndarray | None, k: int) -> list[int]:
    scores = reader.vectors(np.arange(reader.size)) @ vector
    rows = [row for row in range(reader.size) if allowed is None or allowed[row]]
    return sorted(rows, key=lambda row: (-scores[row], row))[:k]


def test_the_index_answers_when_all_its_rows_are_visible(handbook: SnapshotReader, make_index: MakeIndex) -> None:
    vector = handbook.vectors(np.array([3]))[0]
    found = search_dense(handbook, lambda: make_index(handbook), vector, 5, brute_force_rows=0)
    assert found.way == "index"
    assert found.ranking.rows.tolist() == nearest(handbook, vector, None, 5)
    assert found.ranking.rows[0] == 3


def test_rows_of_other_snapshots_are_passed_over_by_asking_wider(
    handbook: SnapshotReader, make_index: MakeIndex
) -> None:
    index = make_index(handbook, invisible=3 * handbook.size)
    vector = handbook.vectors(np.array([3]))[0]
    found = search_dense(handbook, lambda: index, vector, 5, brute_force_rows=0)
    assert found.way == "index widened"
    assert len(index.asked) > 1
    assert found.ranking.rows.tolist() == nearest(handbook, vector, None, 5)


def test_an_index_that_returns_too_little_is_replaced_by_exact_scores(
    handbook: SnapshotReader, make_index: MakeIndex
) -> None:
    vector = handbook.vectors(np.array([3]))[0]
    found = search_dense(handbook, lambda: make_index(handbook, most=4), vector, 20, brute_force_rows=0)
    assert found.way == "exact"
    assert found.note is not None and "the index found 4 of 20 chunks" in found.note
    assert found.ranking.rows.tolist() == nearest(handbook, vector, None, 20)


def test_a_small_filtered_set_never_opens_the_index(handbook: SnapshotReader) -> None:
    allowed = np.zeros(handbook.size, dtype=bool)
    allowed[[1, 8]] = True

    def closed() -> Any:
        raise AssertionError("opened")

    vector = handbook.vectors(np.array([3]))[0]
    found = search_dense(handbook, closed, vector, 10, brute_force_rows=20_000, allowed=allowed)
    assert (found.way, sorted(found.ranking.rows.tolist())) == ("exact", [1, 8])


def test_nothing_allowed_finds_nothing(handbook: SnapshotReader, make_index: MakeIndex) -> None:
    vector = handbook.vectors(np.array([3]))[0]
    allowed = np.zeros(handbook.size, dtype=bool)
    assert len(search_dense(handbook, make_index, vector, 5, brute_force_rows=0, allowed=allowed).ranking) == 0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(data=st.data())
def test_every_way_gives_the_same_neighbours(
    handbook: SnapshotReader, make_index: MakeIndex, data: st.DataObject
) -> None:
    size = handbook.size
    allowed = np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    k = data.draw(st.integers(1, size + 5))
    index = make_index(
        handbook, invisible=data.draw(st.integers(0, 200)), most=data.draw(st.sampled_from([3, 20, 10**6]))
    )
    vector = handbook.vectors(np.array([data.draw(st.integers(0, size - 1))]))[0]
    limit = data.draw(st.sampled_from([0, 20, 20_000]))
    found = search_dense(handbook, lambda: index, vector, k, brute_force_rows=limit, allowed=allowed)
    assert found.ranking.rows.tolist() == nearest(handbook, vector, allowed, k)
