"""The catalog: all documents and chunks of a snapshot, where each lies, and what filters ask for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from schemas.identity import acl_id, part_key, snapshot_id, tags_id
from schemas.snapshot import PartRef
from schemas.tables import CATALOG_CHUNKS, CATALOG_DOCUMENTS
from tasks.lake.lake import Corrupt, Lake, catalog_folder, first_line, ipc_bytes, passages_folder, rebuild_hint
from tasks.lake.storage import reading

CATALOG_VERSION = 2


def catalog_key(passages: Sequence[PartRef]) -> str:
    """Return the key of the catalog over some passages, in shard order."""
    return part_key("catalog", "", CATALOG_VERSION, *(ref.key for ref in passages))


def write_catalog(lake: Lake, passages: Sequence[PartRef]) -> str:
    """Write the catalog over all shards, unless it is there and whole; return its key.

    Raises:
        Corrupt: passages are damaged, which no new snapshot may go on from.
    """
    key = catalog_key(passages)
    if lake.has_folder(catalog_folder(key), verify=True):
        return key
    documents = list_documents(lake, passages)
    places = documents.with_row_index("document").select("shard", "row", document=pl.col("document").cast(pl.Int32))
    chunks = (
        pl.concat([_chunks(lake, ref) for ref in passages])
        .join(places.rename({"row": "document_row"}), on=["shard", "document_row"])
        .sort("chunk_id")
    )
    counts = np.bincount(chunks["document"].to_numpy(), minlength=documents.height)
    documents = documents.with_columns(chunks=pl.Series(counts, dtype=pl.Int32))
    lake.write_folder(
        catalog_folder(key),
        {
            "documents.arrow": ipc_bytes(documents.select(CATALOG_DOCUMENTS.names).to_arrow().cast(CATALOG_DOCUMENTS)),
            "chunks.arrow": ipc_bytes(chunks.select(CATALOG_CHUNKS.names).to_arrow().cast(CATALOG_CHUNKS)),
        },
    )
    return key


def list_documents(lake: Lake, passages: Sequence[PartRef]) -> pl.DataFrame:
    """Return the documents of all shards, sorted by id: columns of CATALOG_DOCUMENTS without ``chunks``."""
    return pl.concat([_documents(lake, ref) for ref in passages]).sort("doc_id")


def read_catalog(
    lake: Lake, key: str, table: str, columns: Sequence[str] | None = None, *, verify: bool = False
) -> pl.DataFrame:
    """Read ``documents`` or ``chunks`` of a catalog.

    Args:
        verify: compare its checksum first, where something is deleted or published by what it says.
    """
    name = f"{table}.arrow"
    return read_arrow(lake.open_folder(catalog_folder(key), verify={name} if verify else False) / name, columns)


def read_arrow(path: Path, columns: Sequence[str] | None = None) -> pl.DataFrame:
    """Read columns of an Arrow IPC file of a folder.

    Raises:
        Corrupt: it is no such file.
    """
    try:
        with reading(path), pa.memory_map(str(path)) as file:
            table = pa.ipc.open_file(file).read_all()
            return pl.DataFrame(pl.from_arrow(table.select(list(columns)) if columns else table))
    except (OSError, pa.ArrowException, KeyError) as error:
        raise Corrupt(f"{path} is damaged ({first_line(error)})", hint=rebuild_hint(path.parent)) from error


def _documents(lake: Lake, ref: PartRef) -> pl.DataFrame:
    frame = read_arrow(
        lake.open_folder(passages_folder(ref.key), verify={"documents.arrow"}) / "documents.arrow",
        [name for name in CATALOG_DOCUMENTS.names if name not in {"acl_id", "tags_id", "shard", "row", "chunks"}],
    )
    return frame.with_columns(
        acl_id=pl.Series(
            [acl_id(None if groups is None else tuple(groups)) for groups in frame["groups"].to_list()], dtype=pl.Int64
        ),
        tags_id=pl.Series([tags_id(tags) for tags in frame["tags"].to_list()], dtype=pl.Int64),
        shard=pl.lit(ref.shard, pl.Int32),
        row=pl.int_range(pl.len(), dtype=pl.Int32),
    )


def _chunks(lake: Lake, ref: PartRef) -> pl.DataFrame:
    folder = lake.open_folder(passages_folder(ref.key), verify={"chunks.arrow"})
    frame = read_arrow(folder / "chunks.arrow", ["chunk_id", "document"])
    return frame.select(
        "chunk_id",
        document_row="document",
        shard=pl.lit(ref.shard, pl.Int32),
        row=pl.int_range(pl.len(), dtype=pl.Int32),
    )


def identify(lake: Lake, config_digest: str, catalog: str, passages: Sequence[PartRef]) -> str:
    """Return the snapshot id of the contents of a catalog."""
    documents = read_catalog(lake, catalog, "documents", ["doc_id", "text_digest", "metadata_digest"])
    chunks = pl.concat(
        [
            read_arrow(lake.open_folder(passages_folder(ref.key)) / "chunks.arrow", ["chunk_id", "start", "end"])
            for ref in passages
        ]
    )
    return snapshot_id(config_digest, documents.iter_rows(), chunks.iter_rows())
