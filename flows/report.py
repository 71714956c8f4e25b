"""What a run says of itself: its report, and the record of what failed.

Apart from ``index``, so that "nothing to do" is said without importing a single step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from schemas.plan import Plan
from schemas.report import IndexReport
from schemas.snapshot import Failure, Flip, Snapshot
from tasks.lake.lake import Lake
from tasks.plan.quarantine import Quarantined, record_failures


def quarantine(lake: Lake, plan: Plan, failures: Sequence[Failure] = ()) -> None:
    """Record what failed: what the plan knew, and what happened since."""
    record_failures(lake, [source.name for source in plan.sources], [*plan.failures, *failures], plan.workspace.stages)


def told_before(before: Mapping[str, Quarantined], failures: Iterable[Failure]) -> tuple[str, ...]:
    """Return the doc_ids of failures that were in quarantine already: the same version, with the same error.

    Args:
        before: the quarantine before the run.
    """

    def told(failure: Failure) -> tuple[str, str, str]:
        return failure.content_digest, failure.kind, failure.message

    return tuple(
        failure.doc_id
        for failure in failures
        if failure.doc_id in before and told(before[failure.doc_id].failure) == told(failure)
    )


def describe(lake: Lake, plan: Plan) -> IndexReport:
    """Return the report of a plan with nothing to do: what is published stays."""
    pointer, snapshot = lake.current_flip(), lake.current_snapshot()
    assert pointer is not None and snapshot is not None
    return report(plan, snapshot, pointer).model_copy(update={"chunks_reused": snapshot.counts.chunks})


def report(plan: Plan, snapshot: Snapshot, pointer: Flip) -> IndexReport:
    """Return the report of a plan and the snapshot that stands for it."""
    skipped: Counter[str] = Counter()
    for source in plan.sources:
        skipped.update(source.skipped)
    return IndexReport(
        collection=snapshot.collection,
        snapshot=snapshot.id,
        flip=pointer.number,
        documents=plan.counts,
        redone=plan.redone,
        chunks=snapshot.counts.chunks,
        skipped=dict(sorted(skipped.items())),
        skipped_first=tuple(f"{source.name}/{uri}" for source in plan.sources for uri in source.skipped_first),
        left_out=tuple((f"{source.name}/{name}", why) for source in plan.sources for name, why in source.unusable),
        denied=tuple((f"{source.name}/{uri}", why) for source in plan.sources for uri, why in source.denied),
        failed=plan.failures,
        warnings=tuple(
            f"source {name!r} had been removed and is published again: `glossator source remove {name}`"
            for name in plan.returned
        ),
    )
