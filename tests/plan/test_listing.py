"""Digests from hints: nothing unchanged is read, and nothing that changed is overlooked."""

from __future__ import annotations

import os
from pathlib import Path

import polars as pl
import pytest

from schemas.config import LoadConfig
from schemas.errors import PermanentError, TransientError
from schemas.identity import content_digest, document_id
from schemas.work import SourceSpec
from tasks.lake.lake import Lake
from tasks.plan.listing import RACY_NS, DigestedListing, digest_listing, forget_old_hints, hints_key, remember_hints
from tasks.plan.source import FolderSource, Listing

DAY_NS = 86_400 * 10**9


class Night:
    """A folder that is listed again and again, at times that the test chooses."""

    def __init__(self, root: Path) -> None:
        self.docs = root / "docs"
        self.docs.mkdir()
        self.lake = Lake(root / "lake", "default")
        self.source = FolderSource(SourceSpec(name="docs", root=str(self.docs)), LoadConfig())

    def listed(self, after_ns: int) -> DigestedListing:
        """List as if so long after the last change of any file."""
        found = self.source.listing()
        newest = max(max(entry.mtime_ns, entry.ctime_ns) for entry in found.entries)
        listing = Listing(found.entries, found.unusable, newest + after_ns)
        uris = pl.Series([entry.uri for entry in listing.entries], dtype=pl.String)
        digested = digest_listing(self.lake, self.source, listing, uris)
        remember_hints(self.lake, "docs", digested.table)
        return digested


@pytest.fixture
def night(tmp_path: Path) -> Night:
    night = Night(tmp_path)
    for name in ("a.md", "b.md", "灯.md"):
        (night.docs / name).write_text(name)
    return night


def digests(listing: DigestedListing) -> dict[str, str]:
    return dict(listing.table.select("uri", "content_digest").iter_rows())


def test_the_first_night_reads_everything_and_the_second_nothing(night: Night) -> None:
    """knowledge-base-mcp-server#695, yeti#1379, qmd#151: everything is done again every night."""
    first = night.listed(DAY_NS)
    assert first.hashed == 3
    assert digests(first) == {name: content_digest(name.encode()) for name in ("a.md", "b.md", "灯.md")}
    second = night.listed(2 * DAY_NS)
    assert (second.hashed, digests(second)) == (0, digests(first))


def test_a_touch_is_read_once_and_not_the_night_after(night: Night) -> None:
    """llama_index#21461: mtime is part of the digest."""
    before = night.listed(DAY_NS)
    os.utime(night.docs / "a.md", ns=(10**18, 10**18))
    touched = night.listed(DAY_NS)
    assert (touched.hashed, digests(touched)) == (1, digests(before))
    assert night.listed(DAY_NS).hashed == 0


@pytest.mark.parametrize(("after", "hashed"), [(0, 3), (RACY_NS // 2, 3), (RACY_NS + 1, 0)])
def test_files_written_within_two_seconds_of_the_listing_are_read_again(night: Night, after: int, hashed: int) -> None:
    """git's racy entry: within the clock's step a file may change again and keep its times."""
    night.listed(after)
    assert night.listed(DAY_NS).hashed == hashed
    assert night.listed(DAY_NS).hashed == 0


def test_an_edit_of_equal_size_with_its_time_set_back_is_found(night: Night) -> None:
    before = night.listed(DAY_NS)
    path = night.docs / "a.md"
    stat = path.stat()
    path.write_text("A.MD")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (stat.st_size, stat.st_mtime_ns)
    after = night.listed(DAY_NS)
    assert after.hashed == 1
    assert digests(after)["a.md"] == content_digest(b"A.MD") != digests(before)["a.md"]


def test_a_file_replaced_by_another_of_equal_size_and_times_is_found(night: Night) -> None:
    night.listed(DAY_NS)
    stat = (night.docs / "a.md").stat()
    (night.docs / "new").write_text("new!")
    os.utime(night.docs / "new", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    (night.docs / "new").replace(night.docs / "a.md")
    assert digests(night.listed(DAY_NS))["a.md"] == content_digest(b"new!")


def test_a_rename_is_read_again_since_a_hint_belongs_to_a_name(night: Night) -> None:
    night.listed(DAY_NS)
    (night.docs / "a.md").rename(night.docs / "c.md")
    renamed = night.listed(DAY_NS)
    assert digests(renamed)["c.md"] == content_digest(b"a.md")
    assert set(digests(renamed)) == {"b.md", "c.md", "灯.md"}


def test_lost_hints_cost_one_reading(night: Night) -> None:
    first = night.listed(DAY_NS)
    night.lake.storage.delete("state/hints/docs.arrow")
    again = night.listed(DAY_NS)
    assert (again.hashed, digests(again)) == (3, digests(first))


def test_only_supported_files_are_read(night: Night) -> None:
    listing = night.source.listing()
    found = digest_listing(night.lake, night.source, listing, pl.Series(["b.md"]))
    assert (found.hashed, list(digests(found))) == (1, ["b.md"])


def test_an_unreadable_file_is_a_failure_of_that_file(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    read = night.source.read

    def guarded(uri: str) -> bytes:
        if uri == "b.md":
            raise PermanentError("no permission to read it", document=uri, hint="chmod u+r b.md")
        return read(uri)

    monkeypatch.setattr(night.source, "read", guarded)
    found = night.listed(DAY_NS)
    assert set(digests(found)) == {"a.md", "灯.md"}
    (failure,) = found.failures
    assert (failure.uri, failure.doc_id, failure.stage) == ("b.md", document_id("docs", "b.md"), "load")
    assert failure.message == "no permission to read it -> chmod u+r b.md"
    assert (failure.transient, failure.content_digest) == (False, "")
    assert night.listed(DAY_NS).hashed == 1  # tried again, alone


@pytest.mark.parametrize(("errors", "failures"), [(1, 0), (2, 0), (3, 1)])
def test_a_read_that_fails_at_the_moment_is_tried_three_times(
    night: Night, monkeypatch: pytest.MonkeyPatch, errors: int, failures: int
) -> None:
    read, left = night.source.read, [errors]

    def shaky(uri: str) -> bytes:
        if uri == "b.md" and left[0]:
            left[0] -= 1
            raise TransientError("cannot be read now: Input/output error", document=uri)
        return read(uri)

    monkeypatch.setattr(night.source, "read", shaky)
    found = night.listed(DAY_NS)
    assert [failure.uri for failure in found.failures] == ["b.md"] * failures
    assert ("b.md" in digests(found)) == (not failures) and left == [0]


def changed_behind_its_hint(night: Night, name: str, text: str) -> None:
    """Change bytes of which no hint tells: write the hint as the file looks now, with the digest that it had."""
    (night.docs / name).write_text(text)
    stat = (night.docs / name).stat()
    now = {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "ctime_ns": stat.st_ctime_ns, "inode": stat.st_ino}
    hints = night.lake.read_frame(hints_key("docs"))
    assert hints is not None
    columns = [
        pl.when(pl.col("uri") == name).then(pl.lit(value, hints.schema[column])).otherwise(column).alias(column)
        for column, value in now.items()
    ]
    night.lake.write_frame(hints_key("docs"), hints.with_columns(columns))


def test_what_changed_behind_its_hint_is_found_once_old_hints_are_forgotten(night: Night) -> None:
    before = night.listed(DAY_NS)
    changed_behind_its_hint(night, "a.md", "rotten")
    assert digests(night.listed(2 * DAY_NS)) == digests(before), "the hint is believed"
    hints = night.lake.read_frame(hints_key("docs"))
    assert hints is not None
    read = int(hints["seen_ns"].max())  # type: ignore[arg-type]
    assert forget_old_hints(night.lake, read) == 0, "none was read earlier"
    assert night.listed(2 * DAY_NS).hashed == 0
    assert forget_old_hints(night.lake, read + 1, dry_run=True) == 3
    assert night.listed(2 * DAY_NS).hashed == 0
    assert forget_old_hints(night.lake, read + 1) == 3
    after = night.listed(2 * DAY_NS)
    assert (after.hashed, digests(after)["a.md"]) == (3, content_digest(b"rotten"))
    assert forget_old_hints(night.lake, read + 1) == 0, "they were all read since"
