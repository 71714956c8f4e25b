"""Listing with content digests: hash only what may have changed.

A *version hint* is (size, mtime, ctime, inode) of a file, or the ETag of an object. A hint that equals the recorded
one stands for the recorded digest, with git's exception of the racy entry: a file that was written less than two
seconds before it was listed may have changed again within the clock's step, and is hashed once more.
"""

from __future__ import annotations

import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import PurePosixPath

import polars as pl

from schemas.errors import GlossatorError, PermanentError, PlanRefused, TransientError
from schemas.identity import content_digest, document_id
from schemas.snapshot import Failure
from tasks.lake.lake import Corrupt, Lake
from tasks.plan.guard import too_many
from tasks.plan.source import Listing, Source, SourceGone

RACY_NS = 2_000_000_000
READS = 3
"""So often is a document read that cannot be read at the moment; then it is quarantined."""
RETRY_SECONDS = 0.05
_HINT = {
    "uri": pl.String,
    "size": pl.Int64,
    "mtime_ns": pl.Int64,
    "ctime_ns": pl.Int64,
    "inode": pl.UInt64,
    "etag": pl.String,
}
_HINTS = {**_HINT, "seen_ns": pl.Int64, "content_digest": pl.String}
"""What a source listed, with the digest that each version hint stood for. Disposable."""


@dataclass(frozen=True, slots=True)
class DigestedListing:
    """A listing whose entries have digests.

    Attributes:
        table: columns of ``_HINTS``.
        failures: entries that could not be read, left out of the table.
        hashed: number of files that were read.
    """

    table: pl.DataFrame
    failures: tuple[Failure, ...]
    hashed: int


def hints_key(source: str) -> str:
    """Return where the hints of a source are kept."""
    return f"state/hints/{source}.arrow"


def digest_listing(lake: Lake, source: Source, listing: Listing, supported: pl.Series) -> DigestedListing:
    """Give each supported entry its content digest, from the hints where they hold.

    Args:
        supported: URIs that some loader takes.

    Raises:
        SourceGone: nothing of the source is there any more.
        PlanRefused: so many of its files cannot be read now that it is not their fault.
    """
    columns = {name: [getattr(entry, name) for entry in listing.entries] for name in _HINT}
    entries = pl.DataFrame(columns, schema=_HINT).filter(pl.col("uri").is_in(supported.implode()))
    trusted = read_hints(lake, source.spec.name).filter(
        pl.col("seen_ns") - pl.max_horizontal("mtime_ns", "ctime_ns") > RACY_NS
    )
    joined = entries.join(trusted, on=list(_HINT), how="left", maintain_order="left")
    stale = joined.filter(pl.col("content_digest").is_null())["uri"].to_list()
    digests, failures = _hash(source, stale)
    unread = [failure for failure in failures if failure.transient]
    if too_many(len(unread), entries.height):
        raise PlanRefused(
            f"{len(unread)} of {entries.height} documents of source {source.spec.name!r} cannot be read now, the first "
            f"is {unread[0].uri}: {unread[0].message}",
            hint="nothing was changed; make them readable (is the folder mounted?) and run the same command again",
        )
    fresh = pl.DataFrame(
        {"uri": list(digests), "fresh": list(digests.values())}, schema={"uri": pl.String, "fresh": pl.String}
    )
    table = (
        joined.join(fresh, on="uri", how="left", maintain_order="left")
        .with_columns(
            content_digest=pl.coalesce("content_digest", "fresh"),
            seen_ns=pl.coalesce("seen_ns", pl.lit(listing.seen_ns)),
        )
        .filter(pl.col("content_digest").is_not_null())
        .select(list(_HINTS))
    )
    return DigestedListing(table, tuple(failures), len(stale))


def remember_hints(lake: Lake, source: str, table: pl.DataFrame) -> None:
    """Record the hints for the next listing."""
    if not table.equals(read_hints(lake, source)):
        lake.write_frame(hints_key(source), table)


def forget_hints(lake: Lake, source: str) -> None:
    """Forget the hints of a source: all of its files are hashed by the next listing."""
    lake.storage.delete(hints_key(source))


def forget_old_hints(lake: Lake, before_ns: int, *, dry_run: bool = False) -> int:
    """Forget the hints of files that were hashed last before a time; return their number.

    A hint cannot tell of bytes that changed under a file system (a bad disk, a restored image, a mount whose times are
    made up). So each file is read again now and then.
    """
    forgotten = 0
    for key in list(lake.storage.keys("state/hints")):
        hints = read_hints(lake, PurePosixPath(key).stem)
        young = hints.filter(pl.col("seen_ns") >= before_ns)
        forgotten += hints.height - young.height
        if young.height < hints.height and not dry_run:
            lake.write_frame(key, young)
    return forgotten


def read_hints(lake: Lake, source: str) -> pl.DataFrame:
    """Return the hints of a source; none where they are missing or damaged."""
    try:
        hints = lake.read_frame(hints_key(source))
    except Corrupt:  # Disposable: every file is hashed again, and the hints are written anew.
        hints = None
    return pl.DataFrame(schema=_HINTS) if hints is None or dict(hints.schema) != _HINTS else hints


def _read(source: Source, uri: str) -> bytes:
    for _ in range(READS - 1):
        try:
            return source.read(uri)
        except TransientError:
            time.sleep(RETRY_SECONDS)
    return source.read(uri)


def _hash(source: Source, uris: list[str]) -> tuple[dict[str, str], list[Failure]]:
    digests: dict[str, str] = {}
    failures: list[Failure] = []

    def one(uri: str) -> tuple[str, str | GlossatorError]:
        try:
            return uri, content_digest(_read(source, uri))
        except SourceGone:
            raise
        except GlossatorError as error:
            return uri, error

    with ThreadPoolExecutor(max_workers=4) as pool:
        for uri, result in pool.map(one, uris):
            if isinstance(result, str):
                digests[uri] = result
            else:
                failures.append(_unreadable(source.spec.name, uri, result))
    return digests, failures


def _unreadable(source: str, uri: str, error: GlossatorError) -> Failure:
    return Failure(
        doc_id=document_id(source, uri),
        source=source,
        uri=uri,
        stage="load",
        kind=type(error).__name__,
        message=error.message,
        traceback="".join(traceback.format_exception(error)),
        transient=not isinstance(error, PermanentError),
    )
