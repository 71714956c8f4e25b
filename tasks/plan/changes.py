"""The change set of one source: what each document is, compared with the published snapshot.

- *unchanged*: same URI, same content digest.
- *changed*: same URI, another digest.
- *renamed*: a new URI with the digest of exactly one document that is gone; the two are paired in URI order.
- *copied*: a new URI with the digest of a document that is still there.
- *added*: any other new URI.
- *deleted*: a URI that is gone and not paired. Only of the source that was listed.
- *stale*: the listed bytes cannot be used; the version in the snapshot stays.
- *carried*: a document of a source that was not listed.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from schemas.identity import document_id
from schemas.plan import CHANGES, Change, NamedChange
from schemas.snapshot import Failure

ACTIONS = ("unchanged", "changed", "renamed", "copied", "added", "stale", "carried")
_TARGET = {
    "doc_id": pl.String,
    "source": pl.String,
    "uri": pl.String,
    "content_digest": pl.String,
    "action": pl.String,
    "donor": pl.String,
}


REGRANTED = pl.col("action").is_in(["unchanged", "carried"]) & pl.col("granted").ne_missing(pl.col("was_granted"))
"""Rows of a target whose bytes stay and whose groups do not."""


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """The source as it shall be, and what is gone.

    Attributes:
        target: columns doc_id, source, uri, content_digest, action, donor (doc_id in the snapshot whose bytes are
            the same, null for none).
        deleted: columns doc_id, source, uri.
    """

    target: pl.DataFrame
    deleted: pl.DataFrame

    def count(self, action: str) -> int:
        """Return the number of documents with an action."""
        return self.target.filter(pl.col("action") == action).height


def compare(source: str, listed: pl.DataFrame, failing: dict[str, Failure], published: pl.DataFrame) -> ChangeSet:
    """Return the change set of a source.

    Args:
        listed: columns uri, content_digest.
        failing: by uri, documents of this source that are known not to load in the listed version.
        published: columns doc_id, source, uri, content_digest of the whole snapshot.
    """
    ours = published.filter(pl.col("source") == source).select("doc_id", "uri", old="content_digest")
    usable = listed.filter(~pl.col("uri").is_in(list(failing)))
    joined = usable.join(ours, on="uri", how="left", maintain_order="left")
    present = joined.filter(pl.col("old").is_not_null()).with_columns(
        action=pl.when(pl.col("old") == pl.col("content_digest")).then(pl.lit("unchanged")).otherwise(pl.lit("changed"))
    )
    stale = ours.filter(pl.col("uri").is_in(list(failing))).select(
        "doc_id", "uri", content_digest="old", action=pl.lit("stale"), donor="doc_id"
    )
    gone = ours.join(usable, on="uri", how="anti").filter(~pl.col("uri").is_in(list(failing)))
    new = joined.filter(pl.col("old").is_null()).select("uri", "content_digest")
    renamed, deleted = _pair(new, gone)
    remaining = (
        present.select("doc_id", content_digest="old")
        .vstack(stale.select("doc_id", "content_digest"))
        .vstack(published.filter(pl.col("source") != source).select("doc_id", "content_digest"))
        .unique("content_digest", keep="first", maintain_order=True)
        .rename({"doc_id": "copy_of"})
    )
    added = (
        new.join(renamed, on="uri", how="left", maintain_order="left")
        .join(remaining, on="content_digest", how="left", maintain_order="left")
        .with_columns(
            action=pl.when(pl.col("donor").is_not_null())
            .then(pl.lit("renamed"))
            .when(pl.col("copy_of").is_not_null())
            .then(pl.lit("copied"))
            .otherwise(pl.lit("added")),
            donor=pl.coalesce("donor", "copy_of"),
            doc_id=pl.Series([document_id(source, uri) for uri in new["uri"]], dtype=pl.String),
        )
    )
    # Files that swap, or are moved over each other: their bytes were somewhere else.
    elsewhere = ours.unique("old", keep="first", maintain_order=True).select(content_digest="old", donor="doc_id")
    frames = [
        present.join(elsewhere, on="content_digest", how="left", maintain_order="left").with_columns(
            donor=pl.when(pl.col("action") == "unchanged").then(pl.col("doc_id")).otherwise(pl.col("donor"))
        ),
        stale,
        added,
    ]
    own = pl.concat(
        [frame.with_columns(source=pl.lit(source)).select(list(_TARGET)) for frame in frames], how="vertical"
    )
    return ChangeSet(
        target=own,
        deleted=deleted.with_columns(source=pl.lit(source)).select("doc_id", "source", "uri"),
    )


def _pair(new: pl.DataFrame, gone: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Pair new and gone documents of equal digest, the n-th with the n-th in URI order."""
    order = pl.col("uri").rank("ordinal").over("content_digest").alias("nth")
    left = new.with_columns(order)
    right = gone.rename({"old": "content_digest"}).with_columns(order)
    pairs = left.join(right, on=["content_digest", "nth"], how="inner", suffix="_gone")
    renamed = pairs.select("uri", donor="doc_id")
    deleted = gone.filter(~pl.col("doc_id").is_in(renamed["donor"].implode()))
    return renamed, deleted


def name_changes(target: pl.DataFrame, deleted: pl.DataFrame, published: pl.DataFrame) -> tuple[NamedChange, ...]:
    """Return what happens to each document, by kind, source and URI; what stays as it is is left out.

    Args:
        target, deleted: as in a ChangeSet, of all sources; ``target`` with granted and was_granted.
        published: columns doc_id, uri of the snapshot.
    """
    kinds: dict[str, Change] = {"added": "added", "copied": "added", "changed": "changed", "renamed": "renamed"}
    was = dict(published.select("doc_id", "uri").iter_rows())
    actions = target.with_columns(action=pl.when(REGRANTED).then(pl.lit("changed")).otherwise(pl.col("action")))
    rows = actions.filter(pl.col("action").is_in(list(kinds))).select("action", "source", "uri", "donor").iter_rows()
    changes = [
        NamedChange(change=kinds[action], source=source, uri=uri, was=was[donor] if action == "renamed" else "")
        for action, source, uri, donor in rows
    ]
    changes += [
        NamedChange(change="deleted", source=source, uri=uri)
        for source, uri in deleted.select("source", "uri").iter_rows()
    ]
    return tuple(sorted(changes, key=lambda change: (CHANGES.index(change.change), change.source, change.uri)))
