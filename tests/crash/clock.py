"""A clock that jumps: what the process reads, and what the files that it writes are dated."""

from __future__ import annotations

import datetime as dt
import importlib
import os
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

READERS = ("tasks.plan.source", "tasks.publish.erase")
"""Modules of the product that ask ``time`` for the date. gRPC's does too, and its core has a clock of its own."""
_REAL = dt.datetime


def jump(days: int, points_root: str) -> Callable[[str], None]:
    """Return what moves the clock of this process."""

    def strike(point: str) -> None:
        shift = dt.timedelta(days=days)
        nanoseconds = days * 86_400 * 10**9
        moved = ModuleType("time")
        moved.__dict__.update(time.__dict__)
        moved.__dict__["time"] = lambda: time.time() + shift.total_seconds()
        moved.__dict__["time_ns"] = lambda: time.time_ns() + nanoseconds

        class Moved(type):
            def __instancecheck__(cls, value: object) -> bool:
                return isinstance(value, _REAL)

        class datetime(_REAL, metaclass=Moved):  # noqa: N801
            @classmethod
            def now(cls, tz: dt.tzinfo | None = None) -> Any:
                return _REAL.now(tz) + shift

        dt.datetime = datetime  # type: ignore[misc]
        for name in READERS:
            importlib.import_module(name).time = moved
        touch = os.utime

        def dated(path: Any, times: Any = None, **keywords: Any) -> None:
            if times is None and "ns" not in keywords:
                times = (moved.time(), moved.time())
            touch(path, times, **keywords)

        def moving(change: Callable[..., Any]) -> Callable[..., Any]:
            def call(source: Any, target: Any, **keywords: Any) -> Any:
                answer = change(source, target, **keywords)
                if not keywords and os.path.isfile(target) and str(target).startswith(points_root):
                    dated(target)
                return answer

            return call

        os.utime = dated
        for name in ("replace", "link"):
            setattr(os, name, moving(getattr(os, name)))

    return strike
