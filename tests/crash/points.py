"""Fail-points: the borders at which a process can die and leave something behind, counted and named from outside.

What a killed process leaves is what it changed before: so the points lie between two changes of the disk or of the
vector store, one before each change and one after the last. "After A" and "before B" are the same point where nothing
changes between A and B. A write to a temporary file is a change of its own, and has a second point half-way.

The product has no hook for this: the changes are caught where they leave Python, in ``os`` and in Milvus's client. So
those of Milvus Lite, which runs in the same process unless it is shared, are points too.
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
from typing import Any, NoReturn

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


class Points:
    """Counts the points of this process, and ends it at one of them.

    Args:
        root: the lake of a collection; changes outside are no points.
        at: number of the point from 1, or the words with which its name begins; None counts only.
        occurrence: with words, which of the points that begin so.

    Attributes:
        names: of the points so far, from the first.
    """

    def __init__(self, root: Path, at: int | str | None = None, occurrence: int = 1, log: Path | None = None) -> None:
        self.root = str(root)
        self.at = at
        self.left = occurrence
        self.names: list[str] = []
        self._lock = threading.RLock()
        self._log = log

    def cross(self, name: str) -> None:
        """Pass a point, or die there."""
        with self._lock:
            self.names.append(name)
            if isinstance(self.at, str) and name.startswith(self.at):
                self.left -= 1
            if self.at == len(self.names) or (isinstance(self.at, str) and self.left == 0):
                self._die()

    def _dies_at(self, name: str) -> bool:
        """Tell whether the next point is the last one."""
        named = isinstance(self.at, str) and name.startswith(self.at) and self.left == 1
        return named or self.at == len(self.names) + 1

    def end(self) -> None:
        """Pass the last point: everything is done, and nobody was told."""
        self.cross("end: after the last change")

    def _die(self) -> NoReturn:
        if self._log is not None:
            before = self.names[-2] if len(self.names) > 1 else "start"
            self._log.write_text(f"{len(self.names)}\n{self.names[-1]}\n{before}")
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("a killed process goes on")

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
        def call(storage: LocalStorage, path: Path, data: bytes) -> Path:
            key = self.where(path)
            if key is not None:
                self.cross(f"{kind_of(key)}: before write {short(key)}")
                self._half(path, data, f"{kind_of(key)}: half-way through write {short(key)}")
            return change(storage, path, data)

        return call

    def _half(self, path: Path, data: bytes, name: str) -> None:
        """Leave half of a temporary file when this is where to die."""
        if self._dies_at(name):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.with_name(f"{TEMPORARY}{'0' * 12}").write_bytes(data[: len(data) // 2])
        self.cross(name)

    def _opening(self, opens: Callable[..., Any]) -> Callable[..., Any]:
        """Milvus Lite and the server's files are written without LocalStorage."""

        def call(file: Any, mode: str = "r", *arguments: Any, **keywords: Any) -> Any:
            if set(mode) & set("wxa"):
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
                self.cross(f"milvus files: before write {short(place)}")
                name = f"milvus files: half-way through write {short(place)}"
                if self._dies_at(name):
                    change(index, file)
                    os.truncate(file, os.path.getsize(file) // 2)
                self.cross(name)
            change(index, file)

        return call

    def _asking(self, name: str, change: Callable[..., Any]) -> Callable[..., Any]:
        def call(client: Any, *arguments: Any, **keywords: Any) -> Any:
            self.cross(f"milvus: before {name}")
            return change(client, *arguments, **keywords)

        return call


def _of_descriptor(descriptor: int) -> str:
    return os.readlink(f"/proc/self/fd/{descriptor}")
