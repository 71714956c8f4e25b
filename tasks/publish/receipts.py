"""Receipts: which catalogs have all of their rows in which Milvus collection, so that nobody looks again.

Disposable: without one the rows are counted, and written again where they are not there.
"""

from __future__ import annotations

from collections.abc import Iterator

from schemas.snapshot import Record
from tasks.lake.lake import Lake
from tasks.lake.storage import NotFound

_FOLDER = "state/vectors"


class Receipt(Record):
    """The rows of a catalog are in a collection."""

    collection: str
    catalog: str


def write_receipt(lake: Lake, key: str, receipt: Receipt) -> None:
    """Record that an insert was finished."""
    lake.storage.write(_path(key), receipt.model_dump_json().encode())


def read_receipt(lake: Lake, key: str) -> Receipt | None:
    """Return a receipt; None for one that is missing or damaged."""
    return _read(lake, _path(key))


def list_receipts(lake: Lake) -> Iterator[tuple[str, Receipt | None]]:
    """Yield (storage key, receipt), None for a damaged one."""
    for key in list(lake.storage.keys(_FOLDER)):
        yield key, _read(lake, key)


def _read(lake: Lake, key: str) -> Receipt | None:
    try:
        return Receipt.model_validate_json(lake.storage.read(key))
    except (NotFound, ValueError):
        return None


def _path(key: str) -> str:
    return f"{_FOLDER}/{key}.json"
