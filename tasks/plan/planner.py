"""The planner: list, compare, guard, and lay out the shards to build."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import polars as pl

from schemas.config import Config
from schemas.errors import PlanRefused
from schemas.identity import digest_rows, shard_count, shard_of
from schemas.plan import ChangeCounts, Plan, SourceSummary
from schemas.snapshot import STAGES, Failure, PartRef, Snapshot, Stage
from schemas.tables import PLAN
from schemas.work import ShardJob, SourceSpec, Workspace
from tasks.lake.lake import Corrupt, Lake, catalog_folder, rebuild_hint
from tasks.lake.storage import NotFound
from tasks.load.loader import document_type
from tasks.load.step import load_key
from tasks.plan.changes import ChangeSet, compare
from tasks.plan.damage import NO_DAMAGE, find_damage
from tasks.plan.listing import DigestedListing, digest_listing, remember_hints
from tasks.plan.quarantine import Quarantined, read_quarantine, still_failing
from tasks.plan.registry import list_sources
from tasks.plan.source import Listing, Source, open_source
from tasks.plan.stages import stage_digests, stamp_model, stores_digest
from tasks.publish.pointer import describe_hold

GUARD_DOCUMENTS = 10
GUARD_SHARE = 0.1
_PUBLISHED = ["doc_id", "source", "uri", "content_digest", "shard"]


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What a person allowed this run to do.

    Attributes:
        migrate: redo unchanged documents because config, code or model changed.
        allow_deletes: delete up to this many documents, though they are more than the guard lets pass.
        despite_hold: plan while publishing is held, to see what would change; such a plan cannot be published.
    """

    migrate: bool = False
    allow_deletes: int = 0
    despite_hold: bool = False


@dataclass(slots=True)
class _Found:
    """What listing the sources gave."""

    target: list[pl.DataFrame] = field(default_factory=list)
    deleted: int = 0
    failures: list[Failure] = field(default_factory=list)
    summaries: list[SourceSummary] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)


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
            documents would be redone without ``migrate``. Nothing was changed.
    """
    options = options or PlanOptions()
    flip = lake.current_flip()
    if flip is not None and flip.hold and not options.despite_hold:
        raise PlanRefused(describe_hold(lake, flip), hint="glossator resume")
    space = workspace(lake, config, listed)
    stages = space.stages
    snapshot = lake.read_snapshot(flip.snapshot) if flip else None
    recorded = {spec.name: spec for spec in list_sources(lake)}
    new = tuple(spec for spec in listed if spec.name not in recorded)

    published = _published(lake, snapshot)
    found = _look(space, lake, listed, published, failed)
    others = published.filter(~pl.col("source").is_in([spec.name for spec in listed]))
    carried = others.select(
        "doc_id", "source", "uri", "content_digest", action=pl.lit("carried"), donor=pl.col("doc_id")
    )
    target = pl.concat([*found.target, carried]).sort("doc_id")
    _guard(found, published, options)
    migrates = _migration(snapshot, stages, target, options)
    damage = find_damage(lake, config, snapshot) if snapshot else NO_DAMAGE
    shards, jobs = _jobs(lake, snapshot, stages, target, published, migrates, damage.shards)
    return Plan(
        workspace=space,
        parent=snapshot.name if snapshot else None,
        flip=flip.number if flip else 0,
        counts=_counts(target, found),
        sources=tuple(found.summaries),
        new_sources=new,
        shards=shards,
        jobs=jobs,
        reused=_reused(snapshot, shards, jobs),
        failures=tuple(found.failures),
        bytes=sum(
            found.sizes.get(doc_id, 0)
            for doc_id in target.filter(pl.col("action").is_in(["added", "changed"]))["doc_id"]
        ),
        migrates=migrates,
        rebuilds_stores=snapshot is not None and snapshot.config_digests.get("stores") != stores_digest(config),
        damaged=damage.keys,
        held=describe_hold(lake, flip) if flip is not None and flip.hold else "",
    )


def _published(lake: Lake, snapshot: Snapshot | None) -> pl.DataFrame:
    if snapshot is None:
        names = {name: pl.Int32 if name == "shard" else pl.String for name in _PUBLISHED}
        return pl.DataFrame(schema=names)
    try:
        path = lake.open_folder(catalog_folder(snapshot.catalog)) / "documents.arrow"
    except (NotFound, Corrupt):  # To be built anew, see damage.py; the passages say the same.
        from tasks.publish.catalog import list_documents  # Rarely needed, and it brings pyarrow.

        return list_documents(lake, snapshot.parts["passages"]).select(_PUBLISHED)
    try:
        return pl.read_ipc(path, columns=_PUBLISHED).select(_PUBLISHED)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise Corrupt(f"{path} is damaged ({error})", hint=rebuild_hint(path.parent)) from error


def _look(
    space: Workspace,
    lake: Lake,
    listed: Sequence[SourceSpec],
    published: pl.DataFrame,
    failed: Sequence[Failure],
) -> _Found:
    quarantine = read_quarantine(lake)
    found = _Found()
    for spec in listed:
        source = open_source(spec, space.config.load)
        listing = source.listing()
        digested = _digest(lake, source, listing, published, found)
        failing = _failing(spec.name, digested, quarantine, space.stages)
        uris = set(digested.table["uri"])
        failing |= {failure.uri: failure for failure in failed if failure.source == spec.name and failure.uri in uris}
        changes = compare(spec.name, digested.table.select("uri", "content_digest"), failing, published)
        _collect(found, spec.name, changes, digested, failing)
        remember_hints(lake, spec.name, digested.table)
    return found


def _digest(lake: Lake, source: Source, listing: Listing, published: pl.DataFrame, found: _Found) -> DigestedListing:
    supported = [entry.uri for entry in listing.entries if document_type(entry.uri) is not None]
    skipped = Counter(
        entry.uri.rpartition("/")[2].rpartition(".")[2].lower() if "." in entry.uri else "(no ending)"
        for entry in listing.entries
        if document_type(entry.uri) is None
    )
    if not supported:
        name = source.spec.name
        before = published.filter(pl.col("source") == name).height
        consequence = f"; its {before} published documents stay" if before else ""
        kinds = ", ".join(f"{count} .{ending}" for ending, count in skipped.most_common(5))
        raise PlanRefused(
            f"source {name!r} ({source.spec.root}) lists no document{f' ({kinds})' if kinds else ''}{consequence}",
            hint="put documents there (PDF, Markdown, HTML, text, code) or check that the folder is mounted",
        )
    digested = digest_listing(lake, source, listing, pl.Series(supported, dtype=pl.String))
    found.summaries.append(
        SourceSummary(
            name=source.spec.name,
            listed=len(supported),
            skipped=dict(sorted(skipped.items())),
            unusable=listing.unusable,
            hashed=digested.hashed,
        )
    )
    return digested


def _failing(
    source: str, digested: DigestedListing, quarantine: dict[str, Quarantined], stages: dict[Stage, str]
) -> dict[str, Failure]:
    failing = {failure.uri: failure for failure in digested.failures}
    digests = dict(zip(digested.table["uri"].to_list(), digested.table["content_digest"].to_list(), strict=True))
    for item in quarantine.values():
        uri = item.failure.uri
        if item.failure.source == source and still_failing(item, digests.get(uri, ""), stages):
            failing[uri] = item.failure
    return failing


def _collect(
    found: _Found, source: str, changes: ChangeSet, digested: DigestedListing, failing: dict[str, Failure]
) -> None:
    found.target.append(changes.target)
    found.deleted += changes.deleted.height
    found.failures.extend(failing.values())
    sizes = dict(zip(digested.table["uri"].to_list(), digested.table["size"].to_list(), strict=True))
    for doc_id, uri in changes.target.select("doc_id", "uri").iter_rows():
        found.sizes[doc_id] = sizes.get(uri, 0)


def _guard(found: _Found, published: pl.DataFrame, options: PlanOptions) -> None:
    if found.deleted > max(GUARD_DOCUMENTS, options.allow_deletes) and found.deleted > GUARD_SHARE * published.height:
        raise PlanRefused(
            f"{found.deleted} of {published.height} documents are gone from their sources",
            hint=f"if that is right, run again with --allow-deletes {found.deleted}",
        )


def _migration(
    snapshot: Snapshot | None, stages: dict[Stage, str], target: pl.DataFrame, options: PlanOptions
) -> tuple[Stage, ...]:
    if snapshot is None:
        return ()
    changed: tuple[Stage, ...] = tuple(stage for stage in STAGES if snapshot.config_digests.get(stage) != stages[stage])
    kept = target.filter(pl.col("action").is_in(["unchanged", "carried", "stale"])).height
    if changed and kept and not options.migrate:
        raise PlanRefused(
            f"config, code or model changed for {', '.join(changed)}: {kept} unchanged documents would be redone",
            hint="run again with --migrate, or set the configuration back",
        )
    return changed


def _counts(target: pl.DataFrame, found: _Found) -> ChangeCounts:
    actions = Counter(target["action"].to_list())
    return ChangeCounts(
        added=actions["added"] + actions["copied"],
        changed=actions["changed"],
        renamed=actions["renamed"],
        deleted=found.deleted,
        unchanged=actions["unchanged"] + actions["carried"],
        failed=len(found.failures),
    )


def _jobs(
    lake: Lake,
    snapshot: Snapshot | None,
    stages: dict[Stage, str],
    target: pl.DataFrame,
    published: pl.DataFrame,
    migrates: tuple[Stage, ...],
    damaged: frozenset[int],
) -> tuple[int, tuple[ShardJob, ...]]:
    shards = _shards(snapshot, target.height)
    resharded = snapshot is not None and snapshot.shards != shards
    wanted = target.with_columns(
        shard=pl.Series([shard_of(doc_id, shards) for doc_id in target["doc_id"]], dtype=pl.Int32)
    )
    now = _by_shard(wanted)
    before = _by_shard(published)
    # A shard without documents has a part too: parts are looked up by shard.
    everything = snapshot is None or resharded or bool(migrates)
    todo = [shard for shard in range(shards) if everything or shard in damaged or now.get(shard) != before.get(shard)]
    if not todo:
        return shards, ()
    table = wanted.filter(pl.col("shard").is_in(todo))
    plan = f"state/plans/{digest_rows(table.select('doc_id', 'content_digest', 'action', 'shard').iter_rows())}.arrow"
    lake.write_frame(plan, table.select(PLAN.names))
    homes = dict(zip(published["doc_id"].to_list(), published["shard"].to_list(), strict=True))
    older = _older(lake, snapshot) if "added" in set(table["action"]) else ()
    siblings = _siblings(table)
    by_shard = {shard: rows for (shard,), rows in table.partition_by("shard", as_dict=True).items()}
    jobs = []
    for shard in todo:
        rows = by_shard.get(shard, table.clear())
        donor_shards = {homes[doc_id] for doc_id in rows["donor"].drop_nulls().to_list()}
        donor_shards |= {homes[doc_id] for doc_id in rows["doc_id"].to_list() if doc_id in homes}
        jobs.append(
            ShardJob(
                shard=shard,
                plan=plan,
                load_key=load_key(stages["load"], now.get(shard, frozenset())),
                donors=_donors(lake, snapshot, shard, sorted(donor_shards), older),
                siblings=siblings.get(shard, ()),
            )
        )
    return shards, tuple(jobs)


def _shards(snapshot: Snapshot | None, documents: int) -> int:
    wanted = shard_count(documents)
    if snapshot is not None and snapshot.shards / 4 < wanted <= snapshot.shards * 2:
        return snapshot.shards
    return wanted


def _by_shard(documents: pl.DataFrame) -> dict[int, frozenset[tuple[str, str]]]:
    grouped: dict[int, set[tuple[str, str]]] = {}
    for shard, doc_id, content in documents.select("shard", "doc_id", "content_digest").iter_rows():
        grouped.setdefault(shard, set()).add((doc_id, content))
    return {shard: frozenset(rows) for shard, rows in grouped.items()}


def _older(lake: Lake, snapshot: Snapshot | None) -> tuple[Snapshot, ...]:
    """Return the retained snapshots beside the current one: what was deleted and comes back is copied from them."""
    flip = lake.current_flip()
    if snapshot is None or flip is None:
        return ()
    names = [name for name in flip.retained if name != snapshot.name and lake.has_snapshot(name)]
    older = (lake.read_snapshot(name) for name in names)
    return tuple(candidate for candidate in older if candidate.shards == snapshot.shards)


def _siblings(table: pl.DataFrame) -> dict[int, tuple[int, ...]]:
    """Return, per shard, the other shards to build that hold documents with the same bytes."""
    groups = (
        table.group_by("content_digest").agg(pl.col("shard").unique().sort()).filter(pl.col("shard").list.len() > 1)
    )
    siblings: dict[int, set[int]] = {}
    for shards in groups["shard"].to_list():
        for shard in shards:
            siblings.setdefault(shard, set()).update(set(shards) - {shard})
    return {shard: tuple(sorted(others)) for shard, others in siblings.items()}


def _donors(
    lake: Lake, snapshot: Snapshot | None, shard: int, shards: Sequence[int], older: Sequence[Snapshot]
) -> dict[Stage, tuple[str, ...]]:
    donors: dict[Stage, tuple[str, ...]] = {}
    for stage in STAGES:
        keys = [snapshot.parts[stage][donor].key for donor in shards] if snapshot else []
        keys += [candidate.parts[stage][shard].key for candidate in older if shard < candidate.shards]
        newest = lake.newest_part(stage, shard) if stage != "passages" else None
        if newest is not None:
            keys.append(newest.key)
        donors[stage] = tuple(dict.fromkeys(keys))
    return donors


def _reused(snapshot: Snapshot | None, shards: int, jobs: Sequence[ShardJob]) -> dict[Stage, dict[int, PartRef]]:
    built = {job.shard for job in jobs}
    if snapshot is None or snapshot.shards != shards:
        return {stage: {} for stage in STAGES}
    return {stage: {ref.shard: ref for ref in snapshot.parts[stage] if ref.shard not in built} for stage in STAGES}
