"""Fusion of two rankings by weighted reciprocal rank (Cormack, Clarke and Büttcher, SIGIR 2009).

``score(row) = sum over sides of weight / (k + rank)``, ranks from 1. Ranks, unlike scores, can be compared between
sides. Pure functions; what each side thought of a row is kept beside the fused score.
"""

from __future__ import annotations

from dataclasses import dataclass

from query.ranking import Ranking


@dataclass(frozen=True, slots=True)
class Place:
    """Where a side put a row: rank from 1, and the side's score."""

    rank: int
    score: float


@dataclass(frozen=True, slots=True)
class Fused:
    """A row with its fused score; a side that did not find it, or had no weight, is None."""

    row: int
    score: float
    dense: Place | None
    bm25: Place | None


def fuse(
    dense: Ranking, bm25: Ranking, *, rrf_k: int, dense_weight: float = 1.0, bm25_weight: float = 1.0
) -> list[Fused]:
    """Return the rows of both sides, best first, ties by smaller row. A side of weight 0 adds nothing."""
    dense_places = _places(dense) if dense_weight > 0 else {}
    bm25_places = _places(bm25) if bm25_weight > 0 else {}
    fused = []
    for row in dense_places.keys() | bm25_places.keys():
        in_dense, in_bm25 = dense_places.get(row), bm25_places.get(row)
        score = (dense_weight / (rrf_k + in_dense.rank) if in_dense else 0.0) + (
            bm25_weight / (rrf_k + in_bm25.rank) if in_bm25 else 0.0
        )
        fused.append(Fused(row, score, in_dense, in_bm25))
    return sorted(fused, key=lambda hit: (-hit.score, hit.row))


def knows(unknown_share: float, limit: float) -> bool:
    """Tell whether a model knows enough of a question's tokens for its vector to mean something.

    An English model makes Chinese text [UNK]: its vector is then the same for many questions, and fusing it with equal
    weight drops recall@5 on cmrc2018 from 99 to 64 %.
    """
    return unknown_share <= limit


def _places(ranking: Ranking) -> dict[int, Place]:
    pairs = zip(ranking.rows.tolist(), ranking.scores.tolist(), strict=True)
    return {row: Place(rank, score) for rank, (row, score) in enumerate(pairs, start=1)}
