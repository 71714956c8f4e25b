"""Bring sources up to date: plan, and carry the plan out where there is something to do.

What `glossator index` and the served flows share. Loads neither Prefect nor a model: "nothing to do" needs none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flows.report import describe, quarantine
from schemas.config import Config
from schemas.errors import UsageError
from schemas.plan import Plan
from schemas.report import IndexReport
from schemas.work import SourceSpec
from tasks.lake.access import left_of_purges
from tasks.lake.lake import Lake
from tasks.plan.planner import PlanOptions, make_plan
from tasks.plan.registry import list_sources, record_source


def recorded_sources(lake: Lake) -> list[SourceSpec]:
    """Return all sources of a collection.

    Raises:
        UsageError: there is none.
    """
    specs = list_sources(lake)
    if not specs:
        raise UsageError(f"collection {lake.collection!r} has no source yet", hint="run `glossator index FOLDER`")
    return specs


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
    plan = make_plan(lake, config, specs, options)
    if plan.nothing_to_do and not left_of_purges(lake):
        quarantine(lake, plan)
        for spec in plan.new_sources:  # Its documents are published already: its record was lost.
            record_source(lake, spec)
        return describe(lake, plan)
    return carry_out(plan)
