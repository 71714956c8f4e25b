"""The dense side: nearest chunks by vector, exactly the visible ones.

The vector index also holds rows of other snapshots (older, or not published yet) and knows nothing of filters that
were worked out here, so that some of its hits do not exist for this reader. It is asked again, wider, until enough
visible ones are there. Where the index falls short (approximate indexes return fewer rows than asked), cannot be
reached (a run that publishes holds Milvus Lite) or few chunks are allowed, the vectors beside the passages are scored
one by one. The result says which way it went, and why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from query.ranking import NOTHING, Ranking, best
from query.snapshot_reader import SnapshotReader
from schemas.errors import GlossatorError
from tasks.publish.milvus import search_width

Way = Literal["index", "index widened", "exact"]

_WIDEN = 4
_LARGEST_LIMIT = 16_384  # Milvus: topk is at most 16,384.


class VectorSearch(Protocol):
    """An index over the vectors of a collection."""

    def search(
        self, vector: npt.NDArray[np.float32], limit: int, ef: int, acl_ids: Sequence[int] | None = None
    ) -> list[tuple[str, float]]:
        """Return chunk ids and cosine similarities, best first, of at most ``limit`` rows.

        Args:
            ef: how many candidates an HNSW index looks at, at least ``limit``.
            acl_ids: only rows of these sets of groups; None for all.
        """
        ...

    def close(self) -> None:
        """Let go of the store."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class DenseResult:
    """Nearest visible chunks, and how they were found; ``note`` says why, where the index fell short."""

    ranking: Ranking
    way: Way
    note: str | None = None


def search_dense(
    reader: SnapshotReader,
    index: Callable[[], VectorSearch],
    vector: npt.NDArray[np.float32],
    k: int,
    *,
    brute_force_rows: int,
    allowed: npt.NDArray[np.bool_] | None = None,
    acl_ids: Sequence[int] | None = None,
) -> DenseResult:
    """Return the min(k, allowed) chunks nearest to ``vector``.

    Args:
        index: opens the index; not called when the exact way is taken.
        vector: L2-normalised, shape (dimension,).
        brute_force_rows: a filtered set up to this size is scored exactly.
        allowed: shape (reader.size,); None allows all.
        acl_ids: of all chunks that are allowed, so that the index looks at fewer others; ``allowed`` alone decides.
    """
    visible = reader.size if allowed is None else int(np.count_nonzero(allowed))
    wanted = min(k, visible)
    if wanted <= 0:
        return DenseResult(NOTHING, "exact")
    if allowed is not None and visible <= brute_force_rows:
        return _exact(reader, vector, wanted, allowed)
    try:
        return _widening(reader, index, vector, wanted, allowed, acl_ids)
    except GlossatorError as error:
        exact = _exact(reader, vector, wanted, allowed)
        return replace(exact, note=f"vectors compared one by one: {error.what}")


def _widening(
    reader: SnapshotReader,
    index: Callable[[], VectorSearch],
    vector: npt.NDArray[np.float32],
    wanted: int,
    allowed: npt.NDArray[np.bool_] | None,
    acl_ids: Sequence[int] | None,
) -> DenseResult:
    limit = wanted
    seen: dict[int, float] = {}
    way: Way = "index"
    while limit <= _LARGEST_LIMIT:
        hits = index().search(vector, limit, search_width(limit), acl_ids)
        seen = {}
        for chunk_id, score in hits:
            row = reader.row(chunk_id)
            if row is not None and (allowed is None or allowed[row]):
                seen.setdefault(row, score)
        if len(seen) >= wanted:
            rows = np.fromiter(seen.keys(), dtype=np.int64, count=len(seen))
            scores = np.fromiter(seen.values(), dtype=np.float32, count=len(seen))
            return DenseResult(best(rows, scores, wanted), way)
        if len(hits) < limit:
            break
        limit *= _WIDEN
        way = "index widened"
    exact = _exact(reader, vector, wanted, allowed)
    found = f"the index found {len(seen):,} of {wanted:,} chunks"
    return replace(exact, note=f"vectors compared one by one: {found} (`glossator doctor` tells whether it lost rows)")


def _exact(
    reader: SnapshotReader, vector: npt.NDArray[np.float32], wanted: int, allowed: npt.NDArray[np.bool_] | None
) -> DenseResult:
    rows = np.arange(reader.size) if allowed is None else np.flatnonzero(allowed)
    return DenseResult(best(rows, reader.similarities(vector, rows), wanted), "exact")
