"""The BM25 index of a candidate, built from cached tokens in the order of the catalog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.config import Bm25Config
from schemas.identity import part_key
from schemas.snapshot import PartRef
from tasks.lake.arrays import disk_room
from tasks.lake.lake import Corrupt, Lake, bm25_folder, part_path, passages_folder
from tasks.publish.bm25 import BM25_VERSION
from tasks.publish.bm25_build import build_bm25
from tasks.publish.catalog import read_arrow, read_catalog

Flat = npt.NDArray[np.int32]


def bm25_key(config: Bm25Config, catalog: str, tokens: Sequence[PartRef]) -> str:
    """Return the key of the index over a catalog and token parts, in shard order."""
    return part_key("bm25", config.result_digest(), BM25_VERSION, catalog, *(ref.key for ref in tokens))


def write_bm25(
    lake: Lake, config: Bm25Config, catalog: str, passages: Sequence[PartRef], tokens: Sequence[PartRef]
) -> str:
    """Build the index unless it is there and whole; return its key. Document i is row i of the catalog's chunks."""
    key = bm25_key(config, catalog, tokens)
    if lake.has_folder(bm25_folder(key), verify=True):
        return key
    flat, offsets, vocabulary = _corpus(lake, catalog, passages, tokens)
    lake.write_folder(bm25_folder(key), build_bm25(flat, offsets, vocabulary, config, lake.root))
    return key


def _corpus(
    lake: Lake, catalog: str, passages: Sequence[PartRef], tokens: Sequence[PartRef]
) -> tuple[Flat, npt.NDArray[np.int64], list[str]]:
    """Return term ids of all chunks as (flat, offsets), in catalog order, and the vocabulary.

    One shard at a time, its terms twice: the lengths of all chunks say where the terms of each go.
    """
    places = _places(lake, catalog)
    nothing = np.empty(0, np.int64)  # A shard whose documents are all empty has no chunk.
    lengths = np.zeros(sum(len(rows) for rows in places.values()), np.int64)
    numbers: dict[str, int] = {}
    shards = []
    for chunks, terms in zip(passages, tokens, strict=True):
        table = lake.read_part("tokens", terms.key)
        at, rows = places.get(chunks.shard, nothing), _rows(lake, chunks, terms, table)
        lists = table["tokens"].combine_chunks()
        lengths[at] = np.diff(lists.offsets.to_numpy())[rows]
        for term in lists.values.dictionary.to_pylist():
            numbers.setdefault(term, len(numbers))
        shards.append((at, rows, terms))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    flat = np.frombuffer(disk_room(4 * int(offsets[-1]), lake.root), np.int32, int(offsets[-1]))
    for at, rows, terms in shards:
        lists = lake.read_part("tokens", terms.key, ["tokens"])["tokens"].combine_chunks()
        starts, dictionary = lists.offsets.to_numpy()[:-1], lists.values.dictionary.to_pylist()
        own = np.array([numbers[term] for term in dictionary], np.int32)[lists.values.indices.to_numpy()]
        flat[_runs(offsets[at], lengths[at])] = own[_runs(starts[rows], lengths[at])]
    return flat, offsets, list(numbers)


def _places(lake: Lake, catalog: str) -> Mapping[int, npt.NDArray[np.int64]]:
    """Return for each shard the rows of the catalog that its chunks have, in the order of the shard."""
    chunks = read_catalog(lake, catalog, "chunks", ["shard", "row"]).with_row_index("at")
    return {
        shard: rows["at"].to_numpy().astype(np.int64)
        for (shard,), rows in chunks.sort("shard", "row").partition_by("shard", as_dict=True).items()
    }


def _rows(lake: Lake, chunks: PartRef, terms: PartRef, table: pa.Table) -> npt.NDArray[np.int64]:
    """Return for each chunk of a shard the row of its text in the shard's table of TOKENS.

    Raises:
        Corrupt: a chunk has none.
    """
    folder = lake.open_folder(passages_folder(chunks.key), verify={"chunks.arrow"})
    digests = read_arrow(folder / "chunks.arrow", ["embedded_digest"])
    found = pc.index_in(digests["embedded_digest"].to_arrow(), value_set=table["embedded_digest"].combine_chunks())
    if found.null_count:
        raise Corrupt(
            f"{lake.storage.local(part_path('tokens', terms.key))} lacks {found.null_count} chunk(s) of {folder}",
            hint="delete that file and run `glossator index` again: it is computed anew",
        )
    rows: npt.NDArray[np.int64] = found.to_numpy(zero_copy_only=False).astype(np.int64)
    return rows


def _runs(starts: npt.NDArray[np.integer], lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the numbers from each start on, as many as its length says, one run after the other."""
    before = np.cumsum(lengths) - lengths
    runs: npt.NDArray[np.int64] = np.arange(lengths.sum()) + np.repeat(starts - before, lengths)
    return runs
