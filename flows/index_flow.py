"""The index flow as Prefect runs it: the same wiring, with cached and retried task runs.

The plan is no parameter of the flow: Prefect sends parameters to its server, keeps them, and shows them to everybody.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from prefect import Flow, tags
from prefect.exceptions import TerminationSignal
from prefect.settings import PREFECT_API_URL, get_current_settings, temporary_settings
from prefect.task_runners import ThreadPoolTaskRunner

from flows.index import index
from flows.prefect_home import HEARTBEAT_SECONDS, TAG
from flows.prefect_server import temporary_server
from flows.runner import PrefectRunner
from schemas.errors import TransientError
from schemas.plan import Plan
from schemas.report import IndexReport
from tasks.plan.planner import PlanOptions
from tasks.progress import stop

_UNREACHABLE = "Failed to reach API"
"""What Prefect says where nobody answers."""


def index_with_prefect(plan: Plan, options: PlanOptions, reason: str) -> IndexReport:
    """Build and publish what a plan says, in a flow run whose name says what it does.

    As many tasks run at a time as configured. Cancelled, it ends with the units of work that it is at.

    Raises:
        TransientError: there is no Prefect server.
    """

    def run(collection: str, reason: str) -> IndexReport:
        try:
            return index(PrefectRunner(), plan, options, reason)
        except (KeyboardInterrupt, TerminationSignal):
            stop()  # Before Prefect waits for the threads of the tasks.
            raise

    counts = plan.counts
    space = plan.workspace
    runner: Any = ThreadPoolTaskRunner(max_workers=space.config.run.workers)
    named = Flow(
        run,
        name="index",
        description="Build and publish what a plan says.",
        flow_run_name=f"{space.collection} +{counts.added} ~{counts.changed + counts.renamed} -{counts.deleted}",
        task_runner=runner,
        validate_parameters=False,
    )
    with _server(), _tagged():
        return named(space.collection, reason)


@contextmanager
def _server() -> Iterator[None]:
    """Let Prefect talk to the server that is configured, or to a temporary one."""
    configured = get_current_settings().api.url
    if configured is None:
        with temporary_server() as url, temporary_settings({PREFECT_API_URL: url}):
            yield
        return
    try:
        yield
    except RuntimeError as error:
        if _UNREACHABLE not in str(error):
            raise
        raise TransientError(
            f"no Prefect server answers at {configured}",
            hint="start it, or unset PREFECT_API_URL, or use --runner plain",
        ) from error


def _tagged() -> AbstractContextManager[Any]:
    """Return the tag by which a run without heartbeats counts as crashed, unless this process has them more seldom."""
    frequency = get_current_settings().flows.heartbeat_frequency
    return tags(TAG) if frequency is not None and frequency <= HEARTBEAT_SECONDS else nullcontext()
