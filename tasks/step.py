"""What a step is: a key that says what it would make, and a function that makes it.

A step looks for its part under the key first, so that finished work is found whoever did it: an earlier run, a
killed one, the other runner. Orchestrators call ``key`` for their own caches and ``run`` for the work.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from schemas.errors import GlossatorError, PermanentError
from schemas.snapshot import Failure, PartRef, Stage
from schemas.work import ShardJob, Workspace
from tasks.lake.lake import Lake
from tasks.memory import give_back
from tasks.progress import advance


@lru_cache(maxsize=16)
def _lake(root: Path, collection: str) -> Lake:
    return Lake(root, collection)


def lake_of(space: Workspace) -> Lake:
    """Return the lake of a workspace."""
    return _lake(space.lake, space.collection)


@dataclass(frozen=True, slots=True)
class Step:
    """One stage for one shard.

    Attributes:
        key: (workspace, job, refs of the stages before) -> key of the part.
        alone: held while computing, where one shard at a time already uses the whole machine.
        find: (lake, key) -> the part's ref, None where it does not exist.
        compute: (workspace, job, key, refs) -> ref of the part that was written. Its key differs from ``key``
            only when documents failed.
    """

    stage: Stage
    key: Callable[..., str]
    compute: Callable[..., PartRef]
    find: Callable[[Lake, str], PartRef | None]
    alone: AbstractContextManager[Any] = field(default_factory=nullcontext)

    def run(self, space: Workspace, job: ShardJob, *refs: PartRef) -> PartRef:
        """Return the part's ref: found, or computed now."""
        key = self.key(space, job, *refs)
        ref = self.find(lake_of(space), key)
        if ref is None:
            with self.alone:
                begun = time.perf_counter()
                ref = self.compute(space, job, key, *refs)
            give_back()
            advance(self.stage, ref, time.perf_counter() - begun)
        else:
            # A key says nothing of shards: in another layout the same documents lay in another one.
            ref = ref.model_copy(update={"shard": job.shard})
            advance(self.stage, ref, 0.0)
        return ref


def parts_step(
    stage: Stage,
    key: Callable[..., str],
    compute: Callable[..., PartRef],
    alone: AbstractContextManager[Any] | None = None,
) -> Step:
    """Return a step whose result is a Parquet part."""
    return Step(stage, key, compute, lambda lake, part: lake.find_part(stage, part), alone or nullcontext())


def donor_tables(space: Workspace, job: ShardJob, stage: Stage, columns: list[str] | None = None) -> Iterator[pa.Table]:
    """Yield the donor parts of a stage that were made by the same config and stage version."""
    lake = lake_of(space)
    siblings = (lake.newest_part(stage, shard) for shard in job.siblings)
    for key in (*job.donors.get(stage, ()), *(ref.key for ref in siblings if ref is not None)):
        table = lake.read_part_of(stage, key, space.stages[stage], columns)
        if table is not None:
            yield table


def failure_of(stage: Stage, document: Mapping[str, Any], error: Exception, message: str, digest: str) -> Failure:
    """Return the record of a document that a stage could not process.

    Args:
        document: has doc_id, source and uri.
        digest: of the content that failed; "" where it could not be read.
    """
    return Failure(
        doc_id=document["doc_id"],
        source=document["source"],
        uri=document["uri"],
        stage=stage,
        kind=type(error).__name__,
        message=message,
        transient=isinstance(error, GlossatorError) and not isinstance(error, PermanentError),
        traceback="".join(traceback.format_exception(error)),
        content_digest=digest,
    )


@dataclass(frozen=True, slots=True)
class Whole:
    """One store of a whole snapshot: catalog, BM25 index, vectors.

    Attributes:
        name: as people see it.
        key: (workspace, arguments) -> key of what would be made.
        exists: (workspace, key) -> whether it is there already.
        compute: (workspace, arguments) -> its key, made and complete.
    """

    name: str
    key: Callable[..., str]
    exists: Callable[[Workspace, str], bool]
    compute: Callable[..., str]

    def run(self, space: Workspace, *arguments: Any) -> str:
        """Return the key of the store: found, or made now."""
        key = self.key(space, *arguments)
        if not self.exists(space, key):
            key = self.compute(space, *arguments)
            give_back()
        return key
