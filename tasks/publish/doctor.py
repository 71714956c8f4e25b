"""The doctor: does the published snapshot hold what it promises? One finding per invariant, in words.

1. Every file of it is there and is what its checksum says.
2. Milvus, BM25 and passages hold the same visible chunks.
3. ``text[start:end]`` is the chunk, for every chunk: context, chunk and metadata give back the chunk's id.
4. The rows of BM25 are the chunks of the catalog, in its order.
5. The contents are those that the snapshot's id stands for.
6. The vector index finds what a comparison with every vector finds: recall@10 of at least 0.98.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import numpy.typing as npt
import polars as pl

from schemas.errors import GlossatorError, TransientError
from schemas.identity import chunk_id, embedded_digest, embedded_text
from schemas.rows import metadata_of
from schemas.snapshot import PartRef, Record, Snapshot
from schemas.work import Workspace
from tasks.lake.lake import Lake, bm25_folder, catalog_folder, passages_folder, rebuild_hint
from tasks.lake.storage import NotFound
from tasks.publish.bm25 import Bm25Index
from tasks.publish.catalog import identify, read_arrow, read_catalog
from tasks.publish.milvus import VectorsGone, open_milvus, search_width
from tasks.publish.recall import NEIGHBOURS, index_recall

ENOUGH_RECALL = 0.98


class Finding(Record):
    """One invariant, whether it holds, and what mends it."""

    check: str
    ok: bool
    message: str
    remedy: str = ""


def examine(space: Workspace, lake: Lake, snapshot: Snapshot, *, despite_damage: bool = False) -> Iterator[Finding]:
    """Yield a finding per invariant of a snapshot. Reads everything once; writes nothing.

    Ends with the first where files are damaged: nothing can be said of what they hold. Where Milvus lacks chunks, its
    recall is left out.

    Args:
        despite_damage: go on all the same, where no more than parts are known to be missing.
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
            problem, message = True, error.what
            if not isinstance(error, VectorsGone | NotFound):
                remedy = error.hint or remedy
        yield Finding(check=check, ok=not problem, message=message, remedy=remedy if problem else "")
        stored = stored and not (problem and check == "milvus")
        if problem and check == "files" and not despite_damage:
            return


def _files(space: Workspace, lake: Lake, snapshot: Snapshot) -> tuple[bool, str]:
    folders = [
        catalog_folder(snapshot.catalog),
        bm25_folder(snapshot.bm25),
        *(passages_folder(ref.key) for ref in snapshot.parts["passages"]),
    ]
    for folder in folders:
        lake.open_folder(folder, verify=True)
    parts = [ref for stage, refs in snapshot.parts.items() if stage != "passages" for ref in refs]
    missing = [ref for ref in parts if lake.find_part(ref.stage, ref.key) is None]
    if missing:
        raise GlossatorError(
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
    except TransientError as error:  # In use by another process, or damaged: Milvus Lite says the same of both.
        hint = f"{error.hint}; if that does not help, `glossator doctor --repair` writes its rows again"
        raise GlossatorError(error.what, hint=hint) from error
    missing = wanted - rows.keys()
    if missing:
        return True, f"Milvus lacks {len(missing):,} of {len(wanted):,} chunks"
    # Milvus Lite, killed while it flushes, holds twice what it was about to take out of its log.
    double = sum(rows[chunk] > 1 for chunk in wanted)
    if double:
        return True, f"Milvus holds {double:,} of {len(wanted):,} chunks twice"
    return False, f"Milvus holds all {len(wanted):,} chunks, and {len(rows.keys() - wanted):,} rows that no reader sees"


def _recall(space: Workspace, lake: Lake, snapshot: Snapshot) -> tuple[bool, str]:
    candidates = space.config.search.candidates
    with closing(open_milvus(space.config.milvus, lake, snapshot.vectors)) as store:
        recall = index_recall(lake, snapshot, lambda vector: store.search(vector, candidates, search_width(candidates)))
    return recall < ENOUGH_RECALL, f"the vector index has a recall@{NEIGHBOURS} of {recall:.3f} against all vectors"


def _identity(space: Workspace, lake: Lake, snapshot: Snapshot) -> tuple[bool, str]:
    found = identify(lake, snapshot.indexing_digest, snapshot.catalog, snapshot.parts["passages"])
    if found != snapshot.id:
        return True, f"the contents have the id {found}, the snapshot says {snapshot.id}"
    return False, f"the contents are those of snapshot {snapshot.id}"
