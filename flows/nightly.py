"""The nightly flow: what a Prefect server starts by itself, on a schedule or from its form.

It does what `glossator index` without a folder does, with the same configuration, and says in its final state what came
of it: nobody reads a log of last night before something is wrong.
"""

from __future__ import annotations

from io import StringIO
from typing import Any

from prefect import flow, get_run_logger
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed
from rich.console import Console

from flows.commands.door import Door
from flows.console import show_report
from flows.reconcile import reconcile, recorded_sources
from query.layout import counted
from schemas.errors import GlossatorError
from schemas.plan import Plan
from schemas.report import IndexReport
from schemas.snapshot import SHORT
from tasks.plan.planner import PlanOptions


@flow(name="nightly")
def nightly(collection: str | None = None, reason: str = "nightly") -> State[Any]:
    """Bring all recorded sources of a collection up to date, and publish what changed.

    Settings come from glossator.toml and the environment of the serving process. A run that is refused ends as Failed
    and changes nothing; documents that cannot be indexed are quarantined, and the others are published.

    Args:
        collection: What is brought up to date; empty: the configured one.
        reason: What the collection's history says of the publish.
    """
    try:
        report = _bring_up_to_date(collection, reason)
    except GlossatorError as error:
        return Failed(message=" ".join(str(error).split()))
    get_run_logger().info("%s", _shown(report))
    return Completed(message=summary(report))


def _bring_up_to_date(collection: str | None, reason: str) -> IndexReport:
    door = Door(collection or None, None, None)
    lake, options = door.lake(), PlanOptions()

    def carry_out(plan: Plan) -> IndexReport:
        from flows.index_flow import index_with_prefect

        return index_with_prefect(plan, options, reason)

    return reconcile(lake, door.config, recorded_sources(lake), options, carry_out)


def summary(report: IndexReport) -> str:
    """Return what a run did in one line."""
    snapshot = report.snapshot[:SHORT]
    if report.published:
        counts = report.documents
        changes = f"{counts.added:,} added, {counts.changed + counts.renamed:,} changed, {counts.deleted:,} deleted"
        line = f"Published snapshot {snapshot} (flip {report.flip}): {changes}, {report.chunks_embedded:,} embedded"
    elif report.mended:
        line = f"Mended snapshot {snapshot}: {counted(len(report.mended), 'part or store')} built anew"
    else:
        line = f"Nothing to do: snapshot {snapshot} is up to date"
    if report.failed:
        line += f"; {counted(len(report.failed), 'document')} in quarantine: `glossator quarantine list`"
    return line + "".join(f"; {warning}" for warning in report.warnings)


def _shown(report: IndexReport) -> str:
    page = StringIO()
    show_report(Console(file=page, width=120, highlight=False), report)
    return page.getvalue().rstrip()
