"""How a source moves while a run lists or reads it: faults, and the cases made of them."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tasks.plan.source import FolderSource
from tests.crash.operations import paragraph
from tests.crash.room import Room

DOCUMENTS = 14
EDITED, ADDED = "gauge-0.md", "gauge-50.md"
REFUSED, QUARANTINED, FAILED, DONE = 4, 3, 1, 0

Fault = Callable[[Room], Any]


@dataclass(frozen=True)
class Case:
    """A move of the source.

    Attributes:
        fault: a context in which the run goes on.
        settle: makes the source quiet again.
        codes: with which the run may end.
        edits: also all other documents.
    """

    name: str
    title: str
    fault: Fault
    codes: tuple[int, ...]
    settle: Callable[[Room], None]
    everything: bool = False


# --- faults -------------------------------------------------------------------------------------------------------


class _Entry:
    """An entry of a folder that does something when it is looked at."""

    def __init__(self, entry: os.DirEntry[str], look: Callable[[], None]) -> None:
        self._entry, self._look = entry, look
        self.name, self.path = entry.name, entry.path

    def stat(self) -> os.stat_result:
        self._look()
        return self._entry.stat()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._entry, name)


@contextmanager
def _listing(room: Room, at: int, happens: Callable[[], None], *, while_iterated: bool = False) -> Iterator[None]:
    """Do something when the n-th file is looked at, or when the folder's list has come so far."""
    scandir, seen = os.scandir, iter(range(10_000))

    def look() -> None:
        if next(seen) == at:
            happens()

    def watched(folder: Any) -> Any:
        return _watched(folder) if str(folder).startswith(str(room.docs)) else scandir(folder)

    @contextmanager
    def _watched(folder: Any) -> Iterator[Iterable[Any]]:
        with scandir(folder) as found:
            # Sorted: the n-th is always the same.
            yield (_Entry(entry, look) for entry in _through(sorted(found, key=lambda entry: entry.name)))

    def _through(entries: list[os.DirEntry[str]]) -> Iterator[os.DirEntry[str]]:
        for entry in entries:
            if while_iterated:
                look()
            yield entry

    with patch("tasks.plan.source.os.scandir", watched):
        yield


@contextmanager
def _reading(room: Room, happens: Callable[[], None], *, at: int = 0, name: str = "") -> Iterator[None]:
    """Do something before the n-th file is read, or before a file by its name is read for the first time."""
    read, seen, done = FolderSource.read, iter(range(10_000)), []

    def watched(self: FolderSource, uri: str) -> bytes:
        number = next(seen)
        if not done and (uri == name if name else number >= at):
            done.append(uri)
            happens()
        return read(self, uri)

    with patch.object(FolderSource, "read", watched):
        yield


@contextmanager
def _changing(room: Room, happens: Callable[[Path], None], *, once: bool) -> Iterator[None]:
    """Change a file after it was opened and before it is read."""
    path, fstat, calls = room.docs / EDITED, os.fstat, iter(range(10_000))

    def watched(descriptor: int) -> os.stat_result:
        found = fstat(descriptor)
        ours = path.exists() and (found.st_dev, found.st_ino) == (path.stat().st_dev, path.stat().st_ino)
        if ours and (next(calls) == 0 if once else True):
            happens(path)
        return found

    with patch("tasks.plan.source.os.fstat", watched):
        yield


@contextmanager
def _failing(room: Room, code: int, *, everywhere: bool) -> Iterator[None]:
    """Have the opening of files fail."""
    opens = os.open

    def watched(path: Any, *arguments: Any, **others: Any) -> int:
        inside = str(path).startswith(str(room.docs)) and not Path(path).is_dir()
        if inside and (everywhere or Path(path).name == EDITED):
            raise OSError(code, os.strerror(code), str(path))
        return opens(path, *arguments, **others)

    with patch("tasks.plan.source.os.open", watched):
        yield


def _go_away(room: Room, *, leaving: bool = False) -> None:
    room.docs.rename(room.path / "unmounted")
    if leaving:
        room.docs.mkdir()


def _come_back(room: Room) -> None:
    if (room.path / "unmounted").exists():
        shutil.rmtree(room.docs, ignore_errors=True)
        (room.path / "unmounted").rename(room.docs)


def _replace(room: Room, by: Callable[[Path], None]) -> Callable[[], None]:
    def happens() -> None:
        (room.docs / EDITED).unlink()
        by(room.docs / EDITED)

    return happens


def _put_back(room: Room) -> None:
    path = room.docs / EDITED
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
    path.write_text(paragraph(0, 1))


def _raise(code: int) -> None:
    raise OSError(code, os.strerror(code))


def _switch(room: Room) -> None:
    """Put another tree, of half as many documents, in the place of the root."""
    _go_away(room)
    shutil.copytree(room.path / "unmounted", room.docs)
    for number in range(2, DOCUMENTS, 2):
        (room.docs / f"gauge-{number}.md").unlink(missing_ok=True)


def _outside(path: Path) -> None:
    secret = path.parent.parent / "secret.md"
    secret.write_text("# Secret\n\nwords that nobody may read\n")
    path.symlink_to(secret)


def _bad_names(room: Room) -> Any:
    (room.docs / "two\nlines.md").write_text(paragraph(60))
    Path(os.fsdecode(os.fsencode(room.docs) + b"/caf\xe9.md")).write_text("x")
    (room.docs / "loop").symlink_to(room.docs)
    (room.docs / "circle.md").symlink_to("circle.md")
    return _reading(room, lambda: None)


def _quiet(room: Room) -> None:
    pass


def _append(path: Path) -> None:
    with path.open("a") as file:
        file.write("One more line.\n")


def _rewrite(path: Path) -> None:
    path.write_text(paragraph(0, 9))


def _vanishing_at(at: int) -> Fault:
    return lambda room: _listing(room, at, lambda: _go_away(room))


CASES = {
    case.name: case
    for case in (
        *(
            Case(f"listing-{at}", "the root vanishes while it is listed", _vanishing_at(at), (REFUSED,), _come_back)
            for at in (0, 1, 7, 14)
        ),
        Case(
            "unmount-listing",
            "the root is unmounted while it is listed",
            lambda room: _listing(room, 5, lambda: _go_away(room, leaving=True)),
            (REFUSED,),
            _come_back,
        ),
        Case(
            "switch-listing",
            "another folder takes the root's place while it is listed",
            lambda room: _listing(room, 5, lambda: _switch(room)),
            (REFUSED,),
            _come_back,
        ),
        Case(
            "error-listing",
            "the listing ends half-way with an error",
            lambda room: _listing(room, 7, lambda: _raise(errno.EIO), while_iterated=True),
            (REFUSED,),
            _quiet,
        ),
        Case(
            "unmount-plan",
            "the mount goes between listing and reading",
            lambda room: _reading(room, lambda: _go_away(room, leaving=True)),
            (REFUSED,),
            _come_back,
        ),
        Case(
            "gone-plan",
            "the root goes between listing and reading",
            lambda room: _reading(room, lambda: _go_away(room)),
            (REFUSED,),
            _come_back,
        ),
        Case(
            "unmount-load",
            "the mount goes between the plan and the load step",
            lambda room: _reading(room, lambda: _go_away(room, leaving=True), at=DOCUMENTS + 1),
            (FAILED,),
            _come_back,
        ),
        Case(
            "all-unreadable",
            "no file can be read any more (EIO)",
            lambda room: _failing(room, errno.EIO, everywhere=True),
            (REFUSED,),
            _quiet,
            everything=True,
        ),
        Case(
            "one-unreadable",
            "one file cannot be read (EIO)",
            lambda room: _failing(room, errno.EIO, everywhere=False),
            (QUARANTINED,),
            _quiet,
        ),
        Case(
            "no-permission",
            "one file may not be read",
            lambda room: _failing(room, errno.EACCES, everywhere=False),
            (QUARANTINED,),
            _quiet,
        ),
        Case(
            "one-vanishes",
            "one file vanishes between listing and reading",
            lambda room: _reading(room, (room.docs / EDITED).unlink, name=EDITED),
            (QUARANTINED,),
            _quiet,
        ),
        Case(
            "rewritten",
            "a file is written anew while it is read",
            lambda room: _changing(room, _rewrite, once=True),
            (DONE,),
            _quiet,
        ),
        Case(
            "growing",
            "a file grows whenever it is read",
            lambda room: _changing(room, _append, once=False),
            (QUARANTINED,),
            _quiet,
        ),
        *(
            Case(
                name,
                f"a file is replaced by {what}",
                lambda room, by=by: _reading(room, _replace(room, by), name=EDITED),  # type: ignore[misc]
                (QUARANTINED,),
                _put_back,
            )
            for name, what, by in (
                ("folder", "a folder", Path.mkdir),
                ("outside", "a link that leaves the source", _outside),
                ("pipe", "a pipe that nobody writes to", os.mkfifo),
                ("loop", "a link to itself", lambda path: path.symlink_to(path.name)),
            )
        ),
        Case("names", "names with a new line and of no encoding, links in circles", _bad_names, (DONE,), _quiet),
    )
}
