"""The doctor looks at the lake beside the current snapshot too: records, and what is kept to go back to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from schemas.snapshot import Snapshot, Stage
from tasks.lake.access import change_groups, put_back_access
from tasks.lake.lake import Corrupt, Lake, bm25_folder, catalog_folder, part_path, passages_folder
from tasks.publish.catalog import write_catalog
from tasks.publish.doctor import examine_lake
from tasks.publish.repair import repair
from tests.fixtures import lake_beside, make_config, make_corpus, published, run

CORPUS = {f"n{number}.md": f"# Note {number}\n\nThe lamp of tower {number} is green.\n" for number in range(4)}


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = make_corpus(tmp_path / "docs", CORPUS)
    run(folder)
    return folder


@pytest.fixture
def old(docs: Path) -> Snapshot:
    """A snapshot that is kept and no longer current."""
    snapshot = published(lake_beside(docs))
    run(make_corpus(docs, {"n0.md": "# Note 0\n\nThe lamp of tower 0 is red.\n"}))
    return snapshot


def found(docs: Path) -> dict[str, tuple[str, str]]:
    lake = lake_beside(docs)
    findings = examine_lake(make_config(), lake, published(lake))
    return {finding.check: (finding.message, finding.remedy) for finding in findings if not finding.ok}


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_a_whole_lake_has_no_finding(docs: Path, old: Snapshot) -> None:
    assert found(docs) == {}


@pytest.mark.parametrize(
    "find",
    [
        lambda old: f"{bm25_folder(old.bm25)}/settings.json",
        lambda old: f"{catalog_folder(old.catalog)}/chunks.arrow",
        lambda old: f"{passages_folder(old.parts['passages'][0].key)}/vectors.npy",
    ],
    ids=["bm25", "catalog", "passages"],
)
def test_a_bit_of_what_is_only_kept_does_not_flip_unnoticed(
    docs: Path, old: Snapshot, find: Callable[[Snapshot], str]
) -> None:
    path = lake_beside(docs).storage.local(find(old))
    flip_a_bit(path)
    ((message, remedy),) = found(docs).values()
    assert old.name[:12] in message and str(path) in message
    assert "doctor --repair" in remedy


def test_a_lost_snapshot_that_is_kept_is_found(docs: Path, old: Snapshot) -> None:
    lake_beside(docs).storage.delete(f"snapshots/{old.name}.json")
    ((message, remedy),) = found(docs).values()
    assert f"{old.name}.json is missing" in message and "restore it from a copy" in remedy


def test_a_damaged_part_of_what_is_kept_is_found(docs: Path, old: Snapshot) -> None:
    flip_a_bit(lake_beside(docs).storage.local(part_path("load", old.parts["load"][0].key)))
    ((message, remedy),) = found(docs).values()
    assert "is damaged" in message and "doctor --repair" in remedy
    reports = repair(lake_beside(docs), make_config(), lambda: None)
    assert all(report.healthy for report in reports) and not any(report.problems for report in reports)
    assert found(docs) == {}


@pytest.mark.parametrize("stage", ["load", "tokens", "embed"])
def test_a_missing_part_of_what_is_only_kept_is_told_and_no_fault(docs: Path, old: Snapshot, stage: Stage) -> None:
    """No run computes it again, and neither readers nor a rollback read it."""
    lake = lake_beside(docs)
    lake.storage.delete(part_path(stage, old.parts[stage][0].key))
    (kept,) = (one for one in examine_lake(make_config(), lake, published(lake)) if one.check == "kept")
    assert kept.ok and "1 parts of them are missing" in kept.message
    assert [report.healthy for report in repair(lake, make_config(), lambda: None)] == [True, True]


@pytest.mark.parametrize("lost", [True, False])
@pytest.mark.parametrize("key", ["flip.json", "access/groups.json"])
def test_a_damaged_or_lost_copy_is_found_and_written_anew(docs: Path, old: Snapshot, key: str, lost: bool) -> None:
    lake = lake_beside(docs)
    change_groups(lake, lambda table: table | {"0" * 16: ()})
    if lost:
        lake.storage.delete(f"copies/{key}")
    else:
        lake.storage.write(f"copies/{key}", b"{")
    ((message, remedy),) = found(docs).values()
    assert f"{key} is damaged" in message and "doctor --repair" in remedy
    assert [*lake.put_back_flip(), *put_back_access(lake)] == [f"copies/{key}"]
    assert found(docs) == {}


def test_a_lost_record_of_a_source_is_found(docs: Path) -> None:
    lake_beside(docs).storage.delete("sources/docs.json")
    ((message, remedy),) = found(docs).values()
    assert "sources/docs.json is missing" in message
    assert "glossator index FOLDER --source docs" in remedy


@pytest.mark.parametrize("name", ["chunks.arrow", "documents.arrow"])
def test_no_catalog_is_made_of_passages_that_changed(docs: Path, name: str) -> None:
    lake = lake_beside(docs)
    refs = published(lake).parts["passages"]
    flip_a_bit(lake.storage.local(passages_folder(refs[0].key)) / name)
    lake.delete_folder(catalog_folder(published(lake).catalog))
    with pytest.raises(Corrupt, match=f"{name} differs from its checksum -> run `glossator doctor --repair`"):
        write_catalog(lake, refs)


def test_an_equal_store_that_changed_is_not_named_by_a_new_snapshot(docs: Path, old: Snapshot) -> None:
    """Back to the corpus of a kept snapshot: its stores have the very keys that the new one wants."""
    lake: Lake = lake_beside(docs)
    for path in (f"{bm25_folder(old.bm25)}/settings.json", f"{catalog_folder(old.catalog)}/documents.arrow"):
        flip_a_bit(lake.storage.local(path))
    run(make_corpus(docs, CORPUS))
    assert published(lake).bm25 == old.bm25
    assert found(docs) == {}
