"""The product survives ``kill -9`` anywhere: a seeded slice of the matrices that ``make crash-full`` runs in full."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.crash.matrices import Matrix, try_points
from tests.crash.operations import OPERATIONS

SEED = 20
POINTS = 5
HALVES = (tuple(sorted(OPERATIONS)[::2]), tuple(sorted(OPERATIONS)[1::2]))

READERS = {
    "first": {"nothing", "new"},
    "maintain": {"the same"},
    "resume": {"the same"},
    "repair": {"an error", "new"},
}
"""What a reader may see after a kill, where it is not the old index or the new one."""


@pytest.fixture(params=HALVES, ids=["one half", "the other half"])
def matrices(request: pytest.FixtureRequest, place: Path) -> list[Matrix]:
    """A slice of the matrices of some operations, always with the points before and after a flip."""
    return try_points(request.param, place, POINTS, SEED)


def test_an_operation_that_is_killed_keeps_every_promise(matrices: list[Matrix]) -> None:
    assert [violation for matrix in matrices for violation in matrix.violations] == []
    kinds = {point.partition(":")[0] for matrix in matrices for point in matrix.points}
    assert {"part", "passages", "catalog", "bm25", "milvus", "milvus files", "snapshot", "flip", "lease"} <= kinds
    for matrix in matrices:
        # Threads of Milvus Lite may pass one point more or less; otherwise each is reached.
        assert matrix.missed <= 1 or OPERATIONS[matrix.operation].varies
        assert len(matrix.trials) >= (1 if OPERATIONS[matrix.operation].only else min(POINTS, len(matrix.points)))
        killed = [trial for trial in matrix.trials if trial.point]
        assert {trial.reader for trial in killed} <= READERS.get(matrix.operation, {"old", "new"})
        # Before the link of a flip nothing of it is to be seen, and right after it all.
        for one, next_one in itertools.pairwise(killed):
            if one.point.startswith("flip: before link") and next_one.number == one.number + 1:
                assert (one.reader, next_one.reader) in {("old", "new"), ("nothing", "new"), ("the same", "the same")}
