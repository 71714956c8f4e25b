"""Points of another kind: a file of the lake or of the source is about to be opened for reading."""

from __future__ import annotations

import builtins
import errno
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.crash.points import Points, kind_of, short
from tests.crash.room import Room

BORDER = "reads"


def watch_reads(points: Points, room: Room) -> None:
    """Count the files that are opened for reading, those that are mapped included."""
    import polars as pl
    import pyarrow as pa

    def cross(file: object) -> None:
        if isinstance(file, str | os.PathLike):
            path = Path(os.path.abspath(os.fsdecode(file)))
            place = points.where(path)
            if place is not None:
                points.cross(f"{kind_of(place)}: before read {short(place)}")
            elif path.is_relative_to(room.docs):
                points.cross(f"document: before read {path.relative_to(room.docs)}")

    def opening(opens: Callable[..., Any]) -> Callable[..., Any]:
        def call(file: Any, mode: str = "r", *arguments: Any, **keywords: Any) -> Any:
            if not set(mode) & set("wxa") and os.path.exists(file):
                cross(file)
            return opens(file, mode, *arguments, **keywords)

        return call

    def mapping(maps: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *arguments: Any, **keywords: Any) -> Any:
            cross(path)
            return maps(path, *arguments, **keywords)

        return call

    io.open = builtins.open = opening(io.open)  # type: ignore[assignment]
    pa.memory_map = mapping(pa.memory_map)
    pl.read_ipc = mapping(pl.read_ipc)


def cannot_be_read(point: str) -> None:
    """Fail, as a disk with a bad sector does.

    Raises:
        OSError: of input and output.
    """
    raise OSError(errno.EIO, os.strerror(errno.EIO), point.rpartition(" ")[2])
