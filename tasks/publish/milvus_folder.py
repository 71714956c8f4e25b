"""The folder of Milvus Lite: what a process that was killed leaves in it, and Milvus Lite cannot cope with by itself.

It makes a collection's folder before the schema, and deletes them in any order: a folder without a schema is no
collection, and keeps one of that name from ever being made. And it writes its index files in place: one that was cut
off keeps a collection from being loaded. Both can go, since rows are in neither. What damage does to rows or schema it
cannot cope with either: such a collection can only be written anew.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from schemas.errors import TransientError
from tasks.lake.storage import explained

_SCHEMA = "schema.json"
_INDEX_ERRORS = ("faiss/impl/index_read.cpp", "faiss/impl/io.cpp", "loaded HNSW index dim")
"""What Milvus Lite says of an index file that is there and none. A full disk, a deadline: nothing of this."""


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


def forget_indexes(folder: Path, name: str) -> None:
    """Delete the index files of a collection: Milvus Lite builds them of its rows when it loads it the next time."""
    for file in sorted(_place(folder, name).glob("partitions/*/indexes/*")):
        file.unlink(missing_ok=True)


def blames_index(error: TransientError) -> bool:
    """Tell whether Milvus Lite could not load a collection because of an index file."""
    return any(words in error.what for words in _INDEX_ERRORS)


def is_ruined(folder: Path, name: str) -> bool:
    """Tell whether Milvus Lite cannot open or load a collection because its files are damaged.

    To be called while nobody else has the folder open.

    Raises:
        TransientError: somebody has, or the disk or the memory failed. GlossatorError: no permission.
    """
    import pyarrow as pa
    from milvus_lite.db import MilvusLite
    from milvus_lite.exceptions import DataDirLockedError, MilvusLiteError

    try:
        with MilvusLite(str(folder)) as database:
            if database.has_collection(name):
                database.get_collection(name).load()
        return False
    except DataDirLockedError as error:
        raise _held(folder) from error
    except MemoryError as error:
        raise TransientError(f"too little memory to open {folder}", hint="run the same command again") from error
    except OSError as error:
        if error.errno is None or isinstance(error, FileNotFoundError):  # Of Arrow, of contents; a file is lost.
            return True
        raise explained(error, folder) from error
    except (MilvusLiteError, pa.ArrowException, ValueError, LookupError, TypeError, AttributeError):
        return True
    except RuntimeError:  # Of an index, which holds no rows.
        return False


def clear(folder: Path, name: str) -> None:
    """Delete the folder of a collection while nobody else has Milvus Lite open.

    Raises:
        TransientError: somebody has, or it cannot be deleted. GlossatorError: no permission.
    """
    from milvus_lite.db import MilvusLite
    from milvus_lite.exceptions import DataDirLockedError

    try:
        with MilvusLite(str(folder)):
            shutil.rmtree(_place(folder, name))
    except DataDirLockedError as error:
        raise _held(folder) from error
    except OSError as error:
        raise explained(error, _place(folder, name)) from error


def _held(folder: Path) -> TransientError:
    return TransientError(f"another process holds {folder}", hint="end it and run `glossator doctor --repair` again")


def _place(folder: Path, *name: str) -> Path:
    return folder.joinpath("collections", *name)
