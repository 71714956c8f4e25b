"""The folder of Milvus Lite: what a process that was killed leaves in it, and Milvus Lite cannot cope with by itself.

It makes a collection's folder before the schema, and deletes them in any order: a folder without a schema is no
collection, and keeps one of that name from ever being made. And it writes its index files in place: one that was cut
off keeps a collection from being loaded. Both can go, since rows are in neither.
"""

from __future__ import annotations

import shutil
from pathlib import Path

_SCHEMA = "schema.json"
_INDEX = ".idx"


def has_collection(folder: Path, name: str) -> bool:
    """Tell whether a collection is there, without opening Milvus Lite."""
    return (_place(folder, name) / _SCHEMA).is_file()


def remains(folder: Path) -> list[str]:
    """Return the names of collections of which no more than a folder is left."""
    return sorted(path.name for path in _place(folder).glob("*") if path.is_dir() and not (path / _SCHEMA).exists())


def clear_remains(folder: Path, name: str) -> None:
    """Delete the folder of a collection that is none."""
    if name in remains(folder):
        shutil.rmtree(_place(folder, name), ignore_errors=True)  # Where it cannot, Milvus Lite says what is in its way.


def names_index(error: str) -> bool:
    """Tell whether an error of Milvus Lite is of an index file that cannot be read."""
    return "faiss" in error and _INDEX in error


def forget_indexes(folder: Path, name: str) -> None:
    """Delete the index files of a collection: Milvus Lite builds them of its rows when it loads it the next time."""
    for file in sorted(_place(folder, name).glob("partitions/*/indexes/*")):
        file.unlink(missing_ok=True)


def _place(folder: Path, *name: str) -> Path:
    return folder.joinpath("collections", *name)
