"""The baseline: the documents of the published snapshot, which a plan compares its listing with."""

from __future__ import annotations

import polars as pl

from schemas.snapshot import Snapshot
from tasks.lake.lake import Corrupt, Lake, catalog_folder, rebuild_hint
from tasks.lake.storage import NotFound, reading

BASELINE: dict[str, pl.DataType | type[pl.DataType]] = {
    "doc_id": pl.String,
    "source": pl.String,
    "uri": pl.String,
    "content_digest": pl.String,
    "shard": pl.Int32,
    "granted": pl.String,
    "stated_groups": pl.List(pl.String),
    "groups": pl.List(pl.String),
}


def read_baseline(lake: Lake, snapshot: Snapshot | None) -> pl.DataFrame:
    """Return columns BASELINE, one row per document; none where nothing is published.

    Raises:
        Corrupt: the catalog is damaged in a way that its size does not show.
    """
    if snapshot is None:
        return pl.DataFrame(schema=BASELINE)
    try:
        path = lake.open_folder(catalog_folder(snapshot.catalog), verify={"documents.arrow"}) / "documents.arrow"
    except (NotFound, Corrupt):  # To be built anew, see damage.py; the passages say the same.
        from tasks.publish.catalog import list_documents  # Rarely needed, and it brings pyarrow.

        return list_documents(lake, snapshot.parts["passages"]).select(list(BASELINE))
    try:
        with reading(path):
            held = pl.read_ipc_schema(path)
            frame = pl.read_ipc(path, columns=[name for name in BASELINE if name in held])
        # What an earlier version wrote knows no grants; a plan refuses to go on from it without --migrate.
        lacking = [pl.lit(None, kind).alias(name) for name, kind in BASELINE.items() if name not in held]
        return frame.with_columns(lacking).select(list(BASELINE))
    except (pl.exceptions.PolarsError, OSError) as error:
        raise Corrupt(f"{path} is damaged ({error})", hint=rebuild_hint(path.parent)) from error
