"""Equal bytes are embedded once: copies in one run, copies of what is there, and what was deleted and comes back."""

from __future__ import annotations

from pathlib import Path

import pytest

import schemas.identity
from tests.fixtures import lake_beside, make_corpus, published, run

TEXT = "# Lantern\n\nThe lantern turns once in ten seconds.\n\n## Oil\n\nIt burns two litres a night.\n"
OTHERS = {f"n{number}.md": f"# Note {number}\n\nNothing of note, {number} times.\n" for number in range(6)}


@pytest.fixture(autouse=True)
def _many_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas.identity, "DOCUMENTS_PER_SHARD", 2)


def test_copies_in_other_shards_are_embedded_once_in_the_first_run(tmp_path: Path) -> None:
    copies = {f"copy-{number}/lantern.md": TEXT for number in range(8)}
    docs = make_corpus(tmp_path / "docs", copies | OTHERS)
    report = run(docs)
    holders = {ref.shard for ref in published(lake_beside(docs)).parts["passages"] if ref.counts["chunks"]}
    assert len(holders) > 3
    assert (report.chunks, report.chunks_embedded) == (8 * 2 + 6, 2 + 6)


def test_a_copy_of_a_published_document_embeds_nothing(tmp_path: Path) -> None:
    docs = make_corpus(tmp_path / "docs", {"lantern.md": TEXT} | OTHERS)
    run(docs)
    make_corpus(docs, {"lantern.md": TEXT, "again/lantern.md": TEXT} | OTHERS)
    report = run(docs)
    assert (report.documents.added, report.chunks_embedded) == (1, 0)
