"""Each file belongs to one source: roots do not meet, however they are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.errors import PlanRefused
from tasks.lake.lake import Lake
from tasks.plan.registry import forget_source, list_sources, record_source, resolve_source


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake with the source ``docs``."""
    (tmp_path / "all" / "docs" / "deep").mkdir(parents=True)
    (tmp_path / "all" / "docs-old").mkdir()
    lake = Lake(tmp_path / "lake", "default")
    record_source(lake, resolve_source(lake, str(tmp_path / "all" / "docs"), None))
    return lake


def test_a_recorded_folder_is_refused_under_another_name(lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(PlanRefused, match=r"is the root of source 'docs' -> .*glossator source remove docs"):
        resolve_source(lake, str(tmp_path / "all" / "docs"), "other")


def test_a_folder_in_a_recorded_root_or_around_it_is_refused(lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(PlanRefused, match=r"deep lies in the root of source 'docs'"):
        resolve_source(lake, str(tmp_path / "all" / "docs" / "deep"), None)
    with pytest.raises(PlanRefused, match=r"all holds the root of source 'docs'"):
        resolve_source(lake, str(tmp_path / "all"), None)


def test_a_link_to_a_recorded_root_is_that_root(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "all" / "docs")
    with pytest.raises(PlanRefused, match="is the root of source 'docs'"):
        resolve_source(lake, str(tmp_path / "link"), None)


def test_a_folder_whose_name_begins_alike_is_another_one(lake: Lake, tmp_path: Path) -> None:
    assert resolve_source(lake, str(tmp_path / "all" / "docs-old"), None).name == "docs-old"


def test_a_root_that_is_gone_still_holds_its_place(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "all" / "docs" / "deep").rmdir()
    (tmp_path / "all" / "docs").rmdir()
    with pytest.raises(PlanRefused, match="holds the root of source 'docs'"):
        resolve_source(lake, str(tmp_path / "all"), None)


def test_what_is_forgotten_makes_room(lake: Lake, tmp_path: Path) -> None:
    forget_source(lake, "docs")
    forget_source(lake, "docs")
    assert list_sources(lake) == []
    assert resolve_source(lake, str(tmp_path / "all"), None).name == "all"
