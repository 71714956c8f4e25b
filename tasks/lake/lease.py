"""The lease: who publishes to a collection now.

It saves two publishers from doing the same work at the same time, and a sweep from racing a publish. It is *not* what
makes publishing safe: a process may be paused for an hour and wake up with its lease long gone. What makes it safe is
that a flip is created exclusively, and that rows are written under ids that are versions.

A lease is a small JSON file, created exclusively, renewed by a heartbeat thread, and taken over when it has expired
or its process on this machine is gone.
"""

from __future__ import annotations

import datetime as dt
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil

from schemas.errors import GlossatorError, TransientError
from schemas.snapshot import Record
from tasks.lake.lake import Lake
from tasks.lake.lock import locked
from tasks.lake.storage import AlreadyExists, NotFound

KEY = "lease.json"
LOCK = "lease.lock"
EXPIRY_SECONDS = 60.0
HEARTBEAT_SECONDS = 10.0
POLL_SECONDS = 0.5
LOCK_SECONDS = 30.0


class Lease(Record):
    """Who holds it, since when, and until when unless renewed."""

    token: str
    owner: str
    host: str
    pid: int
    since: dt.datetime
    expires: dt.datetime


def read_lease(lake: Lake) -> Lease | None:
    """Return the lease as it lies there, expired or not."""
    try:
        return Lease.model_validate_json(lake.storage.read(KEY))
    except (NotFound, ValueError):
        return None


class Held:
    """A lease that this process holds."""

    def __init__(self, lake: Lake, lease: Lease) -> None:
        self._lake = lake
        self.lease = lease
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="lease heartbeat", daemon=True)

    def still_ours(self) -> bool:
        """Tell whether the lease is still there, ours and not expired. Reads the file."""
        now = read_lease(self._lake)
        return now is not None and now.token == self.lease.token and now.expires > _now()

    def was_taken(self) -> bool:
        """Tell whether somebody else has, or had, taken the lease since: it was let expire."""
        now = read_lease(self._lake)
        return now is None or now.token != self.lease.token

    def start(self) -> None:
        """Begin to renew it."""
        self._thread.start()

    def release(self) -> None:
        """Stop renewing it and give it back, if it is still ours."""
        self._stop.set()
        self._thread.join()
        if self.still_ours():
            self._lake.storage.delete(KEY)

    def _beat(self) -> None:
        while not self._stop.wait(HEARTBEAT_SECONDS):
            try:
                if not self.still_ours():
                    return  # Somebody took it over while we were paused: never write over theirs.
                renewed = self.lease.model_copy(update={"expires": _expiry()})
                self._lake.storage.write(KEY, renewed.model_dump_json().encode())
            except GlossatorError:
                continue  # The next beat may succeed; if none does, the lease expires, as it should.


@contextmanager
def publishing(
    lake: Lake, owner: str, wait_seconds: float, clock: Callable[[], float] = time.monotonic
) -> Iterator[Held]:
    """Hold the lease of a collection.

    Args:
        owner: who, for the message that others see.
        wait_seconds: how long to wait for somebody else's to end.

    Raises:
        TransientError: somebody else held it all the time.
    """
    deadline = clock() + wait_seconds
    while True:
        held = _take(lake, owner)
        if held is not None:
            break
        if clock() >= deadline:
            raise _taken(lake)
        time.sleep(POLL_SECONDS)
    held.start()
    try:
        yield held
    finally:
        held.release()


def _take(lake: Lake, owner: str) -> Held | None:
    lease = Lease(
        token=secrets.token_hex(8),
        owner=owner,
        host=socket.gethostname(),
        pid=os.getpid(),
        since=_now(),
        expires=_expiry(),
    )
    # Of two who find it over, one would delete the other's. (On another machine they may: who loses a lease finds that
    # out before it flips.)
    with locked(lake, LOCK, LOCK_SECONDS):
        if _has_ended(lake):
            lake.storage.delete(KEY)
        try:
            lake.storage.create(KEY, lease.model_dump_json(indent=1).encode())
        except AlreadyExists:
            return None
    return Held(lake, lease)


def _has_ended(lake: Lake) -> bool:
    found = read_lease(lake)
    return _is_over(found) if found is not None else _is_junk(lake)


def _is_over(lease: Lease) -> bool:
    if lease.expires <= _now():
        return True
    if lease.host != socket.gethostname():
        return False
    return not psutil.pid_exists(lease.pid) or _is_zombie(lease.pid)


def _is_zombie(pid: int) -> bool:
    """Tell whether a process has ended and only waits for its parent to hear of it, which may never listen."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.Error:  # It has gone at this moment, or may not be looked at.
        return False


def _is_junk(lake: Lake) -> bool:
    """Tell whether something lies there that is no lease, and has not changed for as long as a lease lasts."""
    there = lake.storage.stat(KEY)
    return there is not None and _now() - there.modified > dt.timedelta(seconds=EXPIRY_SECONDS)


def _taken(lake: Lake) -> TransientError:
    lease = read_lease(lake)
    if lease is None and lake.storage.exists(KEY):
        path = lake.storage.local(KEY)
        return TransientError(f"{path} is no lease", hint="it counts no more in a minute: run the same command again")
    if lease is None:
        return TransientError("somebody else has just published", hint="run the same command again")
    return TransientError(
        f"{lease.owner} (process {lease.pid} on {lease.host}) has been publishing to {lake.collection!r} since "
        f"{lease.since:%Y-%m-%d %H:%M:%S} UTC",
        hint="wait for it to end and run the same command again; finished parts are reused",
    )


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def _expiry() -> dt.datetime:
    return _now() + dt.timedelta(seconds=EXPIRY_SECONDS)
