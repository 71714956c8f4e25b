"""The second copy of the newest flip: nothing else tells that a later flip was lost, and which.

It is written right after its flip. A flip that was not copied (its publisher was killed in between) is as good as any.
"""

from __future__ import annotations

import contextlib

from schemas.snapshot import Flip
from tasks.lake.seal import open_record
from tasks.lake.storage import NotFound, Storage

KEY = "copies/flip.json"
PUT_BACK = "run `glossator doctor --repair`: it is put back from its copy"


def read_copy(storage: Storage) -> Flip | None:
    """Return the newest flip that was copied; None where there is none, or no whole one."""
    try:
        return Flip.model_validate_json(open_record(storage.read(KEY)))
    except (NotFound, ValueError):
        return None


def put_back(storage: Storage, newest: int) -> list[str]:
    """Put a flip back from its copy where it is lost or damaged; return its storage key.

    Args:
        newest: number of the newest flip that is there, damaged or not; 0 for none.
    """
    copy = read_copy(storage)
    if copy is None or copy.number < newest:
        return []
    key = f"flips/{copy.number}.json"
    with contextlib.suppress(NotFound, ValueError):
        Flip.model_validate_json(open_record(storage.read(key)))
        return []
    storage.write(key, storage.read(KEY))
    return [key]
