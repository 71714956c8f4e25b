"""A full disk: a write, link or rename fails, as the system puts it, and half of a file may be there by then."""

from __future__ import annotations

import errno
import os
import re
from typing import Any

from tests.crash.points import Points, kind_of, short
from tests.crash.room import Room

_GROWS = re.compile(r": (before (write|open|link|rename)|half-way through write) ")
_WRITES = re.compile(r": (before (write|open)|half-way through write) ")


def watch_disk(points: Points, room: Room) -> None:
    """Count the changes, and those files of Milvus Lite that Arrow writes for it."""
    import pyarrow.parquet as pq

    write_table = pq.write_table

    def call(table: Any, where: Any, *arguments: Any, **keywords: Any) -> Any:
        place = points.where(where) if isinstance(where, str | os.PathLike) else None
        if place is not None:
            points.cross(f"{kind_of(place)}: before write {short(place)}")
        return write_table(table, where, *arguments, **keywords)

    pq.write_table = call
    points.install()


def needs_space(point: str) -> bool:
    """Tell whether a change may fail on a full disk: what takes away does not."""
    return _GROWS.search(point) is not None


def is_full(point: str) -> None:
    """Fail, as the change does.

    Raises:
        OSError: there is no space.
    """
    if needs_space(point):  # A thread of Milvus Lite may have passed it before.
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), point.rpartition(" ")[2])


def stays_full(point: str) -> None:
    """Fail each later write.

    Raises:
        OSError: there is no space.
    """
    if _WRITES.search(point):
        is_full(point)
