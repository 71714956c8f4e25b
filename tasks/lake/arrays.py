"""Arrays of ``.npy`` files, memory-mapped."""

from __future__ import annotations

from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

_one_header = Lock()


def map_array(path: Path) -> npt.NDArray[Any]:
    """Map an array. Safe for several threads.

    NumPy parses the file's header by ``ast.literal_eval``, and CPython 3.11 counts the depth of that for all threads
    together: two at once may end in ``SystemError: AST constructor recursion depth mismatch`` (cpython#106905).

    Raises:
        OSError, ValueError, EOFError: it is missing or damaged.
    """
    with _one_header:
        array: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return array
