"""A document with a secret, its purge, and the search for what is left of it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import pyarrow.parquet as pq

from schemas.identity import document_id
from tasks.lake.access import Tombstone, bury
from tasks.lake.lake import Lake
from tasks.publish.purge import PurgeReport, purge
from tests.fixtures import make_config

MARKER = b"zyxquokka"
SECRET = (
    "# Vault\n\nThe password of the vault is zyxquokka and nothing else.\n\n## Old\n\nIt was zyxquokka before too.\n"
)
OTHERS = {f"o{number}.md": f"# Other {number}\n\nWords of the document number {number}.\n" for number in range(5)}


def stone(uri: str = "secret.md", source: str = "docs") -> Tombstone:
    when = dt.datetime(2025, 1, 2, tzinfo=dt.UTC)
    return Tombstone(doc_id=document_id(source, uri), source=source, uri=uri, when=when, by="me", reason="asked for")


def erase(lake: Lake, uri: str = "secret.md", still_ours: Callable[[], bool] = lambda: True) -> PurgeReport:
    return purge(lake, make_config().milvus, bury(lake, stone(uri)), still_ours)


def holding(lake: Lake, marker: bytes = MARKER) -> list[str]:
    """Return the files in which the marker stands, in their bytes or, of Parquet, in what they unpack to."""
    root = lake.root / lake.collection
    found = []
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        data = path.read_bytes()
        if path.suffix == ".parquet" and "milvus.db" not in path.parts:
            data += str(pq.read_table(path).to_pylist()).encode() + str(pq.read_metadata(path).metadata).encode()
            # The dictionary of a column may hold words that no row does.
            data += b"".join(
                chunk.values.dictionary.to_string().encode()
                for column in pq.read_table(path).columns
                for chunk in column.chunks
                if hasattr(getattr(chunk, "values", None), "dictionary")
            )
        if marker in data:
            found.append(path.relative_to(root).as_posix())
    return found
