"""A ranking: rows of the catalog, best first, each with the score that its side gave it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """What one side found.

    Attributes:
        rows: catalog rows, distinct, best first.
        scores: of each row, in the side's own unit; not comparable between sides.
    """

    rows: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.rows)


NOTHING = Ranking(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32))


def best(rows: npt.NDArray[np.int64], scores: npt.NDArray[np.float32], k: int) -> Ranking:
    """Return the ``k`` best of distinct rows, ties by smaller row."""
    order = np.lexsort((rows, -scores))[: max(k, 0)]
    return Ranking(rows[order].astype(np.int64), scores[order].astype(np.float32))
