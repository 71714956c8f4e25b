"""Serve the flows on this machine: ``python -m deployments.serve``.

The Prefect server of ``PREFECT_API_URL`` says when; this process starts a child for each run. One run at a time: while
it goes on, another one is cancelled at once and says why, since it would only wait for the same lease.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Any

from prefect import Flow, serve
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy
from prefect.deployments.runner import RunnerDeployment
from prefect.types.entrypoint import EntrypointType

from deployments.zombies import WITHIN_SECONDS, ensure_zombie_automation
from flows.nightly import nightly
from flows.prefect_home import HEARTBEAT_SECONDS, TAG


def deployment_of(flow: Flow[..., Any]) -> RunnerDeployment:
    """Return the deployment of a flow, under its name; `prefect.yaml` describes the same for work pools."""
    return RunnerDeployment.from_flow(
        flow,
        flow.name,
        tags=[TAG],
        concurrency_limit=ConcurrencyLimitConfig(limit=1, collision_strategy=ConcurrencyLimitStrategy.CANCEL_NEW),
        entrypoint_type=EntrypointType.MODULE_PATH,
    )


def serve_flows(flows: Sequence[Flow[..., Any]], crashed_after: float = WITHIN_SECONDS) -> None:
    """Make the zombie automation, register the deployments, and start runs until interrupted.

    Args:
        crashed_after: seconds without a sign of life.
    """
    with get_client(sync_client=True) as client:
        ensure_zombie_automation(client, crashed_after)
    # A schedule that a restart of this process leaves paused is a night without a run.
    serve(*map(deployment_of, flows), heartbeat_seconds=HEARTBEAT_SECONDS, pause_on_shutdown=False)


def main() -> None:
    """Serve what there is."""
    parser = argparse.ArgumentParser(prog="python -m deployments.serve", description="Serve the flow `nightly`.")
    parser.add_argument(
        "--crashed-after",
        type=float,
        default=WITHIN_SECONDS,
        metavar="SECONDS",
        help=f"without a sign of life, of which there is one every {HEARTBEAT_SECONDS} s (default: %(default).0f)",
    )
    arguments = parser.parse_args()
    if not os.environ.get("PREFECT_API_URL"):
        parser.error("PREFECT_API_URL names no Prefect server -> `prefect server start` starts one, and says its URL")
    serve_flows([nightly], arguments.crashed_after)


if __name__ == "__main__":
    main()
