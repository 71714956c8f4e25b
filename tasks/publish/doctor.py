"""The doctor: does the published snapshot hold what it promises? One finding per invariant, in words.

1. Every file of it is there and is what its checksum says.
2. Milvus, BM25 and passages hold the same visible chunks.
3. ``text[start:end]`` is the chunk, for every chunk: context, chunk and metadata give back the chunk's id.
4. The rows of BM25 are the chunks of the catalog, in its order.
5. The contents are those that the snapshot's id stands for.
6. The vector index finds what a comparison with every vector finds: recall@10 of at least 0.98.

And of the lake: the flips, today's access, pins and sources can be read, and what else is kept to go back to is whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice

import numpy as np
import numpy.typing as npt
import polars as pl

from schemas.config import Config
from schemas.errors import GlossatorError, TransientError
from schemas.identity import chunk_id, embedded_digest, embedded_text
from schemas.rows import metadata_of
from schemas.snapshot import SHORT, PartRef, Record, Snapshot
from schemas.work import Workspace
from tasks.lake import flip_copy
from tasks.lake.access import damaged_copies, read_access
from tasks.lake.lake import Corrupt, Lake, bm25_folder, catalog_folder, passages_folder, rebuild_hint
from tasks.lake.storage import NotFound
from tasks.plan.registry import list_sources
from tasks.publish.bm25 import Bm25Index
from tasks.publish.candidate import vector_rows
from tasks.publish.catalog import identify, read_arrow, read_catalog
from tasks.publish.milvus import MilvusStore, VectorsGone, open_milvus, search_width
from tasks.publish.pins import read_pins
from tasks.publish.pointer import available
from tasks.publish.recall import NEIGHBOURS, index_recall

ENOUGH_RECALL = 0.98
SAME_TEXT = 0.9995
"""Least cosine similarity of two vectors of one text."""
MOST_FLIPS = 1_000
"""Flips that are read, the newest first."""
_KEPT_SNAPSHOT = "restore it from a copy; until the next publishes have dropped it nothing can be gone back to there"
_DAMAGED_PART = "delete it, or run `glossator doctor --repair`, which does: readers and a rollback do not need it"
_SPARED = "readers and a rollback do not need them, to build passages or BM25 again one would"
"""Of missing parts of what is only kept: no run computes them again, and what they were made into is whole."""


class PartsMissing(GlossatorError):
    """All that a snapshot is read from is whole, and some of what it was made of is gone."""


class Finding(Record):
    """One invariant, whether it holds, and what mends it."""

    check: str
    ok: bool
    message: str
    remedy: str = ""


def examine(
    space: Workspace, lake: Lake, snapshot: Snapshot, *, despite_damage: bool = False, kept: bool = False
) -> Iterator[Finding]:
    """Yield a finding per invariant of a snapshot. Reads everything once; writes nothing.

    Ends with the first where files are damaged: nothing can be said of what they hold. Where Milvus lacks chunks, its
    recall is left out.

    Args:
        despite_damage: go on all the same, where no more than parts are known to be missing.
        kept: the snapshot is not the current one, and missing parts of it are told without being a fault.
    """
    stored = True
    for check, remedy, look in (
        ("files", "run `glossator doctor --repair`: it is built anew", _files),
        ("spans", "report it: an index must never hold such a row", _spans),
        ("bm25", rebuild_hint(lake.storage.local(bm25_folder(snapshot.bm25))), _bm25),
        ("milvus", "run `glossator doctor --repair`: its rows are written again", _milvus),
        ("recall", "set milvus.index to FLAT, or write the rows again: `glossator doctor --repair`", _recall),
        ("identity", "report it: the contents are not those of the snapshot's id", _identity),
    ):
        if check == "recall" and not stored:
            continue
        try:
            problem, message = look(space, lake, snapshot)
        except GlossatorError as error:
            no_more_than_parts = isinstance(error, PartsMissing) or (check == "bm25" and isinstance(error, NotFound))
            problem, message = not (kept and no_more_than_parts), error.what
            if not problem:
                message = f"{message}; {_SPARED}"
            if not isinstance(error, VectorsGone | NotFound):
                remedy = error.hint or remedy
        yield Finding(check=check, ok=not problem, message=message, remedy=remedy if problem else "")
        stored = stored and not (problem and check == "milvus")
        if problem and check == "files" and not despite_damage:
            return


def folders_of(snapshot: Snapshot) -> list[str]:
    """Return the storage folders that a snapshot names."""
    passages = (passages_folder(ref.key) for ref in snapshot.parts["passages"])
    return [catalog_folder(snapshot.catalog), bm25_folder(snapshot.bm25), *passages]


def _files(space: Workspace, lake: Lake, snapshot: Snapshot) -> tuple[bool, str]:
    folders = folders_of(snapshot)
    for folder in folders:
        lake.open_folder(folder, verify=True)
    parts = [ref for stage, refs in snapshot.parts.items() if stage != "passages" for ref in refs]
    missing = [ref for ref in parts if lake.find_part(ref.stage, ref.key) is None]
    if missing:
        raise PartsMissing(
            f"{len(missing):,} of {len(parts):,} parts are missing, the first is {missing[0].stage} {missing[0].key}",
            hint="run `glossator index` again: what is missing is computed anew",
        )
    return False, f"{len(folders):,} folders and {len(parts):,} parts are whole"


def _spans(space: Workspace, lake: Lake, snapshot: Snapshot) -> tuple[bool, str]:
    wrong: list[str] = []
    total = 0
    for ref in snapshot.parts["passages"]:
        for uri, start, end, good in _recomputed(lake, ref):
            total += 1
            if not good:
                wrong.append(f"{uri}[{start}:{end}]")
    if wrong:
        return True, f"{len(wrong):,} of {total:,} chunks are not their document's text, the first is {wrong[0]}"
    return False, f"text[start:end] is the chunk for all {total:,} chunks"


def _recomputed(lake: Lake, ref: PartRef) -> Iterator[tuple[str, int, int, bool]]:
    """Derive the id of each chunk from the stored text, span, context and metadata, and compare."""
    folder = lake.open_folder(passages_folder(ref.key))
    documents = read_arrow(folder / "documents.arrow").to_dicts()
    seen: Counter[tuple[int, str]] = Counter()
    for row in read_arrow(folder / "chunks.arrow").sort("document", "index").iter_rows(named=True):
        document = documents[row["document"]]
        chunk = document["text"][row["start"] : row["end"]]
        embedded = embedded_text(row["context"], chunk)
        occurrence = seen[row["document"], embedded]
        seen[row["document"], embedded] += 1
        good = (
            row["embedded_digest"] == embedded_digest(embedded)
            and row["chunk_id"] == chunk_id(document["doc_id"], embedded, metadata_of(document), occurrence)
            and 0 <= row["start"] < row["end"] <= len(document["text"])
        )
        yield document["uri"], row["start"], row["end"], good


def _bm25(space: Workspace, lake: Lake, snapshot: Snapshot) -> tuple[bool, str]:
    index = Bm25Index.open(lake.open_folder(bm25_folder(snapshot.bm25)))
    chunks = read_catalog(lake, snapshot.catalog, "chunks", ["shard", "row"])
    if index.size != chunks.height:
        return True, f"BM25 holds {index.size:,} chunks, the catalog {chunks.height:,}"
    expected = _term_sums(lake, snapshot)
    digests = {
        ref.shard: read_arrow(lake.open_folder(passages_folder(ref.key)) / "chunks.arrow", ["embedded_digest"])[
            "embedded_digest"
        ]
        for ref in snapshot.parts["passages"]
    }
    wanted = np.array([expected.get(digests[shard][row], 0) for shard, row in chunks.iter_rows()], dtype=np.uint64)
    found = index.term_sums(_hashes(pl.Series(index.vocabulary.to_pylist(), dtype=pl.String)))
    wrong = int((found != wanted).sum())
    if wrong:
        return True, f"{wrong:,} of {index.size:,} BM25 rows are not the chunk of their place in the catalog"
    return False, f"BM25 holds all {index.size:,} chunks, in the catalog's order"


def _term_sums(lake: Lake, snapshot: Snapshot) -> dict[str, int]:
    """Return the sum (mod 2^64) of the hashes of each embedded text's distinct terms, by its digest."""
    expected: dict[str, int] = {}
    for ref in snapshot.parts["tokens"]:
        table = pl.DataFrame(pl.from_arrow(lake.read_part("tokens", ref.key))).with_row_index("text")
        terms = (
            table.select("text", pl.col("tokens").cast(pl.List(pl.String)).list.unique()).explode("tokens").drop_nulls()
        )
        sums = np.zeros(table.height, np.uint64)
        np.add.at(sums, terms["text"].to_numpy(), _hashes(terms["tokens"]))
        expected.update(zip(table["embedded_digest"].to_list(), sums.tolist(), strict=True))
    return expected


def _hashes(terms: pl.Series) -> npt.NDArray[np.uint64]:
    hashes: npt.NDArray[np.uint64] = terms.hash().to_numpy()
    return hashes


def _milvus(space: Workspace, lake: Lake, snapshot: Snapshot) -> tuple[bool, str]:
    wanted = set(read_catalog(lake, snapshot.catalog, "chunks", ["chunk_id"])["chunk_id"].to_list())
    try:
        with closing(open_milvus(space.config.milvus, lake, snapshot.vectors)) as store:
            rows = Counter(store.ids())
            missing = wanted - rows.keys()
            wrong = 0 if missing else _wrong_rows(lake, snapshot, store)
    except TransientError as error:  # In use by another process, or damaged: Milvus Lite says the same of both.
        hint = f"{error.hint}; if that does not help, `glossator doctor --repair` writes its rows again"
        raise GlossatorError(error.what, hint=hint) from error
    if missing:
        return True, f"Milvus lacks {len(missing):,} of {len(wanted):,} chunks"
    # Milvus Lite, killed while it flushes, holds twice what it was about to take out of its log.
    double = sum(rows[chunk] > 1 for chunk in wanted)
    if double:
        return True, f"Milvus holds {double:,} of {len(wanted):,} chunks twice"
    if wrong:
        return True, f"Milvus holds {wrong:,} of {len(wanted):,} chunks with another vector or other columns"
    return False, f"Milvus holds all {len(wanted):,} chunks, and {len(rows.keys() - wanted):,} rows that no reader sees"


def _wrong_rows(lake: Lake, snapshot: Snapshot, store: MilvusStore) -> int:
    """Return the number of rows that are not what would be written for their chunk."""
    documents = read_catalog(lake, snapshot.catalog, "documents")
    wrong = 0
    for part in snapshot.parts["passages"]:
        wanted = {row["chunk_id"]: row for row in vector_rows(lake, part, documents, frozenset())}
        for row in map(dict, store.rows(list(wanted))):
            expected = wanted[row["chunk_id"]]
            same = all(row.get(name) == value for name, value in expected.items() if name != "vector")
            wrong += not (same and _is_of_one_text(row["vector"], expected["vector"]))
    return wrong


def _is_of_one_text(one: Sequence[float], other: Sequence[float]) -> bool:
    """Tell whether two vectors may be of the same text.

    A quantised model gives the same text vectors that differ by 4e-5 when other texts are beside it.
    """
    first, second = np.asarray(one, np.float64), np.asarray(other, np.float64)
    lengths = np.linalg.norm(first) * np.linalg.norm(second)
    return bool(lengths == 0 or first @ second >= SAME_TEXT * lengths)


def _recall(space: Workspace, lake: Lake, snapshot: Snapshot) -> tuple[bool, str]:
    candidates = space.config.search.candidates
    with closing(open_milvus(space.config.milvus, lake, snapshot.vectors)) as store:
        width = search_width(candidates)
        recall = index_recall(lake, snapshot, lambda vector: store.search(vector, candidates, width), store.vectors)
    return recall < ENOUGH_RECALL, f"the vector index has a recall@{NEIGHBOURS} of {recall:.3f} against all vectors"


def _identity(space: Workspace, lake: Lake, snapshot: Snapshot) -> tuple[bool, str]:
    found = identify(lake, snapshot.indexing_digest, snapshot.catalog, snapshot.parts["passages"])
    if found != snapshot.id:
        return True, f"the contents have the id {found}, the snapshot says {snapshot.id}"
    return False, f"the contents are those of snapshot {snapshot.id}"


# --- the lake beside the current snapshot -----------------------------------------------------------------------------


def examine_lake(config: Config, lake: Lake, current: Snapshot) -> Iterator[Finding]:
    """Yield a finding for the records of a lake, and one for the snapshots that are kept beside the current one."""
    for check, look in (("history", _history), ("access", _access), ("sources", _sources), ("kept", _kept)):
        try:
            problem, message, remedy = look(config, lake, current)
        except GlossatorError as error:
            problem, message, remedy = True, error.what, error.hint or "restore it from a copy"
        yield Finding(check=check, ok=not problem, message=message, remedy=remedy if problem else "")


def _history(config: Config, lake: Lake, current: Snapshot) -> tuple[bool, str, str]:
    numbers = lake.flip_numbers()
    for _ in islice(lake.newest_flips(), MOST_FLIPS):
        pass
    lost = (max(numbers) - len(numbers)) if numbers else 0
    if flip_copy.is_damaged(lake.storage, max(numbers, default=0)):
        what = f"{lake.storage.local(flip_copy.KEY)} is damaged or gone: nothing would tell of a lost newest flip"
        return True, what, "run `glossator doctor --repair`: it is written anew"
    # Nothing but the history needs an older flip.
    said = f"{len(numbers):,} flips and {len(read_pins(lake)):,} pins can be read"
    return False, f"{said}; {lost:,} older flips are missing" if lost else said, ""


def _access(config: Config, lake: Lake, current: Snapshot) -> tuple[bool, str, str]:
    access = read_access(lake)
    if damaged := damaged_copies(lake):
        what = f"{lake.storage.local(damaged[0])} is damaged or gone: nothing could put back its file"
        return True, what, "run `glossator doctor --repair`: it is written anew"
    said = f"{len(access.groups):,} documents have groups today, {len(access.tombstones):,} were purged"
    return False, said, ""


def _sources(config: Config, lake: Lake, current: Snapshot) -> tuple[bool, str, str]:
    recorded = {spec.name for spec in list_sources(lake)}
    named = set(read_catalog(lake, current.catalog, "documents", ["source"], verify=True)["source"].to_list())
    flip, lost = lake.current_flip(), sorted(named - recorded)
    if lost and flip is not None and not flip.hold:  # A rollback may bring back a source that was removed.
        remedy = (
            f"run `glossator index FOLDER --source {lost[0]}` with its folder, or `glossator source remove {lost[0]}`"
        )
        path = lake.storage.local(f"sources/{lost[0]}.json")
        return True, f"{path} is missing, and documents of that source are published", remedy
    return False, f"{len(recorded):,} sources are recorded", ""


def _kept(config: Config, lake: Lake, current: Snapshot) -> tuple[bool, str, str]:
    flip = lake.current_flip()
    names = dict.fromkeys((*available(lake), *(flip.retained if flip else ()), *read_pins(lake)))
    try:
        others = [lake.read_snapshot(name) for name in names if name != current.name]
    except Corrupt as error:
        return True, error.what, _KEPT_SNAPSHOT
    whole = set(folders_of(current))
    parts = {(stage, ref.key) for stage, refs in current.parts.items() for ref in refs}
    missing: dict[str, set[str]] = {}
    lost = 0
    for snapshot in others:
        of = f"of kept snapshot {snapshot.name[:SHORT]}: "
        for folder in folders_of(snapshot):
            if folder not in whole:
                try:
                    lake.open_folder(folder, verify=True)
                except GlossatorError as error:
                    return True, of + error.what, error.hint or "run `glossator doctor --repair`"
                whole.add(folder)
        wanted = missing.setdefault(snapshot.vectors.collection, set())
        wanted |= set(read_catalog(lake, snapshot.catalog, "chunks", ["chunk_id"], verify=True)["chunk_id"])
        for stage, refs in snapshot.parts.items():
            for ref in refs:
                if stage != "passages" and (stage, ref.key) not in parts:
                    parts.add((stage, ref.key))
                    try:
                        lost += lake.find_part(stage, ref.key) is None
                    except Corrupt as error:
                        return True, of + error.what, _DAMAGED_PART
    for snapshot in {one.vectors.collection: one for one in others}.values():
        try:
            with closing(open_milvus(config.milvus, lake, snapshot.vectors)) as store:
                missing[snapshot.vectors.collection] -= set(store.ids())
        except GlossatorError as error:
            return (
                True,
                f"for kept snapshots: {error.what}",
                "run `glossator doctor --repair`: its rows are written again",
            )
    lacking = sum(map(len, missing.values()))
    if lacking:
        return True, f"Milvus lacks {lacking:,} chunks of kept snapshots", "run `glossator doctor --repair`"
    said = f"{len(others):,} other snapshots are kept, and whole"
    return False, f"{said}; {lost:,} parts of them are missing: {_SPARED}" if lost else said, ""
