"""What command-line tests put around a command: another user, and a watch on what is published."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

NOBODY = 65534


@contextmanager
def nothing_changes(home: Any) -> Iterator[None]:
    """Hold the code inside to leave what is published as it is."""
    before = home.published()
    yield
    assert home.published() == before


@contextmanager
def as_nobody(home: Any) -> Iterator[tuple[str, ...]]:
    """Let another user write into the home; yield what starts a command as that user."""
    opened = []
    for folder in home.path.parents:
        if folder.stat().st_mode & 0o005 != 0o005 and str(folder).startswith(str(Path("/tmp"))):
            opened.append((folder, folder.stat().st_mode))
            folder.chmod(folder.stat().st_mode | 0o005)
    for path in [home.path, *home.path.rglob("*")]:
        with suppress(FileNotFoundError):
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    try:
        yield ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    finally:
        for folder, mode in opened:
            folder.chmod(mode)
