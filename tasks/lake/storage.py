"""Storage: named blobs with atomic writes and exclusive creation.

Four verbs carry every promise of the lake: ``write`` (whole or not at all), ``create`` (whole, and only if nobody
else did), ``read`` and ``delete``. A local folder does it by temporary names, ``rename`` and ``link``; an object
store by PUT and ``PUT If-None-Match: *``. Keys are relative POSIX paths.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import mmap
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

from schemas.errors import GlossatorError, TransientError

TEMPORARY = ".tmp-"
Blob = bytes | mmap.mmap
_NOT_DAMAGED = {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
_NOT_DAMAGED |= {errno.EACCES, errno.EPERM}


class AlreadyExists(GlossatorError):
    """``create`` found the key taken."""


class NotFound(GlossatorError):
    """``read`` found nothing under the key."""


@dataclass(frozen=True, slots=True)
class Stat:
    """Size of a blob, and when it was last written or touched."""

    bytes: int
    modified: dt.datetime


class Storage(Protocol):
    """Named blobs. Raises NotFound, AlreadyExists, and TransientError for a full or unreachable store."""

    def read(self, key: str) -> bytes: ...

    def write(self, key: str, data: Blob) -> None: ...

    def create(self, key: str, data: bytes) -> None: ...

    def exists(self, key: str) -> bool: ...

    def delete(self, key: str) -> None: ...

    def keys(self, prefix: str) -> Iterator[str]:
        """Yield the keys directly below the folder ``prefix``, sorted, temporary ones left out."""
        ...

    def local(self, key: str) -> Path:
        """Return a local file or folder that holds the blob(s), for memory maps."""
        ...

    def stat(self, key: str) -> Stat | None:
        """Return size and time of a blob, None where there is none."""
        ...

    def touch(self, key: str) -> None:
        """Set the time of a blob to now; nothing happens where there is none."""
        ...

    def delete_folder(self, key: str, first: str) -> None:
        """Delete a folder: the blob ``first`` in it durably, then all others."""
        ...

    def temporaries(self, prefix: str) -> Iterator[str]:
        """Yield the keys of what interrupted writes left anywhere below the folder ``prefix``; "" is all there is."""
        ...


class LocalStorage:
    """A folder. Safe against concurrent processes and ``kill -9`` on one machine; durable after a power cut."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def _path(self, key: str) -> Path:
        parts = PurePosixPath(key).parts
        if not parts or key.startswith("/") or ".." in parts:
            raise ValueError(f"not a key: {key!r}")
        return self.root.joinpath(*parts)

    def read(self, key: str) -> bytes:
        try:
            return self._path(key).read_bytes()
        except FileNotFoundError as error:
            raise NotFound(f"{self.root / key} does not exist", hint="run `glossator doctor --repair`") from error
        except OSError as error:
            raise explained(error, self._path(key)) from error

    def write(self, key: str, data: Blob) -> None:
        path = self._path(key)
        temporary = self._temporary(path, data)
        try:
            temporary.replace(path)
            _sync_folder(path.parent)
        except OSError as error:
            raise explained(error, path) from error
        finally:
            _discard(temporary)

    def create(self, key: str, data: bytes) -> None:
        path = self._path(key)
        temporary = self._temporary(path, data)
        try:
            os.link(temporary, path)
            _sync_folder(path.parent)
        except FileExistsError as error:
            raise AlreadyExists(f"{path} exists already") from error
        except OSError as error:
            raise explained(error, path) from error
        finally:
            _discard(temporary)

    def exists(self, key: str) -> bool:
        try:
            self._path(key).stat()  # Path.exists takes a refusal for "no" in some versions of Python.
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise explained(error, self._path(key)) from error
        return True

    def delete(self, key: str) -> None:
        try:
            self._path(key).unlink(missing_ok=True)
        except OSError as error:
            raise explained(error, self._path(key)) from error

    def keys(self, prefix: str) -> Iterator[str]:
        folder = self._path(prefix)
        try:
            names = sorted(entry.name for entry in os.scandir(folder))
        except FileNotFoundError:
            return
        except OSError as error:
            raise explained(error, folder) from error
        for name in names:
            if not name.startswith(TEMPORARY):
                yield f"{prefix}/{name}"

    def local(self, key: str) -> Path:
        return self._path(key)

    def stat(self, key: str) -> Stat | None:
        try:
            found = self._path(key).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise explained(error, self._path(key)) from error
        if not stat.S_ISREG(found.st_mode):
            return None
        return Stat(found.st_size, dt.datetime.fromtimestamp(found.st_mtime, dt.UTC))

    def touch(self, key: str) -> None:
        try:
            os.utime(self._path(key))
        except FileNotFoundError:
            return
        except OSError as error:
            raise explained(error, self._path(key)) from error

    def delete_folder(self, key: str, first: str) -> None:
        folder = self._path(key)
        try:
            if (folder / first).exists():
                (folder / first).unlink(missing_ok=True)
                _sync_folder(folder)
            shutil.rmtree(folder)
        except FileNotFoundError:
            return
        except OSError as error:
            raise explained(error, folder) from error

    def temporaries(self, prefix: str) -> Iterator[str]:
        for folder, _, names in os.walk(self._path(prefix) if prefix else self.root):
            for name in sorted(names):
                if name.startswith(TEMPORARY):
                    yield (Path(folder) / name).relative_to(self.root).as_posix()

    def _temporary(self, path: Path, data: Blob) -> Path:
        temporary = path.with_name(f"{TEMPORARY}{secrets.token_hex(6)}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except BaseException as error:
            _discard(temporary)
            if isinstance(error, OSError):
                raise explained(error, path) from error
            raise
        return temporary


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Tell a file that cannot be read at this moment from one that is damaged, around what reads it in its own way.

    Raises:
        TransientError: the disk or the system failed. GlossatorError: we have no permission. What is missing or damaged
            is raised as it was.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _NOT_DAMAGED:
            raise
        raise explained(error, path) from error


def _discard(temporary: Path) -> None:
    # A failure to tidy up must not hide what went wrong before; leftovers are never listed.
    with contextlib.suppress(OSError):
        temporary.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def explained(error: OSError, path: Path) -> GlossatorError:
    """Return what the system's refusal to read or write a path means, and what to do."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return TransientError(
            f"the disk is full: cannot write {path}",
            hint="free space and run the same command again; what is done so far is kept",
        )
    if error.errno == errno.EFBIG:
        return TransientError(
            f"{path} would be larger than this process may write",
            hint="raise the limit (`ulimit -f`) and run the same command again; what is done so far is kept",
        )
    if error.errno in {errno.EMFILE, errno.ENFILE}:
        whose = "this process" if error.errno == errno.EMFILE else "the system"
        return TransientError(
            f"{whose} has too many open files: cannot open {path}",
            hint="raise the limit (`ulimit -n 4096`) and run the same command again; what is done so far is kept",
        )
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return GlossatorError(f"no permission for {path}", hint="check the owner of the lake folder")
    return TransientError(
        f"{path}: {error.strerror or error}", hint="run the same command again; if it fails again, check the disk"
    )
