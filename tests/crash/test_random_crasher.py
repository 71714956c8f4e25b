"""Commands killed at random moments while somebody reads: three rounds of what ``make crash`` does for an hour."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.crash.forks import ONE_THREAD
from tests.crash.script import apply, draw

ROOT = Path(__file__).parents[2]


def test_equal_seeds_give_equal_edits_commands_and_delays() -> None:
    assert draw(7, 20) == draw(7, 20)
    assert draw(7, 20) != draw(8, 20)
    assert draw(7, 20)[:5] == draw(7, 5), "a longer script begins as the shorter one"


def test_a_script_edits_adds_deletes_and_moves(tmp_path: Path) -> None:
    seen = set()
    for now in draw(3, 30):
        for attempt in now.attempts:
            for name, text in (*attempt.edits, *attempt.meanwhile):
                there = (tmp_path / name).exists()
                seen.add((there, text is None))
                assert there or text is not None, f"{name} is deleted and was never written"
                apply(((name, text),), tmp_path)
    assert seen == {(True, True), (True, False), (False, False)}
    assert 10 <= sum(path.is_file() for path in tmp_path.rglob("*")) <= 24


def test_three_rounds_break_no_promise(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.random_crasher", "--seed", "5", "--rounds", "3"],
        cwd=ROOT,
        env={**os.environ, **ONE_THREAD, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2_000:]
    summary = done.stdout.splitlines()[-1]
    kills, answers = (int(re.findall(rf"(\d+) {what}", summary)[0]) for what in ("kills", "answers"))
    assert "3 rounds" in summary and " 0 violations" in summary
    assert kills + int(re.findall(r"(\d+) kills too late", summary)[0]) >= 3 and answers > 0
