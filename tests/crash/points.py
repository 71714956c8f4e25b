"""Fail-points: the borders at which something can happen to a process, counted and named from outside.

What a killed process leaves is what it changed before: so the points lie between two changes of the disk or of the
vector store, one before each change and one after the last. "After A" and "before B" are the same point where nothing
changes between A and B. A write to a temporary file is a change of its own, and has a second point half-way.

The product has no hook for this: the changes are caught where they leave Python, in ``os`` and in Milvus's client. So
those of Milvus Lite, which runs in the same process unless it is shared, are points too. ``reads.py`` and ``calls.py``
have borders of other kinds.
"""

from __future__ import annotations

import builtins
import io
import os
import re
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tasks.lake.storage import TEMPORARY, LocalStorage

KINDS = {
    "flips": "flip",
    "snapshots": "snapshot",
    "withdrawn": "withdrawal",
    "parts": "part",
    "passages": "passages",
    "catalog": "catalog",
    "bm25": "bm25",
    "access": "access",
    "sources": "source",
    "pins": "pin",
    "lease.json": "lease",
    "identity": "identity",
    "milvus.db": "milvus files",
    "state/newest": "hint of a part",
    "state/hints": "version hints",
    "state/vectors": "receipt",
    "state/plans": "plan",
}
"""Folder of the lake -> what people call what lies there."""

MILVUS_CALLS = ("create_collection", "drop_collection", "upsert", "delete", "flush")


def kind_of(path: str) -> str:
    """Return what a path below the lake of a collection is."""
    for prefix, kind in KINDS.items():
        if path == prefix or path.startswith(f"{prefix}/"):
            return kind
    if path.startswith("milvus."):
        return "milvus server"
    if path.startswith(TEMPORARY):  # In the lake's own folder; the identity is written but once.
        return "lease"
    return path.split("/")[1] if path.startswith("state/") else path.split("/")[0]


def short(path: str) -> str:
    """Return a path as people can read it: keys of 32 digits are cut, random names are left out."""
    path = re.sub(rf"{re.escape(TEMPORARY)}[0-9a-f]+", "(temporary)", path)
    return re.sub(r"\b([0-9a-f]{8})[0-9a-f]{8,}", r"\1", path)


Strike = Callable[[str], None]
"""What happens at a point, which is given by its name: the process dies, or an error is raised, or..."""


def die(name: str) -> None:
    """End this process as a power cut would."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("a killed process goes on")


def nothing(name: str) -> None:
    """Let a point be passed."""


class Points:
    """Counts the points of this process, and has something happen at one of them.

    Args:
        root: the lake of a collection; changes outside are no points.
        at: number of the point from 1, or the words with which its name begins; None counts only.
        occurrence: with words, which of the points that begin so.
        log: is told the number and the name of the point, and the name of the one before.
        strike: what happens there. An error that it raises is raised by the change.
        later: what happens at each point after it.

    Attributes:
        names: of the points so far, from the first.
    """

    def __init__(
        self,
        root: Path,
        at: int | str | None = None,
        occurrence: int = 1,
        log: Path | None = None,
        strike: Strike = die,
        later: Strike = nothing,
    ) -> None:
        self.root = str(root)
        self.at = at
        self.left = occurrence
        self.names: list[str] = []
        self._lock = threading.RLock()
        self._log = log
        self._strike = strike
        self._later = later
        self._struck = False
        self._here = threading.local()

    def cross(self, name: str) -> None:
        """Pass a point, or be struck there."""
        with self._lock:
            self.names.append(name)
            if self._struck:
                self._later(name)
                return
            if isinstance(self.at, str) and name.startswith(self.at):
                self.left -= 1
            if self.at == len(self.names) or (isinstance(self.at, str) and self.left == 0):
                self._struck = True
                self._tell()
                self._strike(name)

    def _is_next(self, name: str) -> bool:
        """Tell whether the next point is the one."""
        named = isinstance(self.at, str) and name.startswith(self.at) and self.left == 1
        return named or self.at == len(self.names) + 1

    def end(self) -> None:
        """Pass the last point: everything is done, and nobody was told."""
        self.cross("end: after the last change")

    def _tell(self) -> None:
        if self._log is not None:
            before = self.names[-2] if len(self.names) > 1 else "start"
            self._log.write_text(f"{len(self.names)}\n{self.names[-1]}\n{before}")

    def where(self, path: object, dir_fd: int | None = None) -> str | None:
        """Return a path relative to the lake, None outside of it."""
        if isinstance(path, int):
            full = _of_descriptor(path)
        else:
            full = os.fsdecode(os.fspath(path))  # type: ignore[call-overload]
            if dir_fd is not None:
                full = os.path.join(_of_descriptor(dir_fd), full)
        full = os.path.abspath(full)
        return full[len(self.root) + 1 :] if full.startswith(self.root + os.sep) else None

    # --- where changes leave Python --------------------------------------------------------------------------------

    def install(self) -> None:
        """Catch all changes of this process from now on; there is no way back."""
        for verb, name in (("rename", "replace"), ("rename", "rename"), ("link", "link")):
            setattr(os, name, self._moving(verb, getattr(os, name)))
        for verb, name in (("unlink", "unlink"), ("unlink", "remove"), ("rmdir", "rmdir"), ("touch", "utime")):
            setattr(os, name, self._taking(verb, getattr(os, name)))
        LocalStorage._temporary = self._writing(LocalStorage._temporary)  # type: ignore[method-assign]
        opens = self._opening(io.open)
        io.open = builtins.open = opens  # type: ignore[assignment]
        import faiss
        from pymilvus import MilvusClient

        faiss.write_index = self._indexing(faiss.write_index)
        for name in MILVUS_CALLS:
            setattr(MilvusClient, name, self._asking(name, getattr(MilvusClient, name)))

    def _moving(self, verb: str, change: Callable[..., Any]) -> Callable[..., Any]:
        def call(source: Any, target: Any, **keywords: Any) -> Any:
            path = self.where(target, keywords.get("dst_dir_fd"))
            if path is not None:
                self.cross(f"{kind_of(path)}: before {verb} {short(path)}")
            return change(source, target, **keywords)

        return call

    def _taking(self, verb: str, change: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *arguments: Any, dir_fd: int | None = None, **keywords: Any) -> Any:
            place = self.where(path, dir_fd)
            # Taking away what is not there changes nothing.
            if place is not None and os.path.lexists(os.path.join(self.root, place)):
                self.cross(f"{kind_of(place)}: before {verb} {short(place)}")
            if dir_fd is not None:
                keywords["dir_fd"] = dir_fd
            return change(path, *arguments, **keywords)

        return call

    def _writing(self, change: Callable[..., Path]) -> Callable[..., Path]:
        """What LocalStorage writes; an error comes where the file would give it, in ``_opening``."""

        def call(storage: LocalStorage, path: Path, data: bytes) -> Path:
            key = self.where(path)
            if key is None:
                return change(storage, path, data)
            self._here.refusal = None
            self._here.half = f"{kind_of(key)}: half-way through write {short(key)}"
            try:
                try:
                    self.cross(f"{kind_of(key)}: before write {short(key)}")
                except OSError as error:
                    self._here.refusal = error
                return change(storage, path, data)
            finally:
                self._here.half = None

        return call

    def _opening(self, opens: Callable[..., Any]) -> Callable[..., Any]:
        """Milvus Lite and the server's files are written without LocalStorage."""

        def call(file: Any, mode: str = "r", *arguments: Any, **keywords: Any) -> Any:
            half = getattr(self._here, "half", None)
            if mode == "xb" and half is not None:
                if self._here.refusal is not None:
                    raise self._here.refusal
                return _Halved(opens(file, mode, *arguments, **keywords), lambda: self.cross(half))
            if set(mode) & set("wxa"):
                place = None
                with suppress(TypeError, OSError):
                    place = self.where(file)
                if place is not None and place.startswith("milvus"):
                    self.cross(f"{kind_of(place)}: before open {short(place)}")
            return opens(file, mode, *arguments, **keywords)

        return call

    def _indexing(self, change: Callable[[Any, str], None]) -> Callable[[Any, str], None]:
        """Milvus Lite has its index files written by a library in C++."""

        def call(index: Any, file: str) -> None:
            place = self.where(file)
            if place is not None:
                name = f"milvus files: half-way through write {short(place)}"
                try:
                    self.cross(f"milvus files: before write {short(place)}")
                    if self._is_next(name):
                        change(index, file)
                        os.truncate(file, os.path.getsize(file) // 2)
                    self.cross(name)
                except OSError as error:  # As that library puts it.
                    raise RuntimeError(f"Error: 'ret == (nitems)' failed: write error in {file}: {error}") from error
            change(index, file)

        return call

    def _asking(self, name: str, change: Callable[..., Any]) -> Callable[..., Any]:
        def call(client: Any, *arguments: Any, **keywords: Any) -> Any:
            self.cross(f"milvus: before {name}")
            return change(client, *arguments, **keywords)

        return call


class _Halved:
    """A file that is written in two halves."""

    def __init__(self, file: Any, between: Callable[[], None]) -> None:
        self._file = file
        self._between = between

    def __enter__(self) -> _Halved:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, data: bytes) -> int:
        middle = len(data) // 2
        self._file.write(data[:middle])
        self._file.flush()
        self._between()
        return middle + int(self._file.write(data[middle:]))


def _of_descriptor(descriptor: int) -> str:
    return os.readlink(f"/proc/self/fd/{descriptor}")
