"""Memory that a piece of work has freed goes back to the system.

glibc keeps what is freed for later, in pieces that large arrays of other sizes do not fit into: the model's forward
passes alone would take 100 MB more every thousand texts. A trim takes milliseconds.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache


@lru_cache(maxsize=1)
def _trim() -> Callable[[int], int] | None:
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # Another C library: its allocator has its own ways.
        return None
    return trim


def give_back() -> None:
    """Return freed memory to the system, where the C library can."""
    if trim := _trim():
        trim(0)
