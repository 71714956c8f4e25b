"""Memory: what a piece of work has freed goes back to the system, and whether a limit of it has been met.

glibc keeps what is freed for later, in pieces that large arrays of other sizes do not fit into: the model's forward
passes alone would take 100 MB more every thousand texts. A trim takes milliseconds.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

try:
    import resource
except ImportError:  # Windows: nothing is limited there.
    resource = None  # type: ignore[assignment]

ALMOST_ALL = 0.8


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


def is_used_up() -> bool:
    """Tell whether this process has had almost all the memory that its limit allows; False without a limit.

    A ``MemoryError`` need not mean it: Python's parser throws one for nesting too. Nor need it come as one: libraries
    tell of it in words of their own. (``getrusage`` would count the memory of the process which started this one.)
    """
    if resource is None or (limit := resource.getrlimit(resource.RLIMIT_DATA)[0]) == resource.RLIM_INFINITY:
        return False
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 > ALMOST_ALL * limit
    return False
