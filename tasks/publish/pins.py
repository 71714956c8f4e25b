"""Pins: snapshots that retention keeps until somebody takes the pin away."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path

from schemas.errors import PublishRefused, UsageError
from schemas.snapshot import SHORT, Record
from tasks.lake.lake import Lake

_PIN = re.compile(r"pins/[0-9a-f]+-[0-9a-f]+\.json")


class Pin(Record):
    """Who wants to keep a snapshot, and why."""

    snapshot: str
    author: str
    reason: str
    created: dt.datetime


def read_pins(lake: Lake) -> dict[str, Pin]:
    """Return the pins by name of their snapshot."""
    keys = [key for key in lake.storage.keys("pins") if _PIN.fullmatch(key)]
    return {Path(key).stem: lake.read_record(Pin, key, "delete it, and pin the snapshot again") for key in keys}


def is_pinned(lake: Lake, name: str) -> bool:
    """Tell whether somebody wants to keep a snapshot."""
    return lake.storage.exists(_key(name))


def create_pin(lake: Lake, name: str, *, author: str, reason: str, now: dt.datetime | None = None) -> Pin:
    """Pin a snapshot; an older pin of it is replaced.

    Raises:
        PublishRefused: the snapshot was dropped: a sweep may be deleting it.
    """
    flip = lake.current_flip()
    if flip is None or not lake.has_snapshot(name) or (flip.retained and name not in flip.retained):
        raise _swept(name)
    pin = Pin(snapshot=name, author=author, reason=reason, created=now or dt.datetime.now(dt.UTC))
    lake.write_record(_key(name), pin)
    # A flip may have dropped it meanwhile: its time of grace has only begun, unless a sweep was told to give none.
    if not lake.has_snapshot(name):
        lake.storage.delete(_key(name))
        raise _swept(name)
    return pin


def remove_pin(lake: Lake, name: str) -> None:
    """Take a pin away; the next publish may drop the snapshot.

    Raises:
        UsageError: it is not pinned.
    """
    if not is_pinned(lake, name):
        raise UsageError(f"snapshot {name[:SHORT]} is not pinned", hint="`glossator snapshots` shows what is")
    lake.storage.delete(_key(name))


def _swept(name: str) -> PublishRefused:
    return PublishRefused(
        f"snapshot {name[:SHORT]} was dropped and will be swept",
        hint="pin one that `glossator snapshots` lists as kept",
    )


def _key(name: str) -> str:
    return f"pins/{name}.json"
