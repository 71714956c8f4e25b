"""Grants: which groups the one who runs the index allows to see each document, and what that makes of today's access.

A *rule* of the configuration names documents by a glob over ``source/uri`` (access.compile_glob). The first that
matches counts.

A *sidecar* is the file ``<file name>.groups`` beside a document: one group a line, ``#`` begins a comment, blank lines
are ignored; without a group it means nobody. It is read at every plan, since a version hint must not decide who may
see a document. One that cannot be read denies the document to everybody.

Rules win over sidecars. Where neither speaks, nothing is granted and the document's own front matter counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import polars as pl

from schemas.access import Groups, canonical, compile_glob, effective, group_name
from schemas.config import AccessRule
from schemas.errors import GlossatorError
from schemas.snapshot import Flip, Snapshot
from tasks.lake.access import NOBODY, Said, Tombstone, narrow
from tasks.lake.lake import Corrupt, Lake, catalog_folder, snapshot_path
from tasks.lake.storage import reading
from tasks.plan.source import SIDECAR, Listing, Source, SourceGone

_COMMENT = re.compile(r"(?:^|\s)#.*")


@dataclass(frozen=True, slots=True)
class Sidecars:
    """What the sidecars of a source say.

    Attributes:
        granted: by the document's URI, canonical.
        denied: (URI, reason) of documents whose sidecar cannot be read.
        idle: (name, reason) of sidecars beside no document: a slip of the pen leaves a document open.
    """

    granted: Mapping[str, str]
    denied: tuple[tuple[str, str], ...] = ()
    idle: tuple[tuple[str, str], ...] = ()


def without_purged(listing: Listing, tombstones: Mapping[str, Tombstone]) -> Listing:
    """Return a listing without the documents that were purged; they are told as unusable."""
    purged = {stone.uri: stone for stone in tombstones.values()}
    if not purged:
        return listing
    told = [
        (entry.uri, f"purged on {purged[entry.uri].when:%Y-%m-%d} by {purged[entry.uri].by}")
        for entry in listing.entries
        if entry.uri in purged
    ]
    entries = tuple(entry for entry in listing.entries if entry.uri not in purged)
    return replace(listing, entries=entries, unusable=tuple(sorted((*listing.unusable, *told))))


def read_sidecars(source: Source, listing: Listing) -> Sidecars:
    """Read all sidecars of a source.

    Raises:
        SourceGone: nothing of the source is there any more: that is no reason to deny all of it.
    """
    names = {entry.uri for entry in listing.entries}
    found = [name for name in sorted(names) if name.endswith(SIDECAR)]
    # A link to nowhere, a pipe or a folder by a sidecar's name: somebody meant to say something.
    broken = {name: reason for name, reason in listing.unusable_uris if name.endswith(SIDECAR)}
    if not found and not broken:
        return Sidecars({})
    documents = [name.removesuffix(SIDECAR) for name in found if name.removesuffix(SIDECAR) in names]
    granted: dict[str, str] = {}
    denied: dict[str, str] = {
        name.removesuffix(SIDECAR): f"{name} is {reason}"
        for name, reason in sorted(broken.items())
        if name.removesuffix(SIDECAR) in names
    }

    def one(document: str) -> Groups | str:
        try:
            return _parsed(source.read(f"{document}{SIDECAR}"))
        except SourceGone:
            raise
        except GlossatorError as error:
            return f"{document}{SIDECAR}: {error.what}"
        except UnicodeDecodeError:
            return f"{document}{SIDECAR} is not UTF-8"
        except ValueError as error:
            return f"{document}{SIDECAR}: {error}"

    with ThreadPoolExecutor(max_workers=4) as pool:
        for document, groups in zip(documents, pool.map(one, documents), strict=True):
            if isinstance(groups, str):
                denied[document] = groups
            else:
                granted[document] = canonical(groups)
    idle = tuple((name, "names the groups of no document") for name in found if name.removesuffix(SIDECAR) not in names)
    return Sidecars(granted | dict.fromkeys(denied, canonical(NOBODY)), tuple(sorted(denied.items())), idle)


def _parsed(data: bytes) -> Groups:
    lines = (_COMMENT.sub("", line).strip() for line in data.decode("utf-8-sig").splitlines())
    return tuple(sorted({group_name(line) for line in lines if line}))


def grant(target: pl.DataFrame, rules: Sequence[AccessRule], sidecars: Mapping[str, Sidecars]) -> pl.DataFrame:
    """Return the target with the column ``granted``.

    Args:
        target: columns source, uri, action, and ``was_granted`` of the published row.
        sidecars: by source, of those that were listed. Those of a source that was not listed are not known, so that
            what was granted before stays.
    """
    if not rules and not any(one.granted for one in sidecars.values()):
        return target.with_columns(granted=pl.when(pl.col("action") == "carried").then(pl.col("was_granted")))
    patterns = [(compile_glob(rule.match), canonical(rule.groups)) for rule in rules]

    def one(source: str, uri: str, action: str, before: str | None) -> str | None:
        place = f"{source}/{uri}"
        for pattern, groups in patterns:
            if pattern.fullmatch(place):
                return groups
        return before if action == "carried" else sidecars[source].granted.get(uri)

    rows = target.select("source", "uri", "action", "was_granted").iter_rows()
    return target.with_columns(granted=pl.Series([one(*row) for row in rows], dtype=pl.String))


def revoke_by_rules(
    lake: Lake, rules: Sequence[AccessRule], flip: Flip | None, published: pl.DataFrame, documents: Set[str]
) -> None:
    """Take from documents that are not to be indexed, and are still served, what the rules do not grant.

    They are gone from their source and the publish is refused, or older snapshots have them, to which a rollback leads.

    Args:
        documents: doc_ids of those that are to be indexed.

    Raises:
        Corrupt: a snapshot cannot be read: nobody knows what the rules have to take away there.
    """
    if not rules or flip is None:
        return
    columns = ["doc_id", "source", "uri"]
    older = [name for name in lake.snapshot_names() if name != flip.snapshot]
    kept = filter(None, (_kept(lake, name) for name in older))
    frames = [_documents_of(lake, snapshot, columns) for snapshot in kept]
    served = (
        pl.concat([published.select(columns), *frames])
        .unique("doc_id")
        .filter(~pl.col("doc_id").is_in(list(documents)))
    )
    patterns = [(compile_glob(rule.match), rule.groups) for rule in rules]
    groups: dict[str, Groups] = {}
    for doc_id, source, uri in served.iter_rows():
        named = next((named for pattern, named in patterns if pattern.fullmatch(f"{source}/{uri}")), None)
        if named is not None:
            groups[doc_id] = tuple(sorted(set(named)))
    narrow(lake, Said(frozenset(groups), groups))


def _kept(lake: Lake, name: str) -> Snapshot | None:
    """Read a snapshot; None for one that a sweep or a purge has taken since it was listed."""
    try:
        return lake.read_snapshot(name)
    except Corrupt as error:
        if not lake.has_snapshot(name):
            return None
        path = lake.storage.local(snapshot_path(name))
        raise Corrupt(
            f"the rules of access cannot be applied to the older snapshot {name}: {path} is damaged",
            hint="restore that file from a copy, or delete it: nobody can roll back to that snapshot then",
        ) from error


def _documents_of(lake: Lake, snapshot: Snapshot, columns: list[str]) -> pl.DataFrame:
    path = lake.storage.local(f"{catalog_folder(snapshot.catalog)}/documents.arrow")
    try:
        with reading(path):
            return pl.read_ipc(path, columns=columns).select(columns)
    except (pl.exceptions.PolarsError, OSError):  # Damaged: no reader can open that snapshot either.
        return pl.DataFrame(schema=dict.fromkeys(columns, pl.String))


def known_groups(target: pl.DataFrame) -> dict[str, Groups]:
    """Return, by doc_id, the groups of those documents that have some, as far as is known before they are read.

    Args:
        target: columns doc_id, granted, and ``was_stated`` of the published row.
    """
    some = target.filter(pl.col("granted").is_not_null() | pl.col("was_stated").is_not_null())
    rows = some.select("doc_id", "granted", "was_stated").iter_rows()
    found = {doc_id: effective(granted, stated) for doc_id, granted, stated in rows}
    return {doc_id: groups for doc_id, groups in found.items() if groups is not None}
