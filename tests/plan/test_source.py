"""Folder sources: what is listed, what is reported instead, and what must not be concluded."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.config import LoadConfig
from schemas.errors import PermanentError, PlanRefused, TransientError, UsageError
from schemas.work import SourceSpec
from tasks.plan.source import FolderSource, Listing, SourceGone, open_source


def source(root: Path, **config: object) -> FolderSource:
    return FolderSource(SourceSpec(name="docs", root=str(root)), LoadConfig.model_validate(config))


def uris(listing: Listing) -> list[str]:
    return [entry.uri for entry in listing.entries]


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    return folder


def test_entries_are_sorted_by_uri_whatever_the_folders(docs: Path) -> None:
    for uri in ("b.md", "a/z.md", "a.md", "a-b.md", "Z.md", "灯/塔.md"):
        (docs / uri).parent.mkdir(exist_ok=True)
        (docs / uri).write_text(uri)
    found = uris(source(docs).listing())
    assert found == sorted(found) == ["Z.md", "a-b.md", "a.md", "a/z.md", "b.md", "灯/塔.md"]


def test_hints_are_those_of_the_file(docs: Path) -> None:
    (docs / "a.md").write_bytes(b"12345")
    (entry,) = source(docs).listing().entries
    stat = (docs / "a.md").stat()
    assert (entry.size, entry.mtime_ns, entry.ctime_ns, entry.inode) == (
        5,
        stat.st_mtime_ns,
        stat.st_ctime_ns,
        stat.st_ino,
    )


def test_ignored_names_are_not_listed_neither_as_file_nor_as_folder(docs: Path) -> None:
    for uri in (".git/config.md", ".hidden.md", "node_modules/a.md", "a/__pycache__/b.md", "x.tmp", "y.md~", "kept.md"):
        (docs / uri).parent.mkdir(parents=True, exist_ok=True)
        (docs / uri).write_text("x")
    listing = source(docs).listing()
    assert uris(listing) == ["kept.md"]
    assert listing.unusable == ()


def test_ignore_patterns_are_a_setting_and_may_be_none(docs: Path) -> None:
    (docs / "draft-1.md").write_text("x")
    (docs / ".hidden.md").write_text("x")
    assert uris(source(docs, ignore=("draft-*",)).listing()) == [".hidden.md"]
    assert uris(source(docs, ignore=()).listing()) == [".hidden.md", "draft-1.md"]


def test_links_are_followed_to_files_inside_only(docs: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("not ours")
    (docs / "sub").mkdir()
    (docs / "sub" / "real.md").write_text("ours")
    (docs / "alias.md").symlink_to(docs / "sub" / "real.md")
    (docs / "relative.md").symlink_to("sub/real.md")
    (docs / "out.md").symlink_to(tmp_path / "secret.md")
    (docs / "up.md").symlink_to("../secret.md")
    (docs / "nothing.md").symlink_to("gone.md")
    (docs / "folder.md").symlink_to("sub")
    listing = source(docs).listing()
    assert uris(listing) == ["alias.md", "relative.md", "sub/real.md"]
    assert dict(listing.unusable) == {
        "folder.md": "a link to a folder",
        "nothing.md": "a link to nothing",
        "out.md": "a link that leaves the source",
        "up.md": "a link that leaves the source",
    }
    assert source(docs).read("alias.md") == b"ours"


def test_links_in_a_circle_end_and_are_reported(docs: Path) -> None:
    (docs / "a.md").symlink_to("b.md")
    (docs / "b.md").symlink_to("a.md")
    (docs / "self.md").symlink_to("self.md")
    (docs / "sub").mkdir()
    (docs / "sub" / "up").symlink_to("..")
    (docs / "real.md").write_text("x")
    listing = source(docs).listing()
    assert uris(listing) == ["real.md"]
    assert [name for name, _ in listing.unusable] == ["a.md", "b.md", "self.md", "sub/up"]


def test_a_root_that_is_itself_a_link_is_listed(docs: Path, tmp_path: Path) -> None:
    (docs / "a.md").write_text("x")
    (docs / "alias.md").symlink_to("a.md")
    (tmp_path / "current").symlink_to(docs)
    assert uris(source(tmp_path / "current").listing()) == ["a.md", "alias.md"]


def test_names_that_are_not_utf8_are_reported_in_files_and_folders(docs: Path) -> None:
    root = os.fsencode(docs)
    (docs / "good.md").write_text("x")
    for name in (b"x\xe9.md", b"sub\xff/a.md", b"sub\xff/deep/b.md"):
        path = os.path.join(root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(b"x")
    listing = source(docs).listing()
    assert uris(listing) == ["good.md"]
    reasons = dict(listing.unusable)
    assert reasons["x\\xe9.md"] == "the file name is not valid UTF-8"
    assert any(name.startswith("sub\\xff") for name in reasons)
    for name in reasons:
        name.encode("utf-8")  # can be printed and stored


def test_names_that_are_not_utf8_are_told_apart(docs: Path) -> None:
    names = (b"a\\xff\xff.md", b"a\xff\\xff.md", b"a\xff\xff.md")
    for name in (*names, b"a\\xff\\xff.md"):
        (docs / os.fsdecode(name)).write_text("x")
    listing = source(docs).listing()
    assert uris(listing) == ["a\\xff\\xff.md"]
    assert len(dict(listing.unusable)) == len(names)


def test_what_is_neither_file_nor_folder_is_reported(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(docs / "pipe.md")
    monkeypatch.chdir(docs)  # a socket's path has a length limit
    with socket.socket(socket.AF_UNIX) as door:
        door.bind("door.md")
        listing = source(docs).listing()
    assert dict(listing.unusable) == {"door.md": "not a regular file", "pipe.md": "not a regular file"}


def test_a_missing_root_refuses_the_plan(tmp_path: Path) -> None:
    with pytest.raises(PlanRefused, match=r"cannot list source 'docs'.*nothing was changed"):
        source(tmp_path / "unmounted").listing()


def test_an_unreadable_folder_refuses_the_plan_and_is_named(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a listing would delete the other half. (The superuser may read all: hence the border is closed here.)"""
    (docs / "open.md").write_text("x")
    (docs / "closed").mkdir()
    scandir = os.scandir

    def guarded(path: Path | str) -> object:
        if Path(path).name == "closed":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", guarded)
    with pytest.raises(PlanRefused, match=r"Permission denied: .*closed.*make the folder readable"):
        source(docs).listing()


def test_a_file_that_vanishes_while_listing_is_simply_not_there(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.md", "going.md", "z.md"):
        (docs / name).write_text("x")
    scandir = os.scandir

    class Vanishing:
        def __init__(self, path: Path) -> None:
            with scandir(path) as found:
                self.items = list(found)

        def __enter__(self) -> Iterator[os.DirEntry[str]]:
            (docs / "going.md").unlink()
            return iter(self.items)

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(os, "scandir", Vanishing)
    assert uris(source(docs).listing()) == ["a.md", "z.md"]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.EACCES, PermanentError),
        (errno.ENOENT, PermanentError),
        (errno.EIO, TransientError),
        (errno.ESTALE, TransientError),
        (errno.EMFILE, TransientError),
    ],
)
def test_a_file_that_cannot_be_read_says_whether_later_helps(
    docs: Path, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[Exception]
) -> None:
    (docs / "a.md").write_text("x")

    def fail(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("tasks.plan.source.os.open", fail)
    with pytest.raises(kind) as caught:
        source(docs).read("a.md")
    assert str(caught.value).startswith("a.md: ")


def test_a_file_above_the_limit_is_not_read(docs: Path) -> None:
    (docs / "a.md").write_bytes(b"12345")
    assert source(docs, max_bytes=5).read("a.md") == b"12345"
    with pytest.raises(PermanentError, match=r"larger than 4 bytes.*load\.max_bytes"):
        source(docs, max_bytes=4).read("a.md")


@pytest.mark.parametrize("leaving", [True, False])
def test_a_root_of_which_nothing_is_left_is_no_loss_of_single_files(docs: Path, leaving: bool) -> None:
    (docs / "a.md").write_text("x")
    reader = source(docs)
    reader.listing()
    docs.rename(docs.with_name("unmounted"))
    if leaving:
        docs.mkdir()
    with pytest.raises(SourceGone, match=r"source 'docs' vanished.*is it mounted"):
        reader.read("a.md")


def test_a_link_that_leaves_the_source_is_not_read_whenever_it_came(docs: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("not ours")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a.md").write_text("not ours either")
    (docs / "a.md").symlink_to("../secret.md")
    (docs / "sub").symlink_to(tmp_path / "outside")
    for uri in ("a.md", "sub/a.md"):
        with pytest.raises(PermanentError, match="a link that leaves the source"):
            source(docs).read(uri)


def test_other_places_are_refused_by_name() -> None:
    with pytest.raises(UsageError, match="s3://bucket"):
        open_source(SourceSpec(name="b", root="s3://bucket/x"), LoadConfig())


def test_folders_deeper_than_a_system_call_reaches_are_reported(docs: Path) -> None:
    (docs / "near.md").write_text("x")
    folder = os.open(docs, os.O_RDONLY)
    for _ in range(20):
        os.mkdir("s" * 250, dir_fd=folder)
        inner = os.open("s" * 250, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    listing = source(docs).listing()
    assert uris(listing) == ["near.md"]
    ((name, reason),) = listing.unusable
    assert name.startswith("s" * 250 + "/s")
    assert "longer than" in reason


@pytest.mark.parametrize("year", [1902, 1970, 2100, 2400])
def test_a_file_of_any_year_has_a_hint_that_tables_can_hold(docs: Path, year: int) -> None:
    (docs / "a.md").write_text("x")
    seconds = (year - 1970) * 31_556_952
    os.utime(docs / "a.md", (seconds, seconds))
    (entry,) = source(docs).listing().entries
    assert entry.mtime_ns == min(seconds * 10**9, 2**63 - 1)


def test_names_are_utf8_whatever_the_locale(docs: Path) -> None:
    (docs / "灯塔.md").write_text("x")
    (docs / "港").mkdir()
    (docs / "港" / "a.md").write_text("yes")
    program = (
        "import sys; from schemas.config import LoadConfig; from schemas.work import SourceSpec\n"
        "from tasks.plan.source import FolderSource\n"
        "source = FolderSource(SourceSpec(name='docs', root=sys.argv[1]), LoadConfig())\n"
        "print(ascii([entry.uri for entry in source.listing().entries]), source.read('\\u6e2f/a.md'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(docs)],
        cwd=Path(__file__).parents[2],
        env={"PATH": os.environ["PATH"], "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == ascii(["港/a.md", "灯塔.md"]) + " b'yes'"
