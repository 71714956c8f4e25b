"""The vector store: rows are versions, batches are bounded by bytes, and a held folder is no damage."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pymilvus.exceptions import MilvusException

from schemas.config import MilvusConfig
from schemas.errors import GlossatorError, TransientError
from schemas.snapshot import VectorStoreRef
from tasks.lake.lake import Lake
from tasks.publish.milvus import MilvusStore, _batches, collection_name, open_milvus
from tests.fixtures import contents, lake_beside, make_config, make_corpus, published, run, store_of

ROOT = Path(__file__).parents[2]
DIMENSION = 8


def reference(dimension: int = DIMENSION) -> VectorStoreRef:
    return VectorStoreRef(
        collection=collection_name("default", f"{dimension:032d}"), dimension=dimension, model="m", model_identity="i"
    )


def row(number: int, dimension: int = DIMENSION, **changes: Any) -> dict[str, Any]:
    vector = np.zeros(dimension, np.float32)
    vector[number % dimension] = 1
    return {
        "chunk_id": f"{number:032d}",
        "vector": vector.tolist(),
        "doc_id": f"{number:016d}",
        "source": "docs",
        "uri": f"{number}.md",
        "type": "markdown",
        "language": "en",
        "date": -1_000_000,
        "tags_id": 0,
        "acl_id": 0,
    } | changes


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MilvusStore]:
    store = open_milvus(MilvusConfig(shared=False), Lake(tmp_path, "default"), reference(), create=True)
    store.ensure()
    yield store
    store.close()


def test_what_was_inserted_is_there_by_id_and_by_count(store: MilvusStore) -> None:
    store.insert([row(number) for number in range(5)])
    assert store.count() == 5
    assert store.present([f"{number:032d}" for number in range(3, 7)]) == {f"{3:032d}", f"{4:032d}"}
    assert sorted(store.ids()) == [f"{number:032d}" for number in range(5)]
    assert store.search(np.eye(DIMENSION, dtype=np.float32)[2], 1) == [(f"{2:032d}", pytest.approx(1.0))]


def test_an_equal_id_replaces_itself(store: MilvusStore) -> None:
    """milvus#37389: `insert` does not replace an equal primary key."""
    store.insert([row(1), row(2)])
    store.insert([row(2), row(3)])
    assert store.count() == 3
    assert sorted(store.ids()) == [f"{number:032d}" for number in (1, 2, 3)]


def test_ensuring_twice_keeps_the_rows(store: MilvusStore) -> None:
    store.insert([row(1)])
    store.ensure()
    assert store.count() == 1


def test_nothing_to_insert_is_no_call(store: MilvusStore) -> None:
    store.insert([])
    assert store.count() == 0
    assert store.present([]) == set()


@pytest.mark.parametrize("limit", [1, 1_000, 10_000, 10**9])
def test_batches_are_bounded_by_bytes_and_lose_nothing(limit: int) -> None:
    """milvus#21823: a batch over the gRPC message limit fails."""
    rows = [row(number, uri="灯" * (number * 7 % 40)) for number in range(50)]
    batches = list(_batches(rows, limit))
    assert [item for batch in batches for item in batch] == rows
    for batch in batches:
        size = sum(4 * DIMENSION + len(item["uri"].encode()) for item in batch)
        assert size <= limit or len(batch) == 1


def test_more_than_one_message_of_rows_is_stored(tmp_path: Path) -> None:
    """milvus#21823: 64 MB, and 4 MB in older versions, are the most that one message takes."""
    dimension = 4_096
    store = open_milvus(
        MilvusConfig(shared=False, index="FLAT"), Lake(tmp_path, "default"), reference(dimension), create=True
    )
    store.ensure()
    rows = [row(number, dimension) for number in range(400)]
    assert sum(4 * len(item["vector"]) for item in rows) > 6 * 2**20
    store.insert(rows)
    assert store.count() == 400


def test_a_long_chinese_path_fits(tmp_path: Path) -> None:
    """milvus#37026: VARCHAR max_length counts bytes: Chinese text is three times longer."""
    uri = "/".join(["灯塔维护手册" * 12] * 12) + "/灯.md"
    assert len(uri.encode()) > 2_600
    docs = make_corpus(tmp_path / "docs", {uri: "# 灯塔\n\n灯塔每隔五秒闪一次。\n"})
    run(docs)
    found = contents(lake_beside(docs))
    assert (found.uris, found.unstored) == ({uri}, frozenset())


def test_a_lost_collection_is_said_not_created(tmp_path: Path) -> None:
    store = open_milvus(MilvusConfig(shared=False), Lake(tmp_path, "default"), reference(), create=True)
    for question in (store.count, lambda: store.present(["x"]), lambda: list(store.ids())):
        with pytest.raises(GlossatorError, match="is gone"):
            question()
    assert not store.exists()


@pytest.mark.parametrize("left", [(), ("schema.json.tmp",), ("wal/wal_data_000001.arrow",)])
def test_a_collection_whose_creation_or_drop_was_cut_off_can_be_made(tmp_path: Path, left: tuple[str, ...]) -> None:
    folder = tmp_path / "default" / "milvus.db" / "collections" / reference().collection
    folder.mkdir(parents=True)
    for name in left:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"half")
    store = open_milvus(MilvusConfig(shared=False), Lake(tmp_path, "default"), reference(), create=True)
    assert store.remains() == [reference().collection] and store.siblings() == []
    store.ensure()
    store.insert([row(1)])
    assert store.count() == 1
    assert store.remains() == [] and store.siblings() == [reference().collection]
    store.close()


@pytest.mark.parametrize("left", [0, 100])
def test_an_index_file_that_was_cut_off_is_built_anew(tmp_path: Path, left: int) -> None:
    run(make_corpus(tmp_path / "docs", {"a.md": "# A\n\nAn anchor.\n", "b.md": "# B\n\nA buoy.\n"}))
    lake = lake_beside(tmp_path / "docs")
    contents(lake)  # Loaded for the first time, and so indexed.
    copy = Lake(tmp_path / "copy", "default")  # This process still has the other one loaded.
    shutil.copytree(lake.root, copy.root)
    index = next(copy.root.rglob("*.idx"))
    whole = index.stat().st_size
    os.truncate(index, left)
    with closing(store_of(copy)) as store:
        assert store.count() == 2
    assert contents(copy).unstored == frozenset()
    assert index.stat().st_size == whole


def test_whole_index_files_stay_whatever_else_keeps_a_collection_from_loading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(make_corpus(tmp_path / "docs", {"a.md": "# A\n\nAn anchor.\n"}))
    lake = lake_beside(tmp_path / "docs")
    contents(lake)
    index = next(lake.root.rglob("*.idx"))
    with closing(open_milvus(make_config().milvus, lake, published(lake).vectors)) as store:

        def late(*_: object, **__: object) -> None:
            raise MilvusException(message="Deadline Exceeded")

        monkeypatch.setattr(store._client, "load_collection", late)
        with pytest.raises(TransientError, match="Deadline"):
            store.count()
    assert index.exists()


def test_remains_of_others_are_not_ours(tmp_path: Path) -> None:
    other = collection_name("other", f"{1:032d}")
    (tmp_path / "default" / "milvus.db" / "collections" / other).mkdir(parents=True)
    store = open_milvus(MilvusConfig(shared=False), Lake(tmp_path, "default"), reference(), create=True)
    assert store.remains() == []
    store.close()


def test_a_folder_that_another_process_holds_is_busy_not_damaged(tmp_path: Path) -> None:
    """memsearch#652: a file lock is reported as corruption."""
    docs = make_corpus(tmp_path / "docs", {"a.md": "# A\n\nPage.\n"})
    holder = open_milvus(MilvusConfig(shared=False), lake_beside(docs), reference(), create=True)
    holder.ensure()
    code = (
        "import sys; from pathlib import Path; from tests.fixtures import *\n"
        "from schemas.errors import TransientError\n"
        "try: run(Path(sys.argv[1]), 'run.retry_delay_seconds=0')\n"
        "except TransientError as error: print(error)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(docs)],
        cwd=ROOT,
        env=dict(os.environ, PYTHONPATH=str(ROOT)),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "another process holds it" in result.stdout
    assert "then try again" in result.stdout
    holder.close()


def test_collections_of_other_rows_have_other_names() -> None:
    assert collection_name("a", "0" * 32) != collection_name("b", "0" * 32)
    assert collection_name("a", "0" * 32) != collection_name("a", "1" + "0" * 31)
