"""Faults of all kinds strike commands at their points: a seeded slice of what ``make crash-full`` does in full."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.crash.all_faults import FAULTS, KILL
from tests.crash.lab import sample
from tests.crash.matrices import Matrix, try_points

SEED = 3
FAULTY = [name for name in FAULTS if name not in {KILL.name, "server-killed", "paused", "twice"}]
"""Those that need no server of Milvus: starting one takes seconds."""
SLICES = {
    "edit": (FAULTY, 2),
    "maintain": (["unreachable", "unreadable", "sigterm"], 1),
    "purge": (["full", "unreadable", "clock-forward"], 1),
    "edit, shared": (["paused", "server-killed", "twice"], 1),
}


@pytest.fixture
def matrices(place: Path) -> list[Matrix]:
    """A slice of the matrices, in one process after the other."""
    return [
        matrix
        for name, (faults, points) in SLICES.items()
        for matrix in try_points([name.partition(",")[0]], place, points, SEED, faults)
    ]


def test_a_command_that_something_happens_to_keeps_every_promise(matrices: list[Matrix]) -> None:
    assert [violation for matrix in matrices for violation in matrix.violations] == []
    assert {matrix.fault for matrix in matrices} == FAULTS.keys() - {KILL.name}
    struck = [trial for matrix in matrices for trial in matrix.trials if trial.point]
    assert len(struck) >= len([trial for matrix in matrices for trial in matrix.trials]) - 2
    ended = {
        matrix.fault: {trial.ended for trial in matrix.trials if trial.point} for matrix in matrices[: len(FAULTY)]
    }
    assert ended["full"] == {"failed"}
    assert ended["sigterm"] == ended["sigint"] == {"stopped"}
    assert all(trial.reader in {"old", "new", "the same", "the other's"} for trial in struck)


def test_a_sample_has_as_many_kinds_of_points_as_fit() -> None:
    points = [
        f"{kind}: before {verb} {number}" for kind, verb, number in itertools.product("abc", ("x", "y"), range(9))
    ]
    drawn = sample(points, lambda point: "x" in point, 5, SEED)
    assert len(drawn) == 5 and {points[number - 1][0] for number in drawn} == set("abc")
    assert all("before x" in points[number - 1] for number in drawn)
    assert drawn == sample(points, lambda point: "x" in point, 5, SEED) != sample(points, lambda point: True, 5, 4)
    assert sample(points, lambda point: "y" in point, 0, SEED) == [n for n, name in enumerate(points, 1) if "y" in name]
