"""A lock around small files of the lake that several processes read, change and replace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from schemas.errors import TransientError
from tasks.lake.storage import explained

if TYPE_CHECKING:
    from tasks.lake.lake import Lake


@contextmanager
def locked(lake: Lake, key: str, seconds: float) -> Iterator[None]:
    """Hold a lock of the lake.

    Args:
        key: of the lock's file.
        seconds: how long to wait for it.

    Raises:
        TransientError: somebody else held it all the time.
    """
    from filelock import FileLock, Timeout

    path = lake.storage.local(key)
    lock = FileLock(path, timeout=seconds)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout as error:
        raise TransientError(
            f"another process has been writing {path.parent} for {seconds:.0f} s", hint="run the same command again"
        ) from error
    except OSError as error:
        raise explained(error, path.parent) from error
    try:
        yield
    finally:
        lock.release()
