"""A source that moves while it is indexed: a seeded slice of the cases that ``make crash-full`` tries."""

from __future__ import annotations

import random
from pathlib import Path

from tests.crash.moving_source import try_cases
from tests.crash.moving_source_cases import CASES

SEED = 3
DRAWN = 2


def test_a_source_that_moves_takes_nothing_from_readers(place: Path) -> None:
    names = ["listing-7", "unmount-plan", "pipe"]
    names += random.Random(SEED).sample(sorted(CASES.keys() - set(names)), DRAWN)
    found = try_cases(names, place)
    assert [moved.case for moved in found] == names
    assert [f"{moved.case}: {problem}" for moved in found for problem in moved.violations] == []
    assert found[0].reader == found[1].reader == "the old index"
