"""Small files that may be lost or damaged stop nothing that can do without them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from schemas.errors import GlossatorError, TransientError
from tasks.lake.lake import Corrupt
from tasks.lake.lease import EXPIRY_SECONDS, publishing
from tasks.plan.registry import list_sources
from tasks.publish.pins import read_pins
from tasks.publish.sweep import sweep
from tests.fixtures import ailments, lake_beside, make_config, make_corpus, run

DOCS = {"a.md": "# Anchors\n\nAn anchor.\n", "b.md": "# Buoys\n\nA buoy.\n"}


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    docs = make_corpus(tmp_path / "docs", DOCS)
    run(docs)
    return docs


def test_a_damaged_receipt_is_swept_and_its_rows_are_looked_at_again(docs: Path) -> None:
    lake = lake_beside(docs)
    keys = list(lake.storage.keys("state/vectors"))
    assert keys
    for key in keys:
        lake.storage.write(key, b"{")
    assert sweep(lake, make_config().milvus, lambda: True, full=True).records.count == len(keys)
    make_corpus(docs, DOCS | {"c.md": "# Chains\n\nA chain.\n"})
    assert run(docs).chunks_embedded == 1
    assert ailments(docs) == {}


def test_what_is_no_pin_in_the_folder_of_pins_stops_no_publish(docs: Path) -> None:
    lake = lake_beside(docs)
    lake.storage.write("pins/.DS_Store", b"\0\0")
    make_corpus(docs, DOCS | {"c.md": "# Chains\n\nA chain.\n"})
    assert run(docs).published
    assert read_pins(lake) == {}


def test_a_damaged_pin_says_which_file_and_what_to_do(docs: Path) -> None:
    lake = lake_beside(docs)
    name = lake.snapshot_names()[0]
    lake.storage.write(f"pins/{name}.json", b"{")
    with pytest.raises(Corrupt, match=rf"pins/{name}.json is damaged.*delete it"):
        read_pins(lake)


def test_an_empty_lease_blocks_publishers_for_a_minute_and_not_for_good(docs: Path) -> None:
    lake = lake_beside(docs)
    lake.storage.write("lease.json", b"")
    with pytest.raises(TransientError, match="lease.json is no lease"), publishing(lake, "me", 0.0):
        pass
    past = time.time() - EXPIRY_SECONDS - 1
    os.utime(lake.storage.local("lease.json"), (past, past))
    with publishing(lake, "me", 0.0) as held:
        assert held.still_ours()


def test_a_source_of_which_every_document_fails_is_recorded_all_the_same(docs: Path, tmp_path: Path) -> None:
    more = tmp_path / "more"
    more.mkdir()
    (more / "broken.pdf").write_bytes(b"%PDF-1.7 no more of it")
    report = run(more, lake=lake_beside(docs))
    assert [failure.uri for failure in report.failed] == ["broken.pdf"]
    assert {spec.name for spec in list_sources(lake_beside(docs))} == {"docs", "more"}


def test_a_full_disk_is_no_other_publisher(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The heartbeat cannot renew the lease then either, so that it runs out; nobody has taken it."""
    import flows.index

    def full(*arguments: object) -> None:
        raise TransientError("the disk is full")

    monkeypatch.setattr(flows.index, "verify", full)
    monkeypatch.setattr("tasks.lake.lease.Held.still_ours", lambda held: False)
    make_corpus(docs, DOCS | {"c.md": "# Chains\n\nA chain.\n"})
    with pytest.raises(GlossatorError, match="the disk is full"):
        run(docs)
