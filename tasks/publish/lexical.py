"""The BM25 index of a candidate, built from cached tokens in the order of the catalog."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.config import Bm25Config
from schemas.identity import part_key
from schemas.snapshot import PartRef
from tasks.lake.lake import Lake, bm25_folder, passages_folder
from tasks.publish.bm25 import BM25_VERSION, build_bm25
from tasks.publish.catalog import read_arrow, read_catalog


def bm25_key(config: Bm25Config, catalog: str, tokens: Sequence[PartRef]) -> str:
    """Return the key of the index over a catalog and token parts, in shard order."""
    return part_key("bm25", config.result_digest(), BM25_VERSION, catalog, *(ref.key for ref in tokens))


def write_bm25(
    lake: Lake, config: Bm25Config, catalog: str, passages: Sequence[PartRef], tokens: Sequence[PartRef]
) -> str:
    """Build the index unless it is there; return its key. Document i is row i of the catalog's chunks."""
    key = bm25_key(config, catalog, tokens)
    if lake.has_folder(bm25_folder(key)):
        return key
    flat, offsets, vocabulary = _corpus(lake, catalog, passages, tokens)
    lake.write_folder(bm25_folder(key), build_bm25(flat, offsets, vocabulary, config))
    return key


def _corpus(
    lake: Lake, catalog: str, passages: Sequence[PartRef], tokens: Sequence[PartRef]
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return term ids of all chunks as (flat, offsets), in catalog order, and the vocabulary."""
    parts = [lake.read_part("tokens", ref.key) for ref in tokens]
    table = pa.concat_tables(parts).unify_dictionaries().combine_chunks()
    lists = table["tokens"].combine_chunks()
    terms = lists.values
    starts = lists.offsets.to_numpy()
    digests = _digests(lake, catalog, passages)
    rows = pc.index_in(digests, value_set=table["embedded_digest"].combine_chunks()).to_numpy(zero_copy_only=False)
    lengths = np.diff(starts)[rows]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    # Gather each chunk's run of terms: its start in the parts, less its start in the result, plus a running index.
    shift = np.repeat(starts[rows] - offsets[:-1], lengths)
    flat = terms.indices.to_numpy(zero_copy_only=False)[np.arange(offsets[-1]) + shift].astype(np.int32)
    return flat, offsets, terms.dictionary.to_pylist()


def _digests(lake: Lake, catalog: str, passages: Sequence[PartRef]) -> pa.Array:
    chunks = read_catalog(lake, catalog, "chunks", ["shard", "row"])
    per_shard = [
        read_arrow(lake.open_folder(passages_folder(ref.key)) / "chunks.arrow", ["embedded_digest"])[
            "embedded_digest"
        ].to_numpy()
        for ref in passages
    ]
    starts = np.cumsum([0, *(len(rows) for rows in per_shard)])[:-1]
    everything = np.concatenate(per_shard) if per_shard else np.empty(0, object)
    return pa.array(everything[starts[chunks["shard"].to_numpy()] + chunks["row"].to_numpy()], pa.string())
