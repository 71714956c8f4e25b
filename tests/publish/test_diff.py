"""A diff tells documents by source and URI, renames by their bytes, and counts the chunks of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.errors import GlossatorError
from tasks.publish.diff import DocumentDiff, SnapshotDiff, diff
from tasks.publish.sweep import sweep
from tests.generations import AT_ONCE, Generations

PARAGRAPHS = [
    f"## Part {number}\n\nThe part {number} is about the tide at station {number}. "
    + "It is read every minute, and sent to the office in the morning. " * 4
    for number in range(3)
]


@pytest.fixture
def collection(tmp_path: Path) -> Generations:
    collection = Generations(tmp_path)
    for name in ("gone", "moves", "edited", "grows"):
        text = f"# {name}\n\nThis is {name}.\n\n" + "\n\n".join(PARAGRAPHS)
        (collection.corpus / f"{name}.md").write_text(text)
    return collection


def by_uri(found: SnapshotDiff) -> dict[str, DocumentDiff]:
    return {document.uri: document for document in found.documents}


def test_each_document_says_what_became_of_it(collection: Generations) -> None:
    before = collection.publish().name
    chunks_before = collection.ids(before)
    corpus = collection.corpus
    (corpus / "gone.md").unlink()
    (corpus / "moves.md").rename(corpus / "moved.md")
    (corpus / "edited.md").write_text((corpus / "edited.md").read_text().replace("about the tide at station 1", "new"))
    (corpus / "new.md").write_text("# New\n\nThis is new.\n")
    after = collection.publish().name
    chunks_after = collection.ids(after)
    found = diff(collection.lake, before, after)
    documents = by_uri(found)
    assert {uri: document.change for uri, document in documents.items()} == {
        "gone.md": "removed",
        "moved.md": "renamed",
        "edited.md": "changed",
        "new.md": "added",
    }
    assert documents["moved.md"].was == "corpus/moves.md"
    assert found.counts == {"added": 1, "changed": 1, "renamed": 1, "redone": 0, "removed": 1, "unchanged": 2}
    assert (found.chunks_added, found.chunks_removed) == (
        len(chunks_after - chunks_before),
        len(chunks_before - chunks_after),
    )
    assert sum(document.chunks_added for document in found.documents) == found.chunks_added
    assert sum(document.chunks_removed for document in found.documents) == found.chunks_removed
    edited = documents["edited.md"]
    assert edited.chunks_added == edited.chunks_removed == 1, "only the chunk that was edited"
    assert documents["gone.md"].chunks_added == 0
    assert documents["gone.md"].chunks_removed > 0


def test_the_other_way_round_is_the_mirror_image(collection: Generations) -> None:
    before = collection.publish(0).name
    (collection.corpus / "gone.md").unlink()
    after = collection.publish(1).name
    there, back = diff(collection.lake, before, after), diff(collection.lake, after, before)
    assert (there.chunks_added, there.chunks_removed) == (back.chunks_removed, back.chunks_added)
    assert by_uri(there)["gone.md"].change == "removed"
    assert by_uri(back)["gone.md"].change == "added"
    assert by_uri(there)["gauge-0.md"].change == by_uri(back)["gauge-0.md"].change == "changed"


def test_a_snapshot_does_not_differ_from_itself(collection: Generations) -> None:
    name = collection.publish().name
    found = diff(collection.lake, name, name)
    assert found.documents == ()
    assert found.counts["unchanged"] == 5


def test_copies_are_paired_one_to_one(collection: Generations) -> None:
    corpus = collection.corpus
    for name in ("a", "b"):
        (corpus / f"{name}.md").write_text("# Copy\n\nThe same words.\n")
    before = collection.publish().name
    (corpus / "a.md").rename(corpus / "c.md")
    (corpus / "b.md").unlink()
    found = by_uri(diff(collection.lake, before, collection.publish().name))
    assert (found["c.md"].change, found["c.md"].was) == ("renamed", "corpus/a.md")
    assert found["b.md"].change == "removed"
    assert set(found) == {"c.md", "b.md"}


def test_another_chunking_redoes_documents_that_did_not_change(collection: Generations, tmp_path: Path) -> None:
    before = collection.publish().name
    other = Generations(tmp_path, "chunk.child_tokens=24")
    after = other.publish(migrate=True).name
    found = diff(collection.lake, before, after)
    assert found.counts["redone"] > 0
    assert found.counts["changed"] == found.counts["added"] == 0
    assert found.chunks_added > 0


def test_a_swept_snapshot_cannot_be_compared(collection: Generations) -> None:
    names = [collection.publish(generation).name for generation in range(3)]
    sweep(collection.lake, collection.config.milvus, lambda: True, policy=AT_ONCE)
    with pytest.raises(GlossatorError, match="does not exist"):
        diff(collection.lake, names[0], names[2])
