"""The second copy of the newest flip: nothing else tells that a later flip was lost, and which.

It is written right after its flip. A flip that was not copied (its publisher was killed in between) is as good as any.
A damaged or lost copy keeps nobody from reading; the doctor tells it, the repair or the next publish writes it again.
"""

from __future__ import annotations

import contextlib

from schemas.snapshot import Flip
from tasks.lake.seal import open_record
from tasks.lake.storage import AlreadyExists, NotFound, Storage

KEY = "copies/flip.json"
PUT_BACK = "run `glossator doctor --repair`: it is put back from its copy"


def read_copy(storage: Storage) -> Flip | None:
    """Return the newest flip that was copied; None where there is none, or no whole one."""
    try:
        return Flip.model_validate_json(open_record(storage.read(KEY)))
    except (NotFound, ValueError):
        return None


def is_damaged(storage: Storage, newest: int) -> bool:
    """Tell whether the copy says nothing, or is gone. A first flip may have none: its publisher was killed."""
    return read_copy(storage) is None and (newest > 1 or storage.exists(KEY))


def put_back(storage: Storage, newest: int) -> list[str]:
    """Put a flip back from its copy where it is lost or damaged, or such a copy from the newest flip.

    To be called under the lease.

    Args:
        newest: number of the newest flip that is there, damaged or not; 0 for none.

    Returns:
        The storage key of what was written, if anything.
    """
    copy = read_copy(storage)
    if copy is None:
        key = f"flips/{newest}.json"
        if not is_damaged(storage, newest) or not _is_whole(storage, key):
            return []
        storage.write(KEY, storage.read(key))
        return [KEY]
    key = f"flips/{copy.number}.json"
    if copy.number < newest or _is_whole(storage, key):
        return []
    data = storage.read(KEY)
    if storage.exists(key):
        storage.write(key, data)
        return [key]
    with contextlib.suppress(AlreadyExists):  # Somebody has published under its number: theirs stands.
        storage.create(key, data)
        return [key]
    return []


def _is_whole(storage: Storage, key: str) -> bool:
    try:
        Flip.model_validate_json(open_record(storage.read(key)))
    except (NotFound, ValueError):
        return False
    return True
