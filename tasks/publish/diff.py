"""What changed from one snapshot to another: documents, and the chunks of each, told from the two catalogs."""

from __future__ import annotations

from collections import Counter
from typing import Literal

import polars as pl

from schemas.snapshot import Record
from tasks.lake.lake import Lake
from tasks.publish.catalog import read_catalog
from tasks.publish.pointer import SnapshotHead, read_head

Change = Literal["added", "changed", "renamed", "redone", "removed"]
CHANGES: tuple[Change, ...] = ("added", "changed", "renamed", "redone", "removed")

_NOTHING = pl.lit(0, pl.Int64)
_SEEN = ("content_digest", "text_digest", "metadata_digest")


class DocumentDiff(Record):
    """One document that is not the same in both.

    Attributes:
        change: *added*, *removed*; *changed*: its bytes; *renamed*: the same bytes under a new source or URI;
            *redone*: the same bytes, but another reading of them (configuration or code changed).
        was: source/URI before a rename, "" otherwise.
    """

    change: Change
    source: str
    uri: str
    was: str = ""
    chunks_added: int
    chunks_removed: int


class SnapshotDiff(Record):
    """All that is not the same, by source and URI.

    Attributes:
        counts: documents per change, and ``unchanged``.
    """

    before: str
    after: str
    counts: dict[str, int]
    chunks_added: int
    chunks_removed: int
    documents: tuple[DocumentDiff, ...]


def diff(lake: Lake, a: str, b: str) -> SnapshotDiff:
    """Compare two snapshots.

    Args:
        a, b: their names, the earlier first.

    Raises:
        NotFound, Corrupt: one of them was swept, or is damaged.
    """
    old, new = _documents(lake, read_head(lake, a)), _documents(lake, read_head(lake, b))
    gained, lost = _chunks_only_in(lake, a=b, b=a), _chunks_only_in(lake, a=a, b=b)
    both = new.join(old, on=["doc_id", "source", "uri"], how="inner", suffix="_old").join(
        gained, on="doc_id", how="left"
    )
    both = both.join(lost, on="doc_id", how="left", suffix="_lost").with_columns(
        was=pl.lit(""), gained=pl.col("chunks").fill_null(0), lost=pl.col("chunks_lost").fill_null(0)
    )
    other_bytes = pl.col("content_digest") != pl.col("content_digest_old")
    other_reading = pl.any_horizontal(*(pl.col(name) != pl.col(f"{name}_old") for name in _SEEN[1:]))
    rows = both.with_columns(
        change=pl.when(other_bytes)
        .then(pl.lit("changed"))
        .when(other_reading | (pl.col("gained") + pl.col("lost") > 0))
        .then(pl.lit("redone"))
    )
    changed = rows.filter(pl.col("change").is_not_null())
    moved = _moved(new.join(old, on="doc_id", how="anti"), old.join(new, on="doc_id", how="anti"), gained, lost)
    columns = ["change", "source", "uri", "was", "gained", "lost"]
    everything = pl.concat([changed.select(columns), moved.select(columns)]).sort("source", "uri", "change")
    documents = tuple(
        DocumentDiff(change=change, source=source, uri=uri, was=was, chunks_added=more, chunks_removed=less)
        for change, source, uri, was, more, less in everything.iter_rows()
    )
    counts = Counter(document.change for document in documents)
    return SnapshotDiff(
        before=a,
        after=b,
        counts={**{change: counts[change] for change in CHANGES}, "unchanged": rows.height - changed.height},
        chunks_added=int(gained["chunks"].sum()),
        chunks_removed=int(lost["chunks"].sum()),
        documents=documents,
    )


def _documents(lake: Lake, head: SnapshotHead) -> pl.DataFrame:
    return read_catalog(lake, head.catalog, "documents", ["doc_id", "source", "uri", *_SEEN])


def _chunks(lake: Lake, name: str) -> pl.DataFrame:
    """Return doc_id and chunk_id of all chunks of a snapshot."""
    catalog = read_head(lake, name).catalog
    documents = read_catalog(lake, catalog, "documents", ["doc_id"]).with_row_index("document")
    chunks = read_catalog(lake, catalog, "chunks", ["chunk_id", "document"])
    return chunks.join(documents.with_columns(pl.col("document").cast(pl.Int32)), on="document")


def _chunks_only_in(lake: Lake, *, a: str, b: str) -> pl.DataFrame:
    """Return doc_id and the number of its chunks that are in ``a`` and not in ``b``, where there are any."""
    only = _chunks(lake, a).join(_chunks(lake, b), on="chunk_id", how="anti")
    return only.group_by("doc_id").agg(chunks=pl.len().cast(pl.Int64))


def _moved(come: pl.DataFrame, gone: pl.DataFrame, gained: pl.DataFrame, lost: pl.DataFrame) -> pl.DataFrame:
    """Pair documents that came and went with equal bytes, the n-th with the n-th by source and URI."""
    nth = pl.int_range(pl.len()).over("content_digest").alias("nth")
    come = come.sort("source", "uri").with_columns(nth).join(gained, on="doc_id", how="left")
    gone = gone.sort("source", "uri").with_columns(nth).join(lost, on="doc_id", how="left")
    pair = ["content_digest", "nth"]
    renamed = come.join(gone, on=pair, how="inner", suffix="_old").with_columns(
        change=pl.lit("renamed"),
        was=pl.format("{}/{}", "source_old", "uri_old"),
        gained=pl.col("chunks").fill_null(0),
        lost=pl.col("chunks_old").fill_null(0),
    )
    columns = ["change", "source", "uri", "was", "gained", "lost"]
    count = pl.col("chunks").fill_null(0)
    added = come.join(gone, on=pair, how="anti").with_columns(
        change=pl.lit("added"), was=pl.lit(""), gained=count, lost=_NOTHING
    )
    removed = gone.join(come, on=pair, how="anti").with_columns(
        change=pl.lit("removed"), was=pl.lit(""), gained=_NOTHING, lost=count
    )
    return pl.concat([frame.select(columns) for frame in (renamed, added, removed)])
