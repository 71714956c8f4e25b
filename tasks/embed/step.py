"""Embed, for one shard: the vector of each distinct embedded text.

Vectors are copied by embed_key from earlier parts; the model is loaded only when one is missing.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.errors import GlossatorError
from schemas.identity import digest_rows, embed_key, part_key
from schemas.snapshot import PartRef
from schemas.tables import vectors
from schemas.work import ShardJob, Workspace
from tasks.embed.encoder import open_encoder
from tasks.embed.model import locate_model
from tasks.progress import expect, tick
from tasks.step import donor_tables, lake_of, parts_step


def _key(space: Workspace, job: ShardJob, contexts: PartRef) -> str:
    return part_key("embed", space.stages["embed"], contexts.reads["embedded"])


def _compute(space: Workspace, job: ShardJob, key: str, contexts: PartRef) -> PartRef:
    lake = lake_of(space)
    table = lake.read_part("contextualize", contexts.key, ["embedded_digest", "embedded"])
    texts = {
        embed_key(space.model.identity, digest): text
        for digest, text in zip(table["embedded_digest"].to_pylist(), table["embedded"].to_pylist(), strict=True)
    }
    keys = sorted(texts)
    rows = np.zeros((len(keys), space.model.dimension), np.float32)
    missing = np.ones(len(keys), np.bool_)
    _copy(space, job, keys, rows, missing)
    if missing.any():
        wanted = np.flatnonzero(missing)
        rows[wanted] = _encode(space, [texts[keys[index]] for index in wanted])
    part = pa.table([pa.array(keys, pa.string()), _as_list(rows)], schema=vectors(space.model.dimension))
    ref = describe_vectors(space.stages["embed"], job.shard, key, keys, int(missing.sum()))
    return lake.write_part(ref, part)


def describe_vectors(config: str, shard: int, key: str, keys: Sequence[str], computed: int = 0) -> PartRef:
    """Return the ref of a table of vectors.

    Args:
        keys: its column embed_key.
    """
    return PartRef(
        stage="embed",
        shard=shard,
        key=key,
        config=config,
        rows_digest=digest_rows((key,) for key in keys),
        counts={"vectors": len(keys), "computed": computed, "copied": len(keys) - computed},
    )


def _encode(space: Workspace, texts: Sequence[str]) -> npt.NDArray[np.float32]:
    expect("embed", len(texts))
    encoder = open_encoder(locate_model(space.model.name), space.config.embed)
    rows = encoder.encode(texts, lambda count: tick("embed", count))
    if not np.isfinite(rows).all():
        bad = texts[int(np.flatnonzero(~np.isfinite(rows).all(axis=1))[0])]
        raise GlossatorError(
            f"{space.model.name} gave a vector that is not finite for the text {bad[:80]!r}",
            hint="try embed.precision = fp32",
        )
    return rows


def _copy(
    space: Workspace,
    job: ShardJob,
    keys: Sequence[str],
    rows: npt.NDArray[np.float32],
    missing: npt.NDArray[np.bool_],
) -> None:
    wanted = pa.array(keys, pa.string())
    for donor in donor_tables(space, job, "embed"):
        if not missing.any():
            return
        positions = pc.index_in(wanted, value_set=donor["embed_key"].combine_chunks())
        found = np.flatnonzero(positions.is_valid().to_numpy(zero_copy_only=False) & missing)
        at = positions.take(pa.array(found)).to_numpy(zero_copy_only=False).astype(np.int64)
        rows[found] = matrix(donor["vector"], space.model.dimension)[at]
        missing[found] = False


def matrix(column: pa.ChunkedArray, dimension: int) -> npt.NDArray[np.float32]:
    """Return a vector column as float32 [rows, dimension]."""
    flat = column.combine_chunks().flatten()
    values: npt.NDArray[np.float32] = flat.to_numpy(zero_copy_only=False).reshape(-1, dimension)
    return values


def _as_list(rows: npt.NDArray[np.float32]) -> pa.FixedSizeListArray:
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1), pa.float32()), rows.shape[1])


EMBED = parts_step("embed", _key, _compute, alone=threading.Lock())
