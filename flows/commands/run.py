"""Carry out a plan on a terminal: by the configured runner, with progress bars, and so that Ctrl-C ends it cleanly."""

from __future__ import annotations

import signal
from types import FrameType
from typing import TYPE_CHECKING

from rich.console import Console

from flows.commands.door import Door

if TYPE_CHECKING:
    from schemas.plan import Plan
    from schemas.report import IndexReport
    from tasks.plan.planner import PlanOptions


def carry_out(door: Door, plan: Plan, options: PlanOptions, reason: str, *, quiet: bool) -> IndexReport:
    """Build and publish what a plan says.

    Args:
        options: with which it was made: a run that is overtaken plans again.
        reason: what the history says of the flip.
        quiet: draw no progress bars.
    """
    from flows.bars import Bars
    from flows.prefect_home import prepare_prefect
    from tasks.progress import stop

    def interrupt(signum: int, frame: FrameType | None) -> None:
        stop()
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    with Bars(Console(stderr=True, quiet=quiet), len(plan.jobs)):
        if door.config.run.runner == "plain":
            from flows.index import index as run_index
            from flows.runner import PlainRunner

            return run_index(PlainRunner(), plan, options, reason)
        prepare_prefect(door.home.root / "data" / "prefect")
        from flows.index_flow import index_with_prefect

        return index_with_prefect(plan, options, reason)
