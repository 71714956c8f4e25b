"""The zombie automation with the limits that are served: twelve minutes, so only ``make crash-full`` runs these."""

from __future__ import annotations

import datetime as dt
import time
from itertools import pairwise
from pathlib import Path

import pytest

from deployments.zombies import WITHIN_SECONDS
from tests.e2e.home import Home
from tests.e2e.prefect_server import Server
from tests.e2e.serving import final_state, kill_all, serving, slots_taken, start_run, state_of, until

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("prefect")]

HEALTHY_SECONDS = 600


def gaps(server: Server, run: str) -> list[float]:
    """Return the seconds between signs of life, as the server got them."""
    wanted = {
        "filter": {
            "event": {"prefix": ["prefect.flow-run."]},
            "resource": {"id": [f"prefect.flow-run.{run}"]},
        },
        "limit": 50,
    }
    events = server.ask("/events/filter", wanted)["events"]
    times = sorted(dt.datetime.fromisoformat(event["received"].replace("Z", "+00:00")) for event in events)
    return [(later - earlier).total_seconds() for earlier, later in pairwise(times)]


def test_a_killed_run_is_crashed_and_its_slot_free(server: Server, tmp_path: Path) -> None:
    with serving(Home(tmp_path / "home", server), module="tests.e2e.busy") as process:
        run = start_run(server, "busy", seconds=HEALTHY_SECONDS)
        until(lambda: gaps(server, run)[3:] or None, 60, "it runs, and its heart beats")
        kill_all(process)
    begun = time.monotonic()
    assert state_of(server, run)[0] == "RUNNING"
    assert final_state(server, run, WITHIN_SECONDS + 15)[0] == "CRASHED"
    assert time.monotonic() - begun > WITHIN_SECONDS - 30
    until(lambda: slots_taken(server, "busy") == 0 or None, 10, "the slot is free")


def test_a_healthy_run_of_ten_minutes_on_a_busy_machine_is_left_alone(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(Home(tmp_path / "home", server), module="tests.e2e.busy"):
        run = start_run(server, "busy", seconds=HEALTHY_SECONDS)
        state = final_state(server, run, HEALTHY_SECONDS + 120)
    seen = gaps(server, run)
    with capsys.disabled():
        print(f"\n  signs of life: {len(seen)}, at most {max(seen):.0f} s apart, {WITHIN_SECONDS:.0f} are allowed")  # noqa: T201
    assert state[0] == "COMPLETED", state
    assert len(seen) > HEALTHY_SECONDS / 60 and max(seen) < WITHIN_SECONDS
