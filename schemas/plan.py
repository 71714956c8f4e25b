"""The plan of a run: what will change, and the work that it takes."""

from __future__ import annotations

from typing import Literal

from schemas.snapshot import Failure, PartRef, Record, Stage
from schemas.work import ShardJob, SourceSpec, Workspace

Change = Literal["added", "changed", "renamed", "deleted"]
CHANGES: tuple[Change, ...] = ("added", "changed", "renamed", "deleted")


class ChangeCounts(Record):
    """Documents by what happens to them; copies count as added, stale ones as failed, and as changed those of which
    only the groups did."""

    added: int = 0
    changed: int = 0
    renamed: int = 0
    deleted: int = 0
    unchanged: int = 0
    failed: int = 0


class NamedChange(Record):
    """What happens to a document; ``was`` is the URI that a renamed one had. A copy is added."""

    change: Change
    source: str
    uri: str
    was: str = ""


class Redone(Record):
    """Published documents that are done anew, though most have the same bytes: config, code or model changed.

    Attributes:
        documents: how many.
        stages: what is made of them anew. What comes out equal is reused.
        settings: what was changed, as ``chunk.child_tokens 180 → 120``, where the published snapshot tells.
    """

    documents: int
    stages: tuple[Stage, ...]
    settings: tuple[str, ...] = ()


class SourceSummary(Record):
    """What was found in one source.

    Attributes:
        listed: supported files.
        skipped: by ending, files that no loader takes, and ``skipped_first`` the URIs of the first few.
        unusable: (name, reason) of entries that cannot be documents at all.
        hashed: files that had to be read to know whether they changed.
        denied: (URI, reason) of documents that nobody may see, since their sidecar cannot be read.
    """

    name: str
    listed: int
    skipped: dict[str, int]
    unusable: tuple[tuple[str, str], ...]
    hashed: int
    denied: tuple[tuple[str, str], ...] = ()
    skipped_first: tuple[str, ...] = ()


class PlanSummary(Record):
    """What ``index --dry-run --json`` prints."""

    collection: str
    documents: ChangeCounts
    sources: tuple[SourceSummary, ...]
    shards: int
    shards_to_build: int
    bytes_to_load: int
    migrates: tuple[Stage, ...]
    redone: Redone | None = None
    rebuilds_stores: bool
    damaged: tuple[str, ...]
    failed: tuple[Failure, ...]
    held: str = ""
    restricted: int = 0
    unread: int = 0
    refused: str = ""
    changes: tuple[NamedChange, ...] = ()


class Plan(Record):
    """Everything a run needs to know.

    Attributes:
        parent: name of the snapshot that this plan starts from, and ``flip`` its number; None and 0 at first.
        shards: number of shards of the new snapshot.
        jobs: shards to build.
        reused: for the other shards, the parts of the parent.
        failures: documents known to fail, which this plan leaves out or keeps stale.
        bytes: size of the documents that will be read.
        held: why this plan may only be looked at: a rollback holds all publishing; "" otherwise.
        new_sources: to be recorded with the run.
        migrates: stages whose config, code or model changed, and ``redone`` what is done anew for that.
        rebuilds_stores: catalog, BM25 index or vectors are built anew of the same parts, since their config or code
            changed.
        damaged: storage keys of what the published snapshot names and is missing or cut short; built anew.
        restricted: documents that only some groups may see, as far as is known before they are read.
        returned: published sources that are recorded no more: a rollback brought back what had been removed.
        purged: doc_ids that had a tombstone when the plan was made.
        unread: documents that were not read yet where they lie now: they may state groups of their own.
        had_groups: those that are published with groups.
        access: stamp of today's table of groups after this plan took rights away, see tasks/lake/access.py.
        withheld: unchanged documents that fewer may see today than rules, sidecars and they themselves say.
        refused: why this plan may only be looked at, a line per reason: the guard against mass deletion, or a migration
            that nobody allowed; "" otherwise.
        removes: sources whose documents go as a whole; such a plan may leave an index without a document.
        changes: the documents of ``counts`` by name, where that was asked for.
    """

    workspace: Workspace
    parent: str | None
    flip: int
    counts: ChangeCounts
    sources: tuple[SourceSummary, ...]
    new_sources: tuple[SourceSpec, ...]
    shards: int
    jobs: tuple[ShardJob, ...]
    reused: dict[Stage, dict[int, PartRef]]
    failures: tuple[Failure, ...]
    bytes: int
    migrates: tuple[Stage, ...] = ()
    redone: Redone | None = None
    rebuilds_stores: bool = False
    damaged: tuple[str, ...] = ()
    held: str = ""
    restricted: int = 0
    unread: int = 0
    refused: str = ""
    removes: tuple[str, ...] = ()
    changes: tuple[NamedChange, ...] = ()
    returned: tuple[str, ...] = ()
    purged: tuple[str, ...] = ()
    had_groups: tuple[str, ...] = ()
    access: tuple[int, ...] | None = None
    withheld: int = 0

    @property
    def nothing_to_do(self) -> bool:
        """True when the published snapshot is what this plan would make."""
        work = self.jobs or self.rebuilds_stores or self.damaged or self.withheld
        return not work and self.parent is not None

    def summary(self) -> PlanSummary:
        """Return what a person wants to know of it."""
        return PlanSummary(
            collection=self.workspace.collection,
            documents=self.counts,
            sources=self.sources,
            shards=self.shards,
            shards_to_build=len(self.jobs),
            bytes_to_load=self.bytes,
            migrates=self.migrates,
            redone=self.redone,
            rebuilds_stores=self.rebuilds_stores,
            damaged=self.damaged,
            failed=self.failures,
            held=self.held,
            restricted=self.restricted,
            unread=self.unread,
            refused=self.refused,
            changes=self.changes,
        )
