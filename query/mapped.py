"""Memory-mapped files, checked where they are read.

Arrow follows any offset that a damaged file holds, to whatever lies there: each value is validated before it is taken.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tasks.lake.arrays import map_array
from tasks.lake.lake import Corrupt, first_line, rebuild_hint
from tasks.lake.storage import reading


def mapped_table(path: Path, schema: pa.Schema) -> pa.Table:
    """Map an Arrow IPC file.

    Raises:
        Corrupt: it is damaged, or has other columns.
    """
    try:
        with reading(path), pa.memory_map(str(path)) as file:
            table = pa.ipc.open_file(file).read_all()
    except (OSError, pa.ArrowException) as error:
        raise damaged(path, error) from error
    if not table.schema.equals(schema):
        raise Corrupt(f"{path} has other columns than this version reads", hint=rebuild_hint(path.parent))
    return table


def mapped_vectors(path: Path, rows: int) -> npt.NDArray[np.float32]:
    """Map a float32 array of shape (rows, dimension).

    Raises:
        Corrupt: it is damaged, or of another shape or type.
    """
    try:
        vectors = map_array(path)
    except (OSError, ValueError, EOFError) as error:
        raise damaged(path, error) from error
    if vectors.ndim != 2 or len(vectors) != rows or vectors.dtype != np.float32:
        raise Corrupt(
            f"{path} holds {vectors.shape} {vectors.dtype}, not a vector for each of {rows} chunks",
            hint=rebuild_hint(path.parent),
        )
    plain: npt.NDArray[np.float32] = vectors.view(np.ndarray)
    return plain


def value_of(column: pa.ChunkedArray, row: int, path: Path) -> Any:
    """Return one value of a mapped column, checked first: Arrow follows any offset, to whatever lies there."""
    try:
        one = column.slice(row, 1)
        one.validate(full=True)
        return one[0].as_py()
    except (pa.ArrowException, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise damaged(path, error) from error


def row_of(table: pa.Table, row: int, path: Path) -> dict[str, Any]:
    """Return one row of a mapped table, checked first."""
    return {name: value_of(table.column(name), row, path) for name in table.column_names}


def damaged(path: Path, why: object) -> Corrupt:
    """Return the error for a damaged file of a folder that can be built anew."""
    folder = path if path.is_dir() else path.parent
    return Corrupt(f"{path} is damaged ({first_line(why)})", hint=rebuild_hint(folder))
