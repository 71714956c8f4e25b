"""The planner: list, compare, guard, and lay out the shards to build."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from schemas.config import Config
from schemas.errors import PlanRefused
from schemas.identity import digest_rows, shard_count, shard_of
from schemas.plan import ChangeCounts, Plan, SourceSummary
from schemas.snapshot import STAGES, Failure, PartRef, Snapshot, Stage
from schemas.tables import PLAN
from schemas.work import ShardJob, SourceSpec, Workspace
from tasks.lake.access import Tombstone, read_tombstones
from tasks.lake.lake import Corrupt, Lake, rebuild_hint
from tasks.load.loader import document_type
from tasks.load.step import load_key
from tasks.plan.changes import ChangeSet, compare
from tasks.plan.damage import NO_DAMAGE, find_damage
from tasks.plan.grants import Sidecars, enforce, grant, known_groups, read_sidecars, without_purged
from tasks.plan.listing import DigestedListing, digest_listing, remember_hints
from tasks.plan.quarantine import Quarantined, read_quarantine, still_failing
from tasks.plan.registry import list_sources
from tasks.plan.source import SIDECAR, Listing, Source, open_source
from tasks.plan.stages import stage_digests, stamp_model

GUARD_DOCUMENTS = 10
GUARD_SHARE = 0.1
_PUBLISHED: dict[str, pl.DataType | type[pl.DataType]] = {
    "doc_id": pl.String,
    "source": pl.String,
    "uri": pl.String,
    "content_digest": pl.String,
    "shard": pl.Int32,
    "granted": pl.String,
    "stated_groups": pl.List(pl.String),
    "groups": pl.List(pl.String),
}


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What a person allowed this run to do.

    Attributes:
        migrate: redo unchanged documents because config, code or model changed.
        allow_deletes: delete up to this many documents beyond the guard.
        dry_run: only look. Otherwise what rules and sidecars say counts for readers from now on, whatever becomes of
            the run.
    """

    migrate: bool = False
    allow_deletes: int = 0
    dry_run: bool = False


@dataclass(slots=True)
class _Found:
    """What listing the sources gave."""

    target: list[pl.DataFrame] = field(default_factory=list)
    deleted: int = 0
    failures: list[Failure] = field(default_factory=list)
    summaries: list[SourceSummary] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    sidecars: dict[str, Sidecars] = field(default_factory=dict)


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
        PlanRefused: a listing failed or is empty, too much would be deleted, or unchanged documents would be
            redone without ``migrate``. Nothing was changed, but for who may see what.
    """
    options = options or PlanOptions()
    space = workspace(lake, config, listed)
    stages = space.stages
    flip = lake.current_flip()
    snapshot = lake.read_snapshot(flip.snapshot) if flip else None
    recorded = {spec.name: spec for spec in list_sources(lake)}
    new = tuple(spec for spec in listed if spec.name not in recorded)

    published = _published(lake, snapshot)
    tombstones = read_tombstones(lake)
    found = _look(space, lake, listed, published, failed, tombstones)
    others = published.filter(
        ~pl.col("source").is_in([spec.name for spec in listed]) & ~pl.col("doc_id").is_in(list(tombstones))
    )
    carried = others.select(
        "doc_id", "source", "uri", "content_digest", action=pl.lit("carried"), donor=pl.col("doc_id")
    )
    before = published.select("doc_id", was_granted="granted", was_stated="stated_groups")
    target = pl.concat([*found.target, carried]).join(before, on="doc_id", how="left").sort("doc_id")
    target = grant(target, config.access.rules, found.sidecars)
    groups = known_groups(target)
    if not options.dry_run:
        had = published.filter(pl.col("groups").is_not_null())["doc_id"].to_list()
        enforce(lake, groups, target["doc_id"].to_list(), had, in_use=bool(groups))
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
        damaged=damage.keys,
        restricted=len(groups),
    )


def _published(lake: Lake, snapshot: Snapshot | None) -> pl.DataFrame:
    if snapshot is None:
        return pl.DataFrame(schema=_PUBLISHED)
    folder = f"catalog/{snapshot.catalog}"
    if not lake.has_folder(folder):
        from tasks.publish.catalog import list_documents  # Rarely needed, and it brings pyarrow.

        return list_documents(lake, snapshot.parts["passages"]).select(list(_PUBLISHED))
    path = lake.open_folder(folder) / "documents.arrow"
    try:
        held = pl.read_ipc_schema(path)
        frame = pl.read_ipc(path, columns=[name for name in _PUBLISHED if name in held])
        # What an earlier version wrote knows no grants; a plan refuses to go on from it without --migrate.
        lacking = [pl.lit(None, kind).alias(name) for name, kind in _PUBLISHED.items() if name not in held]
        return frame.with_columns(lacking).select(list(_PUBLISHED))
    except (pl.exceptions.PolarsError, OSError) as error:
        raise Corrupt(f"{path} is damaged ({error})", hint=rebuild_hint(path.parent)) from error


def _look(
    space: Workspace,
    lake: Lake,
    listed: Sequence[SourceSpec],
    published: pl.DataFrame,
    failed: Sequence[Failure],
    tombstones: Mapping[str, Tombstone],
) -> _Found:
    quarantine = read_quarantine(lake)
    found = _Found()
    for spec in listed:
        source = open_source(spec, space.config.load)
        listing = _listing(source, tombstones, published, found)
        digested = _digest(lake, source, listing, found)
        failing = _failing(spec.name, digested, quarantine, space.stages)
        uris = set(digested.table["uri"])
        failing |= {failure.uri: failure for failure in failed if failure.source == spec.name and failure.uri in uris}
        changes = compare(spec.name, digested.table.select("uri", "content_digest"), failing, published)
        _collect(found, spec.name, changes, digested, failing)
        remember_hints(lake, spec.name, digested.table)
    return found


def _listing(source: Source, tombstones: Mapping[str, Tombstone], published: pl.DataFrame, found: _Found) -> Listing:
    """List a source, its purged documents left out, and read its sidecars."""
    listing = source.listing()
    name = source.spec.name
    _refuse_empty(source, listing, published)
    listing = without_purged(listing, {key: stone for key, stone in tombstones.items() if stone.source == name})
    sidecars = read_sidecars(source, listing)
    found.sidecars[name] = sidecars
    return replace(listing, unusable=tuple(sorted((*listing.unusable, *sidecars.idle))))


def _refuse_empty(source: Source, listing: Listing, published: pl.DataFrame) -> None:
    if not any(document_type(entry.uri) for entry in listing.entries):
        skipped = _skipped(listing)
        name = source.spec.name
        before = published.filter(pl.col("source") == name).height
        consequence = f"; its {before} published documents stay" if before else ""
        kinds = ", ".join(f"{count} .{ending}" for ending, count in skipped.most_common(5))
        raise PlanRefused(
            f"source {name!r} ({source.spec.root}) lists no document{f' ({kinds})' if kinds else ''}{consequence}",
            hint="put documents there (PDF, Markdown, HTML, text, code) or check that the folder is mounted",
        )


def _skipped(listing: Listing) -> Counter[str]:
    return Counter(
        entry.uri.rpartition("/")[2].rpartition(".")[2].lower() if "." in entry.uri else "(no ending)"
        for entry in listing.entries
        if document_type(entry.uri) is None and not entry.uri.endswith(SIDECAR)
    )


def _digest(lake: Lake, source: Source, listing: Listing, found: _Found) -> DigestedListing:
    supported = [entry.uri for entry in listing.entries if document_type(entry.uri) is not None]
    digested = digest_listing(lake, source, listing, pl.Series(supported, dtype=pl.String))
    found.summaries.append(
        SourceSummary(
            name=source.spec.name,
            listed=len(supported),
            skipped=dict(sorted(_skipped(listing).items())),
            unusable=listing.unusable,
            hashed=digested.hashed,
            denied=found.sidecars[source.spec.name].denied,
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
    same_bytes = target.filter(pl.col("action").is_in(["unchanged", "carried"]))
    regranted = same_bytes.filter(pl.col("granted").ne_missing(pl.col("was_granted"))).height
    return ChangeCounts(
        added=actions["added"] + actions["copied"],
        changed=actions["changed"] + regranted,
        renamed=actions["renamed"],
        deleted=found.deleted,
        unchanged=same_bytes.height - regranted,
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
    digest = digest_rows(table.select("doc_id", "content_digest", "granted", "action", "shard").iter_rows())
    plan = f"state/plans/{digest}.arrow"
    lake.write_frame(plan, table.select(PLAN.names))
    homes = dict(zip(published["doc_id"].to_list(), published["shard"].to_list(), strict=True))
    jobs = []
    for shard in todo:
        rows = wanted.filter(pl.col("shard") == shard)
        donor_shards = {homes[doc_id] for doc_id in rows["donor"].drop_nulls().to_list()}
        donor_shards |= {homes[doc_id] for doc_id in rows["doc_id"].to_list() if doc_id in homes}
        jobs.append(
            ShardJob(
                shard=shard,
                plan=plan,
                load_key=load_key(stages["load"], now.get(shard, frozenset())),
                donors=_donors(lake, snapshot, shard, sorted(donor_shards)),
            )
        )
    return shards, tuple(jobs)


def _shards(snapshot: Snapshot | None, documents: int) -> int:
    wanted = shard_count(documents)
    if snapshot is not None and snapshot.shards / 4 < wanted <= snapshot.shards * 2:
        return snapshot.shards
    return wanted


def _by_shard(documents: pl.DataFrame) -> dict[int, frozenset[tuple[str, str, str | None]]]:
    grouped: dict[int, set[tuple[str, str, str | None]]] = {}
    for shard, doc_id, content, granted in documents.select("shard", "doc_id", "content_digest", "granted").iter_rows():
        grouped.setdefault(shard, set()).add((doc_id, content, granted))
    return {shard: frozenset(rows) for shard, rows in grouped.items()}


def _donors(lake: Lake, snapshot: Snapshot | None, shard: int, shards: Sequence[int]) -> dict[Stage, tuple[str, ...]]:
    donors: dict[Stage, tuple[str, ...]] = {}
    for stage in STAGES:
        keys = [snapshot.parts[stage][donor].key for donor in shards] if snapshot else []
        newest = lake.newest_part(stage, shard) if stage != "passages" else None
        if newest is not None and newest.key not in keys:
            keys.append(newest.key)
        donors[stage] = tuple(keys)
    return donors


def _reused(snapshot: Snapshot | None, shards: int, jobs: Sequence[ShardJob]) -> dict[Stage, dict[int, PartRef]]:
    built = {job.shard for job in jobs}
    if snapshot is None or snapshot.shards != shards:
        return {stage: {} for stage in STAGES}
    return {stage: {ref.shard: ref for ref in snapshot.parts[stage] if ref.shard not in built} for stage in STAGES}
