"""Sources: where documents come from. Two verbs: list, and read one."""

from __future__ import annotations

import errno
import fnmatch
import os
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from schemas.config import LoadConfig
from schemas.errors import PermanentError, PlanRefused, TransientError, UsageError
from schemas.work import SourceSpec

SIDECAR = ".groups"
"""Ending of the file beside a document that names its access groups (grants.py)."""

NOT_UTF8 = "the file name is not valid UTF-8"

_READS = 3
"""How often a file that changes while it is read is read, before it is left for a later run."""
_LONGEST_PATH = 4096
"""Bytes, with the zero at its end: PATH_MAX of Linux. Folders can be nested deeper."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One listed object and its version hint: equal hints stand for equal bytes (see listing.py)."""

    uri: str
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    etag: str = ""


@dataclass(frozen=True, slots=True)
class Listing:
    """What a source holds.

    Attributes:
        entries: sorted by uri.
        unusable: (name, reason) of files that cannot become documents, whatever their bytes.
        seen_ns: clock before the listing began.
    """

    entries: tuple[Entry, ...]
    unusable: tuple[tuple[str, str], ...]
    seen_ns: int

    @property
    def unusable_uris(self) -> tuple[tuple[str, str], ...]:
        """Those of ``unusable`` that have a URI. A name that is not UTF-8 has none: as it is shown, it may look like
        the URI of another file, one with backslashes in its name."""
        return tuple((name, reason) for name, reason in self.unusable if reason != NOT_UTF8)


class SourceGone(TransientError):
    """The whole source cannot be read now: nothing may be concluded of its documents, one by one."""


class Source(Protocol):
    """A place with documents; URIs are relative to its root."""

    spec: SourceSpec

    def listing(self) -> Listing:
        """List everything.

        Raises:
            PlanRefused: the root is gone, or the listing failed half way: nothing may be concluded from it.
        """
        ...

    def read(self, uri: str) -> bytes:
        """Return the bytes of one document.

        Raises:
            PermanentError: it is there and cannot be read, it vanished, or it changes all the time. TransientError: it
                may be readable later. SourceGone: so may all others.
        """
        ...


class FolderSource:
    """A folder on this machine. Links to folders are not followed; links to files are, inside the root only."""

    def __init__(self, spec: SourceSpec, config: LoadConfig) -> None:
        self.spec = spec
        self._root = Path(spec.root)
        self._ignored = re.compile("|".join(fnmatch.translate(pattern) for pattern in config.ignore) or r"(?!)")
        self._max_bytes = config.max_bytes

    def listing(self) -> Listing:
        seen_ns = time.time_ns()
        unusable: list[tuple[str, str]] = []
        try:
            entries = sorted(self._walk(unusable), key=lambda entry: entry.uri)
        except OSError as error:
            raise PlanRefused(
                f"cannot list source {self.spec.name!r}: {error.strerror or error}: {error.filename or self._root}",
                hint="nothing was changed; make the folder readable and run the same command again",
            ) from error
        return Listing(tuple(entries), tuple(sorted(unusable)), seen_ns)

    def _walk(self, unusable: list[tuple[str, str]]) -> Iterator[Entry]:
        root = _identity(self._root)
        folders = [(self._root, "")]
        while folders:
            folder, prefix = folders.pop()
            same = _identity(folder)
            with os.scandir(folder) as found:
                items = list(found)
            for item in items:
                # Names are bytes, and UTF-8 whatever the locale: a document is the same for every user and timer.
                name = _shown(os.fsencode(item.name))
                # A sidecar is ignored with its document, never alone: that would open the document to everybody.
                if self._ignored.match(name.removesuffix(SIDECAR)):
                    continue
                uri = f"{prefix}{name}"
                is_folder = item.is_dir(follow_symlinks=False)
                reason = self._unusable(item, is_folder)
                if reason is not None:
                    unusable.append((uri, reason))
                    continue
                if is_folder:
                    if name.endswith(SIDECAR):
                        unusable.append((uri, "a folder by the name of a sidecar"))
                    folders.append((Path(item.path), f"{uri}/"))
                    continue
                try:
                    hint = item.stat()
                except FileNotFoundError:  # It vanished since the folder was read, or the folder did.
                    if _identity(folder) != same:
                        raise
                    continue
                yield Entry(uri, hint.st_size, _clock(hint.st_mtime_ns), _clock(hint.st_ctime_ns), hint.st_ino)
        if _identity(self._root) != root:  # A part of what was listed belongs to another folder.
            raise OSError(errno.ESTALE, "another folder took its place meanwhile", str(self._root))

    def _unusable(self, item: os.DirEntry[str], is_folder: bool) -> str | None:
        try:
            os.fsencode(item.name).decode("utf-8")
        except UnicodeDecodeError:
            return NOT_UTF8
        if len(os.fsencode(item.path)) >= _LONGEST_PATH:
            return "its path is longer than a system call takes"
        if is_folder:
            return None
        if item.is_symlink():
            try:
                target = Path(item.path).resolve(strict=True)
            except FileNotFoundError:
                return "a link to nothing"
            except (OSError, RuntimeError):  # pathlib raises RuntimeError for a loop before Python 3.13
                return "a link that leads in a circle or cannot be followed"
            if not target.is_relative_to(self._root.resolve()):
                return "a link that leaves the source"
            if target.is_dir():
                return "a link to a folder"
        return None if item.is_file() else "not a regular file"

    def read(self, uri: str) -> bytes:
        path = self._root / os.fsdecode(uri.encode("utf-8"))
        try:
            for _ in range(_READS):
                data = self._read_once(path, uri)
                if data is not None:
                    return data
        except FileNotFoundError as error:
            if not self._has_something():
                raise SourceGone(
                    f"source {self.spec.name!r} vanished while it was read: nothing is left in {self._root}",
                    hint="nothing was changed; bring it back (is it mounted?) and run the same command again",
                ) from error
            raise PermanentError("it vanished after it was listed", document=uri, hint="index again") from error
        except PermissionError as error:
            raise PermanentError("no permission to read it", document=uri, hint=f"chmod u+r {path}") from error
        except OSError as error:
            if error.errno in {errno.EISDIR, errno.ENAMETOOLONG, errno.ENXIO, errno.ELOOP, errno.ENOTDIR}:
                raise PermanentError(f"cannot be read: {error.strerror}", document=uri, hint="index again") from error
            raise TransientError(f"cannot be read now: {error.strerror or error}", document=uri) from error
        raise PermanentError("it changes while it is read", document=uri, hint="index again when it is written")

    def _read_once(self, path: Path, uri: str) -> bytes | None:
        """Return the bytes of a file; None when it was changed meanwhile, so that they may be of two versions."""
        if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(self._root)):
            raise PermanentError("it has become a link that leaves the source", document=uri, hint="index again")
        # Whatever took the place of a file since it was listed: opening a pipe would wait for its writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            before = os.fstat(descriptor)
            if stat.S_ISDIR(before.st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
            if not stat.S_ISREG(before.st_mode):
                raise PermanentError("it is no regular file any more", document=uri, hint="index again")
            if before.st_size > self._max_bytes:
                raise PermanentError(
                    f"larger than {self._max_bytes} bytes", document=uri, hint="raise load.max_bytes to index it"
                )
            data = file.read(before.st_size + 1)
            after = os.fstat(descriptor)
        unchanged = (before.st_size, before.st_mtime_ns, before.st_ctime_ns) == (
            after.st_size,
            after.st_mtime_ns,
            after.st_ctime_ns,
        )
        return data if unchanged and len(data) == after.st_size else None

    def _has_something(self) -> bool:
        """Tell whether the root is there with anything in it; a mount that went leaves an empty folder, or none."""
        try:
            with os.scandir(self._root) as found:
                return next(found, None) is not None
        except OSError:
            return False


def _shown(name: bytes) -> str:
    """Return a file name; one that is not UTF-8 is escaped, so that no two of these look alike."""
    try:
        return name.decode("utf-8")
    except UnicodeDecodeError:
        return name.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")


def _identity(folder: Path) -> tuple[int, int]:
    found = folder.stat()
    return found.st_dev, found.st_ino


def _clock(nanoseconds: int) -> int:
    # File systems know years beyond 2262, where 63 bits of nanoseconds end; such a hint is never trusted anyway.
    return max(-(2**63), min(nanoseconds, 2**63 - 1))


def open_source(spec: SourceSpec, config: LoadConfig) -> Source:
    """Return the source for a recorded root."""
    if "://" in spec.root:
        raise UsageError(f"source {spec.name!r}: {spec.root} is not a folder", hint="only folders are supported so far")
    return FolderSource(spec, config)
