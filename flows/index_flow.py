"""The index flow as Prefect runs it: the same wiring, with cached and retried task runs."""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.task_runners import ThreadPoolTaskRunner

from flows.index import index
from flows.runner import PrefectRunner
from schemas.errors import TransientError
from schemas.plan import Plan
from schemas.report import IndexReport
from tasks.plan.planner import PlanOptions


@flow(name="index", validate_parameters=False)
def index_flow(plan: Plan, options: PlanOptions, reason: str) -> IndexReport:
    """Build and publish what a plan says."""
    return index(PrefectRunner(), plan, options, reason)


def index_with_prefect(plan: Plan, options: PlanOptions, reason: str) -> IndexReport:
    """Run the flow under a name that says what it does, as many tasks at a time as configured."""
    counts = plan.counts
    name = f"{plan.workspace.collection} +{counts.added} ~{counts.changed + counts.renamed} -{counts.deleted}"
    runner: Any = ThreadPoolTaskRunner(max_workers=plan.workspace.config.run.workers)
    named = index_flow.with_options(flow_run_name=name, task_runner=runner)
    try:
        return named(plan, options, reason)
    except RuntimeError as error:
        if "Prefect API" not in str(error):
            raise
        raise TransientError(
            f"no Prefect server: {error}", hint="run it again, set PREFECT_API_URL, or use --runner plain"
        ) from error
