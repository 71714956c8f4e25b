"""Purge: a document is erased from everything that was ever published, and from what was never.

1. *bury*: its tombstone. From then on no reader shows it and no plan takes it in.
2. *rebuild*: every snapshot that may still be read or gone back to, without it.
3. *flip* to the current one of them.
4. *erase*: the old snapshots, its rows in Milvus, and every file that holds it.
5. *search* the lake for its words.

All but the first under the lease. Each step finds its work by looking: purge again what was cut off.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing

import polars as pl

from schemas.config import MilvusConfig
from schemas.errors import GlossatorError, TransientError, UsageError
from schemas.identity import document_id
from schemas.snapshot import Flip, Record, Snapshot, VectorStoreRef
from tasks.lake.access import Tombstone, change_groups, read_tombstones
from tasks.lake.lake import Lake, catalog_folder, snapshot_path
from tasks.plan.listing import read_hints, remember_hints
from tasks.plan.quarantine import read_quarantine
from tasks.plan.registry import list_sources, meanings
from tasks.publish.catalog import read_catalog
from tasks.publish.erase import Eraser, Traces, find_traces, probes, search_lake
from tasks.publish.milvus import IDENTITY_LENGTH, VectorsGone, collection_name, open_milvus
from tasks.publish.pins import create_pin, read_pins, remove_pin
from tasks.publish.pointer import available
from tasks.publish.without import holds, without


class PurgeReport(Record):
    """What was erased.

    Attributes:
        flip: number of the pointer to the current snapshot without the document; None where it needed no other.
        rebuilt: snapshots that were made anew without it, by their new names.
        dropped: older snapshots that could not be made anew, and are gone.
        rows: of Milvus.
        searched: files in which its words were looked for afterwards, and not found.
        lines: of the document that were looked for; 0 where every line stands in other documents too.
    """

    source: str
    uri: str
    doc_id: str
    flip: int | None
    rebuilt: tuple[str, ...]
    dropped: tuple[str, ...]
    rows: int
    files: int
    bytes: int
    searched: int
    lines: int


def find_document(lake: Lake, name: str, source: str | None) -> tuple[str, str, str]:
    """Return (source, URI, doc_id) of the document that a person means by ``uri`` or ``source/uri``.

    Raises:
        UsageError: nobody has heard of it, or several documents may be meant.
    """
    names = {spec.name for spec in list_sources(lake)} | {stone.source for stone in read_tombstones(lake).values()}
    meant = meanings(name, names if source is None else names & {source})
    known = [(place, uri) for place, uri in meant if _knows(lake, place, uri)]
    if not known:
        raise UsageError(
            f"no document {name!r} is known{f' in source {source!r}' if source else ''}",
            hint="give its path inside the source, as `glossator search` prints it, or SOURCE/PATH",
        )
    if len(known) > 1:
        found = ", ".join(f"{place}/{uri}" for place, uri in known)
        raise UsageError(f"{name!r} may be any of {found}", hint="say which: its whole name, or --source NAME")
    return *known[0], document_id(*known[0])


def _knows(lake: Lake, source: str, uri: str) -> bool:
    doc_id = document_id(source, uri)
    if doc_id in read_tombstones(lake) or doc_id in read_quarantine(lake):
        return True
    if uri in read_hints(lake, source)["uri"]:
        return True
    catalogs = {snapshot.catalog for snapshot in _snapshots(lake) if lake.has_folder(catalog_folder(snapshot.catalog))}
    return any(
        not read_catalog(lake, catalog, "documents", ["doc_id"]).filter(pl.col("doc_id") == doc_id).is_empty()
        for catalog in sorted(catalogs)
    )


def purge(
    lake: Lake,
    milvus: MilvusConfig,
    stone: Tombstone,
    still_ours: Callable[[], bool],
    *,
    now: dt.datetime | None = None,
) -> PurgeReport:
    """Erase a document that has its tombstone. The caller holds the lease.

    Args:
        still_ours: asked before anything is deleted.

    Raises:
        TransientError: the lease is lost, or Milvus cannot be reached. Purge again.
        GlossatorError: the current snapshot cannot be made anew, or words of the document were found afterwards.
    """

    def may_go_on() -> None:
        if not still_ours():
            raise TransientError("somebody else publishes now", hint="run the same purge again: it goes on from here")

    doc_id = stone.doc_id
    traces = find_traces(lake, doc_id)
    identities = {snapshot.vectors.model_identity for snapshot in _snapshots(lake)}
    renamed, dropped, flip = _publish_without(lake, stone, may_go_on, now or dt.datetime.now(dt.UTC))
    for name in lake.snapshot_names():
        if holds(lake, lake.read_snapshot(name), doc_id):
            may_go_on()
            lake.storage.delete(snapshot_path(name))
    kept = list(_snapshots(lake))
    words = probes(lake, traces, kept)
    may_go_on()
    rows = _delete_rows(lake, milvus, doc_id)
    erased = Eraser(lake, doc_id, traces, kept, identities, may_go_on).run()
    _forget(lake, stone)
    searched = _search(lake, traces, words)
    return PurgeReport(
        source=stone.source,
        uri=stone.uri,
        doc_id=doc_id,
        flip=flip,
        rebuilt=tuple(dict.fromkeys(renamed.values())),
        dropped=dropped,
        rows=rows,
        files=erased.files,
        bytes=erased.bytes,
        searched=searched,
        lines=len(words),
    )


def _snapshots(lake: Lake) -> Iterator[Snapshot]:
    for name in lake.snapshot_names():
        yield lake.read_snapshot(name)


def _publish_without(
    lake: Lake, stone: Tombstone, may_go_on: Callable[[], None], now: dt.datetime
) -> tuple[dict[str, str], tuple[str, ...], int | None]:
    """Make all snapshots that stay anew without the document, and flip to the current one of them.

    Returns:
        new names by old names, names that are gone, number of the flip (None where none was needed).
    """
    flip = lake.current_flip()
    if flip is None:
        return {}, (), None
    staying = _retained(lake)
    pins = read_pins(lake)
    renamed: dict[str, str] = {}
    dropped: list[str] = []
    for name in staying:
        snapshot = lake.read_snapshot(name)
        if not holds(lake, snapshot, stone.doc_id):
            continue
        try:
            rebuilt = without(lake, snapshot, stone.doc_id)
        except TransientError:
            raise
        except GlossatorError as error:  # Damaged, or made by another version: it cannot be gone back to either.
            if name == flip.snapshot:
                raise
            if name in pins:
                raise GlossatorError(
                    f"pinned snapshot {name} holds the document and cannot be made anew: {error.what}",
                    hint=f"run `glossator unpin {name}` and purge again: the snapshot goes as a whole then",
                ) from error
            dropped.append(name)
            continue
        if not rebuilt.counts.chunks and name != flip.snapshot:
            dropped.append(name)
            continue
        parent = renamed.get(rebuilt.parent or "", rebuilt.parent)
        may_go_on()
        lake.write_snapshot(rebuilt.model_copy(update={"parent": parent}))
        renamed[name] = rebuilt.name
    if not renamed and not dropped:
        return {}, (), None
    current = renamed.get(flip.snapshot, flip.snapshot)
    names = (current, *(renamed.get(name, name) for name in staying if name not in dropped))
    lake.create_flip(
        Flip(
            number=flip.number + 1,
            snapshot=current,
            author=stone.by,
            reason=f"purge of a document: {stone.reason}",
            created=now,
            retained=tuple(dict.fromkeys(names)),
            hold=flip.hold,
        )
    )
    _move_pins(lake, renamed, dropped)
    return renamed, tuple(dropped), flip.number + 1


def _retained(lake: Lake) -> tuple[str, ...]:
    """Return the names of the snapshots that stay, the oldest first: each is made anew after its parent."""
    created = {name: lake.read_snapshot(name).created for name in available(lake)}
    return tuple(sorted(created, key=lambda name: (created[name], name)))


def _move_pins(lake: Lake, renamed: Mapping[str, str], dropped: Collection[str]) -> None:
    for name, pin in read_pins(lake).items():
        if name in renamed:
            create_pin(lake, renamed[name], author=pin.author, reason=pin.reason, now=pin.created)
        if name in renamed or name in dropped:
            remove_pin(lake, name)


def _delete_rows(lake: Lake, milvus: MilvusConfig, doc_id: str) -> int:
    def of(collection: str) -> VectorStoreRef:
        return VectorStoreRef(collection=collection, dimension=0, model="", model_identity="")

    deleted = 0
    try:
        with closing(open_milvus(milvus, lake, of(collection_name(lake.collection, "0" * IDENTITY_LENGTH)))) as store:
            names = store.siblings()
        for name in names:
            with closing(open_milvus(milvus, lake, of(name), mend=True)) as store:
                if not store.is_ours():  # Two lakes may share a server, and the name of a collection.
                    continue
                count = store.count_document(doc_id)
                if count:
                    store.delete_document(doc_id)
                deleted += count
    except VectorsGone:
        pass  # With all the rows that were there.
    return deleted


def _forget(lake: Lake, stone: Tombstone) -> None:
    """Take the document out of hints and of today's groups."""
    hints = read_hints(lake, stone.source)
    if not hints.is_empty():
        others = hints.filter(pl.col("uri") != stone.uri)
        # Row by row: a filtered frame shares its buffers with the rows that are gone, and writes them too.
        remember_hints(lake, stone.source, pl.DataFrame(others.rows(), schema=others.schema, orient="row"))
    change_groups(lake, lambda table: {doc_id: groups for doc_id, groups in table.items() if doc_id != stone.doc_id})


def _search(lake: Lake, traces: Traces, words: tuple[str, ...]) -> int:
    if not traces.texts:
        return 0
    searched, found = search_lake(lake, words)
    if found:
        raise GlossatorError(
            f"words of the document are still in {len(found)} file(s), the first is {found[0]}",
            hint="a run that began before the purge may have written them: wait for it to end and purge again",
        )
    return searched
