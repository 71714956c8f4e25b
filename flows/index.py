"""The index flow: the diagram of ARCHITECTURE.md as code.

::

    plan --> load --> chunk --> contextualize --> embed --> passages --+
                                      |                                +--> candidate --> verify --> flip
                                      +---------> tokens --------------+
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence, Set
from types import MappingProxyType

from flows.author import author
from flows.meter import Meter
from flows.report import describe, quarantine, report
from flows.runner import Batches, Runner
from schemas.errors import GlossatorError, Overtaken, PublishRefused, TransientError
from schemas.plan import Plan
from schemas.report import IndexReport
from schemas.snapshot import STAGES, Failure, Flip, PartRef, Snapshot, Stage
from schemas.work import ShardJob
from tasks.chunk.step import CHUNK
from tasks.contextualize.step import CONTEXTUALIZE
from tasks.embed.step import EMBED
from tasks.lake.access import LEFT, leave_to_the_next_run, left_of_purges, read_tombstones
from tasks.lake.lake import Lake
from tasks.lake.lease import publishing
from tasks.load.step import LOAD
from tasks.plan.changes import ACTIONS
from tasks.plan.planner import PlanOptions, make_plan
from tasks.plan.registry import record_sources
from tasks.progress import listen, unlisten
from tasks.publish.candidate import assemble, flip, verify
from tasks.publish.milvus import one_server
from tasks.publish.passages import PASSAGES
from tasks.publish.purge import purge
from tasks.publish.stores import BM25, CATALOG, VECTORS
from tasks.publish.sweep import sweep
from tasks.step import lake_of
from tasks.tokens.step import TOKENIZE

Parts = Mapping[Stage, Sequence[PartRef]]
MOST_ATTEMPTS = 5


def build(run: Runner, plan: Plan, earlier: Parts = MappingProxyType({})) -> Parts:
    """Build the shards of a plan; return one part per stage and shard, reused ones included.

    Args:
        earlier: parts of an earlier wave of this run; shards whose documents are the same are taken from it.
    """
    space = plan.workspace
    done = _built(plan, earlier)
    batches = _batches([job for job in plan.jobs if job.shard not in done], space.config.run.tasks_per_stage)
    loaded = run.stage(LOAD, space, batches)
    chunked = run.stage(CHUNK, space, batches, loaded)
    contexts = run.stage(CONTEXTUALIZE, space, batches, loaded, chunked)
    embedded = run.stage(EMBED, space, batches, contexts)
    tokens = run.stage(TOKENIZE, space, batches, contexts)
    passages = run.stage(PASSAGES, space, batches, loaded, chunked, contexts, embedded)
    handles = (loaded, chunked, contexts, embedded, tokens, passages)
    built = {stage: run.gather(handle) for stage, handle in zip(STAGES, handles, strict=True)}
    return {
        stage: sorted(
            [
                *plan.reused[stage].values(),
                *built[stage],
                *(ref for ref in earlier.get(stage, ()) if ref.shard in done),
            ],
            key=lambda ref: ref.shard,
        )
        for stage in STAGES
    }


def _built(plan: Plan, earlier: Parts) -> frozenset[int]:
    loaded = {ref.shard: ref.key for ref in earlier.get("load", ())}
    return frozenset(job.shard for job in plan.jobs if loaded.get(job.shard) == job.load_key)


def _batches(jobs: Sequence[ShardJob], tasks: int) -> Batches:
    size = max(1, -(-len(jobs) // tasks))
    return [jobs[start : start + size] for start in range(0, len(jobs), size)]


def settle(run: Runner, plan: Plan, options: PlanOptions) -> tuple[Plan, Parts]:
    """Build a plan until no document fails that the plan does not know of.

    When documents fail, they are quarantined and the plan is made again: without them, or with their last good
    version. All other parts are there by then.
    """
    lake = lake_of(plan.workspace)
    parts: Parts = {}
    failed: list[Failure] = []
    while True:
        parts = build(run, plan, parts)
        refuse_losses(lake, plan, parts)
        new = failures_of(lake, plan, parts)
        if not new:
            quarantine(lake, plan)
            return plan, parts
        failed += new
        quarantine(lake, plan, failed)
        plan = _again(lake, plan, options, failed)


def publish(run: Runner, plan: Plan, parts: Parts, reason: str) -> tuple[Snapshot, Flip, tuple[str, ...]]:
    """Build the stores of the candidate, verify it, make it current, and sweep, all under the lease.

    Returns:
        The snapshot, its flip, and warnings: what is published stays so, whatever the sweep says.

    Raises:
        Overtaken: somebody else published since the plan was made; nothing was overwritten.
    """
    space, lake = plan.workspace, lake_of(plan.workspace)
    passages = parts["passages"]
    if not sum(ref.counts["chunks"] for ref in passages) and not plan.removes:
        record_sources(lake, plan.new_sources)  # Its files are in quarantine, and the next run tries its folder again.
        raise GlossatorError(
            f"no document of collection {space.collection!r} could be indexed",
            hint="`glossator quarantine list` says why; mend the files and run `glossator index` again",
        )
    with (
        publishing(lake, f"{author()} ({reason})", space.config.run.lease_wait_seconds) as held,
        one_server(lake, space.config.milvus),
    ):
        newest = lake.current_flip()
        overtaken = Overtaken(f"somebody else has published to {lake.collection!r} since flip {plan.flip}")
        if (newest.number if newest else 0) != plan.flip:
            raise overtaken
        try:
            catalog = run.whole(CATALOG, space, passages)
            bm25 = run.whole(BM25, space, catalog, passages, parts["tokens"])
            run.whole(VECTORS, space, catalog, passages, plan.parent)
            candidate = assemble(space, lake, plan, parts, catalog, bm25)
            verify(space, lake, candidate, frozenset(job.shard for job in plan.jobs))
            if not held.still_ours():
                raise overtaken
            pointer = flip(lake, plan, candidate, author=author(), reason=reason)
        except GlossatorError as error:
            if isinstance(error, Overtaken) or not held.was_taken():
                raise
            raise overtaken from error  # Paused for longer than its lease: a sweep took what belonged to nobody.
        try:
            sweep(lake, space.config.milvus, held.still_ours)
        except GlossatorError as error:
            return candidate, pointer, (f"published, but not swept: {error}",)
        return candidate, pointer, ()


def index(run: Runner, plan: Plan, options: PlanOptions, reason: str) -> IndexReport:
    """Carry out a plan: build, publish, report, and erase again what was purged meanwhile.

    What failed first is what is raised. A run that is told to end does so at once: the next one erases that too.
    """
    meter, lake = Meter(), lake_of(plan.workspace)
    known = frozenset(plan.purged) - left_of_purges(lake)
    listen(meter)
    try:
        described = _carry_out(run, plan, options, reason, meter)
    except Exception as error:
        left = _purge_again(lake, plan, known)
        if isinstance(error, GlossatorError):
            error.hint = "; ".join(filter(None, (error.hint, *left))) or None
        raise
    except BaseException:
        leave_to_the_next_run(lake, known)
        raise
    finally:
        unlisten(meter)
    left = _purge_again(lake, plan, known)
    return described.model_copy(update={"warnings": (*described.warnings, *left)})


def _carry_out(run: Runner, plan: Plan, options: PlanOptions, reason: str, meter: Meter) -> IndexReport:
    """Build, publish, report. Overtaken by another publisher, plan again: parts are reused."""
    begun, lake, mended = time.perf_counter(), lake_of(plan.workspace), plan.damaged
    for attempt in range(1, MOST_ATTEMPTS + 1):
        purged = read_tombstones(lake).keys()
        try:
            plan, parts = settle(run, plan, options)
            if plan.nothing_to_do:
                record_sources(lake, plan.new_sources)  # All of its documents failed: they are in quarantine.
                return _told(describe(lake, plan), meter, mended, begun)
            snapshot, pointer, warnings = publish(run, plan, parts, reason)
            break
        except GlossatorError as error:
            # A purge takes away what it finds, from under a run too.
            overtaken = isinstance(error, Overtaken) or read_tombstones(lake).keys() != purged
            if not overtaken or attempt == MOST_ATTEMPTS:
                raise
            plan = _again(lake, plan, options, ())
    described = _told(report(plan, snapshot, pointer), meter, mended, begun)
    return described.model_copy(update={"published": True, "warnings": (*described.warnings, *warnings)})


def _told(described: IndexReport, meter: Meter, mended: tuple[str, ...], begun: float) -> IndexReport:
    """Add to a report what was done for it."""
    return described.model_copy(
        update={
            "chunks_embedded": meter.embedded,
            "chunks_reused": max(0, described.chunks - meter.embedded),
            "seconds": {**meter.seconds, "total": round(time.perf_counter() - begun, 3)},
            "mended": mended,
        }
    )


def _purge_again(lake: Lake, plan: Plan, known: Set[str]) -> tuple[str, ...]:
    """Erase what was purged while this run went on: it may have written parts of it since.

    Returns:
        Warnings: what could not be erased now is left to the next run, or to the same purge again. No reader shows it.
    """
    config = plan.workspace.config
    try:
        for stone in leave_to_the_next_run(lake, known):
            with publishing(lake, f"{author()} (purge)", config.run.lease_wait_seconds) as held:
                purge(lake, config.milvus, stone, held.still_ours)
            lake.storage.delete(f"{LEFT}/{stone.doc_id}")
    except (GlossatorError, OSError) as error:
        what = error.what if isinstance(error, GlossatorError) else str(error)
        return (f"not erased again: what was purged during this run ({what}): the next `glossator index` does it",)
    return ()


def failures_of(lake: Lake, plan: Plan, parts: Parts, actions: Collection[str] = ACTIONS) -> list[Failure]:
    """Return the failures of documents that a plan asked for, of some actions. (Parts also tell of earlier plans.)"""
    if not plan.jobs:
        return []
    table = lake.read_frame(plan.jobs[0].plan)
    if table is None:
        raise TransientError("the plan of this run is gone from state/plans", hint="run the same command again")
    actions_of = dict(table.select("doc_id", "action").iter_rows())
    return [
        failure
        for refs in parts.values()
        for ref in refs
        for failure in ref.failures
        if actions_of.get(failure.doc_id) in actions
    ]


def refuse_losses(lake: Lake, plan: Plan, parts: Parts) -> None:
    """Refuse parts without documents that are published and ought to stay.

    Their rows must be made anew after a change of config or code, and their bytes cannot be had: the file got worse,
    or the source was not listed and is gone.

    Raises:
        PublishRefused
    """
    lost = failures_of(lake, plan, parts, {"stale", "carried"})
    if lost:
        raise PublishRefused(
            f"{len(lost)} published document(s) would be lost by this change of config or code: "
            + lost[0].message.partition(" -> ")[0],
            document=lost[0].uri,
            hint="bring the files back, index their source as it is now, or set the configuration back",
        )


def _again(lake: Lake, plan: Plan, options: PlanOptions, failed: Sequence[Failure]) -> Plan:
    names = {source.name for source in plan.sources}
    listed = [spec for spec in plan.workspace.sources if spec.name in names]
    return make_plan(lake, plan.workspace.config, listed, options, failed)
