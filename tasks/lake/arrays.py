"""Arrays that lie on the disk: those of ``.npy`` files, and room for large ones that are being made."""

from __future__ import annotations

import mmap
import tempfile
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from tasks.lake.storage import explained, reading

_one_header = Lock()
_ZEROS = bytes(2**20)


def map_array(path: Path) -> npt.NDArray[Any]:
    """Map an array. Safe for several threads.

    NumPy parses the file's header by ``ast.literal_eval``, and CPython 3.11 counts the depth of that for all threads
    together: two at once may end in ``SystemError: AST constructor recursion depth mismatch`` (cpython#106905).

    Raises:
        OSError, ValueError, EOFError: it is missing or damaged. TransientError: it cannot be read now.
    """
    with _one_header, reading(path):
        array: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return array


def disk_room(size: int, folder: Path | None = None) -> mmap.mmap:
    """Return room for an array that is being made, on the disk: the system can write it out when memory is short.

    The file has no name: whatever ends the process, it is gone.

    Args:
        size: bytes, zeros at first.
        folder: of the file system to use; None for that of temporary files, which may be memory.

    Raises:
        TransientError: the disk is full.
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            # Zeros are written: a file that only has a length would end the process when the disk turns out to be full.
            for _ in range(0, max(size, 1), len(_ZEROS)):
                file.write(_ZEROS)
            file.flush()
            return mmap.mmap(file.fileno(), max(size, 1))
    except OSError as error:
        raise explained(error, folder or Path(tempfile.gettempdir())) from error
