"""Readers see what was published: each chunk's words, places and vector, and nothing of another snapshot."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest

from query.snapshot_reader import Passage, SnapshotReader
from schemas.identity import embedded_text
from tasks.embed.encoder import HashEncoder
from tasks.lake.lake import Corrupt, Lake


def passage_with(reader: SnapshotReader, words: str) -> int:
    (row,) = (row for row in range(reader.size) if words in reader.passage(row).text)
    return row


def test_every_passage_is_its_span_of_the_document(handbook: SnapshotReader) -> None:
    for row in range(handbook.size):
        passage = handbook.passage(row)
        assert handbook.document_text(passage.document.row)[passage.start : passage.end] == passage.text
        assert handbook.row(passage.chunk_id) == row


def test_a_passage_says_where_it_stands(handbook: SnapshotReader) -> None:
    passage = handbook.passage(passage_with(handbook, "For a pet"))
    assert passage.document.uri == "leave.md"
    assert passage.document.name == "Leave policy"
    assert passage.breadcrumb == ("Leave policy",)
    assert (passage.index, passage.total) == (1, 2)
    assert handbook.parent(passage).text == handbook.document_text(passage.document.row)


def test_an_id_of_another_snapshot_does_not_exist(handbook: SnapshotReader) -> None:
    assert handbook.row("f" * 32) is None
    assert handbook.row("") is None


def test_vectors_come_back_in_the_order_asked_for(handbook: SnapshotReader) -> None:
    rows = np.array([5, 0, 17, 3, 5])
    passages = [handbook.passage(int(row)) for row in rows]
    expected = HashEncoder(64).encode([embedded_text(passage.context, passage.text) for passage in passages])
    np.testing.assert_array_equal(handbook.vectors(rows), expected)
    np.testing.assert_allclose(handbook.similarities(expected[0], rows), expected @ expected[0], atol=1e-6)


def test_similarities_are_the_same_whether_few_or_all_are_asked_for(handbook: SnapshotReader) -> None:
    vector = handbook.vectors(np.array([7]))[0]
    everything = handbook.similarities(vector, np.arange(handbook.size))
    for row in range(0, handbook.size, 9):
        assert handbook.similarities(vector, np.array([row]))[0] == pytest.approx(everything[row], abs=1e-6)


def test_ten_passages_take_milliseconds(handbook: SnapshotReader) -> None:
    handbook.passage(0)
    started = time.process_time()
    for row in range(10):
        handbook.passage(row)
    assert time.process_time() - started < 0.1


@pytest.mark.parametrize(
    "name",
    ["catalog/c/chunks.arrow", "catalog/c/documents.arrow", "passages/p0/chunks.arrow", "passages/p1/vectors.npy"],
)
def test_a_damaged_file_is_refused(written: tuple[Lake, str], name: str) -> None:
    lake, snapshot = written
    path = lake.storage.local(name)
    path.write_bytes(b"\0" * path.stat().st_size)
    with pytest.raises(Corrupt, match="damaged"):
        read_everything(lake, snapshot)


def test_a_flipped_bit_may_hide_a_passage_and_never_misquotes_one(written: tuple[Lake, str]) -> None:
    lake, snapshot = written
    whole = SnapshotReader(lake, snapshot)
    said = {whole.chunk_id(row): shown(whole.passage(row)) for row in range(whole.size)}
    draw = random.Random(7)
    noticed = 0
    for name in ("catalog/c/chunks.arrow", "catalog/c/documents.arrow", "passages/p0/chunks.arrow") * 20 + (
        "passages/p0/documents.arrow",
        "passages/p1/documents.arrow",
    ) * 40:
        data = bytearray(lake.storage.read(name))
        place, bit = draw.randrange(len(data)), draw.randrange(8)
        data[place] ^= 1 << bit
        lake.storage.write(name, bytes(data))
        try:
            reader = SnapshotReader(lake, snapshot)
            for row in range(reader.size):
                passage = reader.passage(row)
                assert shown(passage) == said[passage.chunk_id], f"{name} byte {place} bit {bit}"
        except Corrupt as error:
            noticed += 1
            assert "\n" not in str(error)
        data[place] ^= 1 << bit
        lake.storage.write(name, bytes(data))
    assert noticed > 50


def shown(passage: Passage) -> tuple[object, ...]:
    document = passage.document
    return (passage.text, passage.context, document.source, document.uri, document.title, document.language)


def test_passages_of_another_shard_are_refused(written: tuple[Lake, str]) -> None:
    lake, snapshot = written
    one, other = lake.storage.local("passages/p0"), lake.storage.local("passages/p1")
    one.rename(one.with_name("p2"))
    other.rename(one)
    one.with_name("p2").rename(other)
    with pytest.raises(Corrupt, match="do not belong"):
        read_everything(lake, snapshot)


def test_a_lexical_index_of_another_size_is_refused(written: tuple[Lake, str]) -> None:
    from tasks.publish.bm25_build import build_bm25

    lake, snapshot = written
    config = SnapshotReader(lake, snapshot).bm25.settings.config
    lake.write_folder("bm25/b", build_bm25(np.array([0]), np.array([0, 1]), ["a"], config))
    with pytest.raises(Corrupt, match="holds 1 chunks"):
        _ = SnapshotReader(lake, snapshot).bm25


def read_everything(lake: Lake, snapshot: str) -> None:
    reader = SnapshotReader(lake, snapshot)
    for row in range(reader.size):
        reader.passage(row)
