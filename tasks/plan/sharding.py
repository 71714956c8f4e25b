"""The layout of a run: how many shards there are, which of them are built, and from whose rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from schemas.identity import digest_rows, shard_count, shard_of
from schemas.snapshot import STAGES, PartRef, Snapshot, Stage
from schemas.tables import PLAN
from schemas.work import ShardJob
from tasks.lake.lake import Lake
from tasks.load.step import load_key


def lay_out(
    lake: Lake,
    snapshot: Snapshot | None,
    stages: Mapping[Stage, str],
    target: pl.DataFrame,
    published: pl.DataFrame,
    migrates: tuple[Stage, ...],
    damaged: frozenset[int],
) -> tuple[int, tuple[ShardJob, ...]]:
    """Return the number of shards, and those to build. Their documents are written as a plan that the steps read.

    Args:
        target: columns of PLAN without shard, and ``donor``: the documents as they shall be.
        published: columns baseline.BASELINE.
        migrates: stages whose config, code or model changed; every shard is built then.
        damaged: shards to build anew in any case.
    """
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


def _by_shard(documents: pl.DataFrame) -> dict[int, frozenset[tuple[str, str, str | None]]]:
    grouped: dict[int, set[tuple[str, str, str | None]]] = {}
    for shard, doc_id, content, granted in documents.select("shard", "doc_id", "content_digest", "granted").iter_rows():
        grouped.setdefault(shard, set()).add((doc_id, content, granted))
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
    """Return, per shard, the other shards to build that may have processed the same bytes already.

    Of all shards that hold a copy the first is asked: were each the sibling of each, a file that lies in every folder
    would make all of them read all others.
    """
    groups = (
        table.group_by("content_digest").agg(pl.col("shard").unique().sort()).filter(pl.col("shard").list.len() > 1)
    )
    siblings: dict[int, set[int]] = {}
    for shards in groups["shard"].to_list():
        for shard in shards[1:]:
            siblings.setdefault(shard, set()).add(shards[0])
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


def reused_parts(snapshot: Snapshot | None, shards: int, jobs: Sequence[ShardJob]) -> dict[Stage, dict[int, PartRef]]:
    """Return, by stage and shard, the published parts of the shards that are not built."""
    built = {job.shard for job in jobs}
    if snapshot is None or snapshot.shards != shards:
        return {stage: {} for stage in STAGES}
    return {stage: {ref.shard: ref for ref in snapshot.parts[stage] if ref.shard not in built} for stage in STAGES}
