"""The planner: survey the sources, guard, and lay out the shards to build."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import polars as pl

from schemas.config import Config
from schemas.errors import PlanRefused
from schemas.plan import ChangeCounts, Plan
from schemas.snapshot import Failure
from schemas.work import SourceSpec, Workspace
from tasks.lake.access import Said, access_version, narrow, read_tombstones, withheld
from tasks.lake.lake import Corrupt, Lake
from tasks.lake.storage import NotFound
from tasks.plan.baseline import read_baseline
from tasks.plan.changes import REGRANTED, name_changes
from tasks.plan.damage import NO_DAMAGE, find_damage
from tasks.plan.grants import grant, known_groups, revoke_by_rules
from tasks.plan.guard import refuse_deletions
from tasks.plan.migration import find_migration
from tasks.plan.quarantine import read_quarantine
from tasks.plan.registry import list_sources
from tasks.plan.sharding import lay_out, reused_parts
from tasks.plan.stages import stage_digests, stamp_model, stores_digest
from tasks.plan.survey import Survey, survey
from tasks.publish.pointer import describe_hold


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What a person allowed this run to do.

    Attributes:
        migrate: redo unchanged documents because config, code or model changed.
        allow_deletes: delete up to this many documents, though they are more than the guard lets pass.
        dry_run: only look, while publishing is held too and whatever the guard says; such a plan cannot be published
            then. It names each document that changes; a run has no use for millions of names. Without it, what rules
            and sidecars take away counts for readers from now on, whatever becomes of the run.
        without: sources whose documents shall go from the index, whatever their roots hold.
    """

    migrate: bool = False
    allow_deletes: int = 0
    dry_run: bool = False
    without: tuple[str, ...] = ()


def workspace(lake: Lake, config: Config, listed: Sequence[SourceSpec] = ()) -> Workspace:
    """Return what every step of a run is given."""
    model = stamp_model(lake, config)
    sources = {spec.name: spec for spec in (*list_sources(lake), *listed)}
    return Workspace(
        lake=lake.root,
        config=config,
        model=model,
        sources=tuple(spec for _, spec in sorted(sources.items())),
        stages=stage_digests(config, model),
    )


def make_plan(
    lake: Lake,
    config: Config,
    listed: Sequence[SourceSpec],
    options: PlanOptions | None = None,
    failed: Sequence[Failure] = (),
) -> Plan:
    """Plan a run over some sources; documents of all others are carried over.

    Args:
        failed: what failed already in this run and is not tried again in it.

    Raises:
        PlanRefused: publishing is held, a listing failed or is empty, too much would be deleted, or unchanged
            documents would be redone without ``migrate``. Nothing was changed, but for who may see what.
    """
    options = options or PlanOptions()
    flip = lake.current_flip()
    space = workspace(lake, config, listed)
    snapshot = lake.read_snapshot(flip.snapshot) if flip else None
    recorded = {spec.name for spec in list_sources(lake)}

    held = describe_hold(lake, flip) if flip is not None and flip.hold else ""
    try:
        published = read_baseline(lake, snapshot)
    except (Corrupt, NotFound):
        if held and not options.dry_run:  # What is lost can be repaired under a hold; a run may not.
            raise PlanRefused(held, hint="glossator resume") from None
        raise
    tombstones = read_tombstones(lake)
    quarantine = read_quarantine(lake)
    surveys: list[Survey] = []
    unlisted: list[PlanRefused] = []
    for spec in listed:
        try:
            surveys.append(survey(space, lake, spec, published, failed, quarantine, tombstones))
        except PlanRefused as error:  # Said below: what the others and the rules take away counts before that.
            unlisted.append(error)
    target = _target(surveys, published, options.without, list(tombstones))
    target = grant(target, config.access.rules, {found.summary.name: found.sidecars for found in surveys})
    groups = known_groups(target)
    had_groups = published.filter(pl.col("groups").is_not_null())["doc_id"].to_list()
    said = Said(frozenset(target["doc_id"].to_list()), groups, had_groups)
    rights = access_version(lake)
    if not options.dry_run:
        revoke_by_rules(lake, config.access.rules, flip, published, said.documents)
    access = None if options.dry_run else narrow(lake, said)
    if unlisted and (options.dry_run or not held):
        raise _with_rights(unlisted[0], taken=access_version(lake) != rights)
    removed = published.filter(pl.col("source").is_in(list(options.without))).select("doc_id", "source", "uri")
    deleted = pl.concat([*(found.changes.deleted for found in surveys), removed])
    migration = find_migration(snapshot, config, space.stages, target, allowed=options.migrate)
    guard = refuse_deletions(deleted, published, options.allow_deletes, options.without)
    refusals = [refusal for refusal in (guard, migration.refusal) if refusal is not None]
    if not options.dry_run and (held or refusals):
        refusal = PlanRefused(held, hint="glossator resume") if held else refusals[0]
        raise _with_rights(refusal, taken=access_version(lake) != rights)
    damage = find_damage(lake, config, snapshot) if snapshot else NO_DAMAGE
    shards, jobs = lay_out(lake, snapshot, space.stages, target, published, migration.stages, damage.shards)
    sizes = {doc_id: size for found in surveys for doc_id, size in found.sizes.items()}
    to_read = target.filter(pl.col("action").is_in(["added", "changed"]))["doc_id"]
    return Plan(
        workspace=space,
        parent=snapshot.name if snapshot else None,
        flip=flip.number if flip else 0,
        counts=_counts(target, deleted.height, sum(len(found.failures) for found in surveys)),
        sources=tuple(found.summary for found in surveys),
        new_sources=tuple(spec for spec in listed if spec.name not in recorded),
        shards=shards,
        jobs=jobs,
        reused=reused_parts(snapshot, shards, jobs),
        failures=tuple(failure for found in surveys for failure in found.failures),
        bytes=sum(sizes.get(doc_id, 0) for doc_id in to_read),
        migrates=migration.stages,
        redone=migration.redone,
        rebuilds_stores=snapshot is not None and snapshot.config_digests.get("stores") != stores_digest(config),
        damaged=damage.keys,
        held=held,
        refused="\n".join(refusal.message for refusal in refusals),
        removes=options.without,
        changes=name_changes(target, deleted, published) if options.dry_run else (),
        restricted=len(groups),
        returned=tuple(sorted({*published["source"]} - recorded - {spec.name for spec in listed} - {*options.without})),
        purged=tuple(tombstones),
        unread=target.filter(pl.col("action").is_in(["added", "copied", "changed", "renamed"])).height,
        had_groups=tuple(had_groups),
        access=access,
        withheld=withheld(lake, replace(said, documents=_unchanged(target))) if groups or access else 0,
    )


def _target(
    surveys: Sequence[Survey],
    published: pl.DataFrame,
    without: Sequence[str],
    purged: list[str],
) -> pl.DataFrame:
    """Return the documents as they shall be, sorted by doc_id, each with what was granted and stated before."""
    not_carried = [*(found.summary.name for found in surveys), *without]
    others = published.filter(~pl.col("source").is_in(not_carried) & ~pl.col("doc_id").is_in(purged))
    carried = others.select(
        "doc_id", "source", "uri", "content_digest", action=pl.lit("carried"), donor=pl.col("doc_id")
    )
    before = published.select("doc_id", was_granted="granted", was_stated="stated_groups")
    target = pl.concat([*(found.changes.target for found in surveys), carried])
    return target.join(before, on="doc_id", how="left").sort("doc_id")


def _unchanged(target: pl.DataFrame) -> frozenset[str]:
    return frozenset(target.filter(pl.col("action") == "unchanged")["doc_id"].to_list())


def _with_rights(refusal: PlanRefused, *, taken: bool) -> PlanRefused:
    """Return a refusal that says what counts all the same."""
    if not taken:
        return refusal
    return PlanRefused(f"{refusal.what} (rights that rules or sidecars take away count already)", hint=refusal.hint)


def _counts(target: pl.DataFrame, deleted: int, failed: int) -> ChangeCounts:
    actions = Counter(target["action"].to_list())
    same_bytes = target.filter(pl.col("action").is_in(["unchanged", "carried"]))
    regranted = same_bytes.filter(REGRANTED).height
    return ChangeCounts(
        added=actions["added"] + actions["copied"],
        changed=actions["changed"] + regranted,
        renamed=actions["renamed"],
        deleted=deleted,
        unchanged=same_bytes.height - regranted,
        failed=failed,
    )
