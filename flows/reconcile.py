"""Bring sources up to date: plan, and carry the plan out where there is something to do.

What `glossator index` and the served flows share. Loads neither Prefect nor a model: "nothing to do" needs none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flows.report import describe, quarantine, told_before
from flows.source_list import count_documents
from schemas.config import Config
from schemas.errors import UsageError
from schemas.plan import Plan
from schemas.report import IndexReport
from schemas.work import SourceSpec
from tasks.lake.access import left_of_purges
from tasks.lake.lake import Lake
from tasks.plan.planner import PlanOptions, make_plan
from tasks.plan.quarantine import read_quarantine
from tasks.plan.registry import list_sources, record_sources


def recorded_sources(lake: Lake) -> list[SourceSpec]:
    """Return all sources of a collection.

    Raises:
        UsageError: there is none.
    """
    specs = list_sources(lake)
    if specs:
        return specs
    published = sorted(count_documents(lake))
    if not published:
        raise UsageError(f"collection {lake.collection!r} has no source yet", hint="run `glossator index FOLDER`")
    raise UsageError(
        f"collection {lake.collection!r} has published documents of {', '.join(published)}, and no folder is recorded "
        "for them any more",
        hint=f"run `glossator index FOLDER --source {published[0]}` with the folder that has them",
    )


def reconcile(
    lake: Lake,
    config: Config,
    specs: Sequence[SourceSpec],
    options: PlanOptions,
    carry_out: Callable[[Plan], IndexReport],
) -> IndexReport:
    """Make the published index say what the sources say now.

    Args:
        carry_out: builds and publishes a plan; not called when there is nothing to do.

    Raises:
        GlossatorError: what was published stays.
    """
    before = read_quarantine(lake)
    plan = make_plan(lake, config, specs, options)
    if plan.nothing_to_do and not left_of_purges(lake):
        quarantine(lake, plan)
        record_sources(lake, plan.new_sources)  # Their documents are published already: the records were lost.
        report = describe(lake, plan)
    else:
        report = carry_out(plan)
    return report.model_copy(update={"failed_before": told_before(before, report.failed)})
