"""Where trials run: in memory where there is some; what a fault leaves does not depend on the disk."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.crash.matrices import MEMORY


@contextmanager
def in_memory(folder: Path) -> Iterator[Path]:
    """Yield a folder in memory, by the name of a fresh one on the disk, and delete it afterwards."""
    place = MEMORY / f"{folder.parent.parent.name}-{folder.name}-{id(folder)}" if MEMORY.is_dir() else folder
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
