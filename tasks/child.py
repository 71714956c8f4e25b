"""Python processes that we start: where they find our modules, and how they notice that nobody needs them any more."""

from __future__ import annotations

import os
import sys
import time


def python_path() -> str:
    """Return the ``PYTHONPATH`` with which a child finds what this process does."""
    return os.pathsep.join(path for path in sys.path if path)


def await_end_of(parent: int, every: float) -> None:
    """Return when a process is this one's parent no more: it has ended, however that was.

    Args:
        every: seconds between two looks.
    """
    while os.getppid() == parent:
        time.sleep(every)
