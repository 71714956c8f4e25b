"""The survey of one source: what it lists, what changed since the baseline, and who is granted what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from schemas.errors import PlanRefused
from schemas.identity import document_id
from schemas.plan import SourceSummary
from schemas.snapshot import Failure, Stage
from schemas.work import SourceSpec, Workspace
from tasks.lake.access import Tombstone
from tasks.lake.lake import Lake
from tasks.load.loader import document_type
from tasks.plan.changes import ChangeSet, compare
from tasks.plan.grants import Sidecars, read_sidecars, without_purged
from tasks.plan.listing import DigestedListing, digest_listing, remember_hints
from tasks.plan.quarantine import Quarantined, still_failing
from tasks.plan.registry import list_sources
from tasks.plan.source import SIDECAR, Listing, Source, SourceGone, open_source

MOST_SKIPPED = 3
"""Files of no known type that are told by name."""


@dataclass(frozen=True, slots=True)
class Survey:
    """What one source gave.

    Attributes:
        changes: the source as it shall be, and what is gone.
        failures: documents that are known not to load in the listed version.
        sizes: bytes by doc_id.
        sidecars: what the files beside documents grant.
    """

    changes: ChangeSet
    failures: tuple[Failure, ...]
    summary: SourceSummary
    sizes: Mapping[str, int]
    sidecars: Sidecars


def survey(
    space: Workspace,
    lake: Lake,
    spec: SourceSpec,
    published: pl.DataFrame,
    failed: Sequence[Failure],
    quarantine: Mapping[str, Quarantined],
    tombstones: Mapping[str, Tombstone],
) -> Survey:
    """List a source and compare it with what is published.

    Args:
        published: columns baseline.BASELINE.
        failed: what failed already in this run and is not tried again in it.

    Raises:
        PlanRefused: the listing failed or is empty, or the source vanished since.
    """
    source = open_source(spec, space.config.load)
    try:
        listing = source.listing()
        _refuse_empty(source, listing, published)
        unusable = _no_longer_usable(source, listing, published, tombstones)
        stones = {key: stone for key, stone in tombstones.items() if stone.source == spec.name}
        listing = without_purged(listing, stones)
        sidecars = read_sidecars(source, listing)
        supported = [entry.uri for entry in listing.entries if document_type(entry.uri) is not None]
        digested = digest_listing(lake, source, listing, pl.Series(supported, dtype=pl.String))
    except (PlanRefused, SourceGone) as error:
        raise PlanRefused(error.what, hint="; ".join([str(error.hint), *_ways_out(space, lake, spec)])) from error
    failing = _failing(spec.name, digested, quarantine, space.stages)
    failing |= {failure.uri: failure for failure in unusable}
    uris = set(digested.table["uri"])
    failing |= {failure.uri: failure for failure in failed if failure.source == spec.name and failure.uri in uris}
    changes = compare(spec.name, digested.table.select("uri", "content_digest"), failing, published)
    remember_hints(lake, spec.name, digested.table)
    sizes = dict(zip(digested.table["uri"].to_list(), digested.table["size"].to_list(), strict=True))
    return Survey(
        changes=changes,
        failures=tuple(failing.values()),
        summary=SourceSummary(
            name=spec.name,
            listed=len(supported),
            skipped=dict(sorted(_skipped(listing).items())),
            skipped_first=tuple(_unsupported(listing)[:MOST_SKIPPED]),
            unusable=tuple(sorted((*listing.unusable, *sidecars.idle))),
            hashed=digested.hashed,
            denied=sidecars.denied,
        ),
        sizes={doc_id: sizes.get(uri, 0) for doc_id, uri in changes.target.select("doc_id", "uri").iter_rows()},
        sidecars=sidecars,
    )


def _refuse_empty(source: Source, listing: Listing, published: pl.DataFrame) -> None:
    if any(document_type(entry.uri) for entry in listing.entries):
        return
    name = source.spec.name
    before = published.filter(pl.col("source") == name).height
    consequence = f"; its {before} published documents stay" if before else ""
    kinds = ", ".join(f"{count} .{ending}" for ending, count in _skipped(listing).most_common(5))
    raise PlanRefused(
        f"source {name!r} ({source.spec.root}) lists no document{f' ({kinds})' if kinds else ''}{consequence}",
        hint="put documents there (PDF, Markdown, HTML, text, code) or check that the folder is mounted",
    )


def _no_longer_usable(
    source: Source, listing: Listing, published: pl.DataFrame, tombstones: Mapping[str, Tombstone]
) -> list[Failure]:
    """Return a failure for each published document of which something lies there that cannot be read at all.

    A link that leads nowhere, a pipe: whoever deletes a document leaves nothing behind.
    """
    ours = set(published.filter(pl.col("source") == source.spec.name)["uri"])
    return [
        Failure(
            doc_id=document_id(source.spec.name, uri),
            source=source.spec.name,
            uri=uri,
            stage="load",
            kind="Unusable",
            message=f"it is there and is {reason} -> put the document back, or delete what lies in its place",
            traceback="",
            content_digest="",
        )
        for uri, reason in listing.unusable_uris
        if uri in ours and document_id(source.spec.name, uri) not in tombstones
    ]


def _ways_out(space: Workspace, lake: Lake, spec: SourceSpec) -> list[str]:
    """Return what else can be done while a recorded source has nothing to give: it holds up a run over all sources."""
    names = {known.name for known in list_sources(lake)}
    if spec.name not in names:
        return []
    others = [f"`glossator index {other.root}`" for other in space.sources if other.name in names - {spec.name}]
    ways = [f"to index another source meanwhile: {others[0]}"] if others else []
    return [*ways, f"if it is meant: `glossator source remove {spec.name}`"]


def _skipped(listing: Listing) -> Counter[str]:
    names = (uri.rpartition("/")[2] for uri in _unsupported(listing))
    return Counter(name.rpartition(".")[2].lower() if "." in name else "(no ending)" for name in names)


def _unsupported(listing: Listing) -> list[str]:
    uris = (entry.uri for entry in listing.entries)
    return [uri for uri in uris if document_type(uri) is None and not uri.endswith(SIDECAR)]


def _failing(
    source: str, digested: DigestedListing, quarantine: Mapping[str, Quarantined], stages: Mapping[Stage, str]
) -> dict[str, Failure]:
    failing = {failure.uri: failure for failure in digested.failures}
    digests = dict(zip(digested.table["uri"].to_list(), digested.table["content_digest"].to_list(), strict=True))
    for item in quarantine.values():
        uri = item.failure.uri
        if item.failure.source == source and still_failing(item, digests.get(uri, ""), stages):
            failing[uri] = item.failure
    return failing
