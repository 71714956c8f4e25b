"""Fusion keeps what each side said and invents nothing."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from query.fusion import Fused, Place, fuse, knows, lift, min_max, reciprocal_ranks
from query.ranking import NOTHING, Ranking

rankings = st.lists(st.integers(0, 50), unique=True, max_size=20).map(
    lambda rows: Ranking(np.array(rows, dtype=np.int64), np.linspace(9, 1, len(rows)).astype(np.float32))
)


RRF = partial(reciprocal_ranks, k=60)


def ranking(*rows: int) -> Ranking:
    return Ranking(np.array(rows, dtype=np.int64), np.arange(len(rows), 0, -1).astype(np.float32))


def test_scores_are_those_of_the_formula() -> None:
    first, second, third = fuse(ranking(7, 8), ranking(8, 9), RRF)
    assert (first.row, second.row, third.row) == (8, 7, 9)
    assert first.score == 1 / 62 + 1 / 61
    assert (first.dense, first.bm25) == (Place(2, 1.0), Place(1, 2.0))
    assert (second.score, second.bm25) == (1 / 61, None)


def test_weights_decide_between_sides() -> None:
    assert fuse(ranking(1), ranking(2), RRF, dense_weight=2)[0].row == 1
    assert fuse(ranking(1), ranking(2), RRF, bm25_weight=2)[0].row == 2


def test_a_side_without_weight_adds_no_rows() -> None:
    assert [hit.row for hit in fuse(ranking(1, 2), ranking(2, 3), RRF, dense_weight=0)] == [2, 3]


@given(dense=rankings, bm25=rankings, weight=st.sampled_from([0.0, 0.5, 1.0, 3.0]))
def test_fusion_returns_the_rows_of_its_sides_once_each_in_a_fixed_order(
    dense: Ranking, bm25: Ranking, weight: float
) -> None:
    fused = fuse(dense, bm25, RRF, dense_weight=weight)
    rows = [hit.row for hit in fused]
    assert set(rows) == set(bm25.rows.tolist()) | (set(dense.rows.tolist()) if weight else set())
    assert len(rows) == len(set(rows))
    assert all(a.score > b.score or (a.score == b.score and a.row < b.row) for a, b in pairwise(fused))


@given(side=rankings)
def test_one_side_alone_keeps_its_order(side: Ranking) -> None:
    for points in (RRF, min_max):
        assert [hit.row for hit in fuse(side, NOTHING, points)] == side.rows.tolist()


def test_min_max_keeps_how_clearly_a_side_prefers_its_first() -> None:
    clear = Ranking(np.array([1, 2, 3]), np.array([9.0, 1.0, 0.0], np.float32))
    vague = Ranking(np.array([2, 3, 1]), np.array([1.0, 0.9, 0.0], np.float32))
    assert fuse(clear, vague, min_max)[0].row == 2
    assert [round(hit.score, 3) for hit in fuse(clear, NOTHING, min_max)] == [1.0, 0.111, 0.0]
    assert min_max(Ranking(np.array([4]), np.array([0.3], np.float32))).tolist() == [1.0]


def test_a_passage_is_lifted_by_the_best_of_its_document() -> None:
    hits = [Fused(row, score, None, None) for row, score in ((0, 1.0), (1, 0.6), (2, 0.5))]
    documents = np.array([7, 8, 7], np.int32)
    assert [hit.row for hit in lift(hits, documents, 0.0)] == [0, 1, 2]
    assert [hit.row for hit in lift(hits, documents, 0.4)] == [0, 2, 1]
    assert lift(hits, documents, 0.4)[1].score == 0.6 * 0.5 + 0.4 * 1.0


def test_a_model_is_trusted_up_to_the_share_of_unknown_tokens() -> None:
    assert knows(0.0, 0.2)
    assert knows(0.2, 0.2)
    assert not knows(0.59, 0.2)
