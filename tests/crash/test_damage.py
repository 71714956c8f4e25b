"""Damage at rest: a seeded slice of the matrix that ``make crash-full`` tries in full."""

from __future__ import annotations

from pathlib import Path

from tests.crash.damage import some, try_cases
from tests.crash.damage_lake import DAMAGES, KINDS, damages_of

SEED = 7
CASES = 7


def test_no_damage_misleads_a_reader_and_what_the_doctor_says_mends_it(place: Path) -> None:
    # One that decides who may see what is always among them.
    chosen = [("tombstones", "lost"), ("kept-files", "a bit flipped"), *some(CASES, SEED)]
    trials = try_cases(chosen, place, SEED)
    assert [f"{trial.kind}, {trial.damage}: {problem}" for trial in trials for problem in trial.violations] == []
    assert [(trial.kind, trial.damage) for trial in trials] == chosen
    assert trials[0].reader == "an error"
    assert {trial.doctor for trial in trials[:2]} == {"found"}


def test_every_kind_of_file_is_damaged_in_every_way() -> None:
    assert len(KINDS) >= 40
    assert all(damages_of(kind) == tuple(DAMAGES) or kind.lost_only for kind in KINDS.values())
