"""A Milvus that is not there, does not answer, or is killed under a run: said in bounded time, tried again as often as
configured, and nobody else tries besides."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil
import pytest

from schemas.config import MilvusConfig
from schemas.errors import TransientError
from schemas.snapshot import VectorStoreRef
from tasks.publish import milvus
from tasks.publish.milvus import MilvusStore
from tasks.publish.milvus_client import CONNECT_SECONDS, SLOW
from tasks.publish.milvus_server import running_server
from tests.fixtures import clean_build, contents, lake_beside, make_corpus, run

AT_ONCE = "run.retry_delay_seconds=0"
REF = VectorStoreRef(collection="g_lost_0123456789abcdef", dimension=8, model="hash:8", model_identity="x")
ROW = {"vector": [1.0] * 8, "doc_id": "a", "source": "s", "uri": "u", "type": "text", "language": "en"}
ROWS = [ROW | {"chunk_id": f"{number:032x}", "date": 0, "tags_id": 0, "acl_id": 0} for number in range(4)]


def unused_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.mark.parametrize("retries", [0, 2])
def test_a_server_that_is_not_there_is_asked_once_more_than_retries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, retries: int
) -> None:
    asked: list[str] = []
    connect = milvus.connect

    def counting(uri: str, folder: Path | None, seconds: float) -> Any:
        asked.append(uri)
        return connect(uri, folder, seconds)

    monkeypatch.setattr(milvus, "connect", counting)
    uri = f"http://127.0.0.1:{unused_port()}"
    docs = make_corpus(tmp_path / "docs", {"a.md": "# A\n\nThe gauge is read daily.\n"})
    begun = time.monotonic()
    with pytest.raises(TransientError, match=f"cannot reach Milvus at {uri}.* -> check milvus.uri"):
        run(docs, f"milvus.uri={uri}", f"run.retries={retries}", AT_ONCE)
    assert asked == [uri] * (retries + 1)
    assert time.monotonic() - begun < (retries + 1) * CONNECT_SECONDS + 10


def test_a_server_that_does_not_answer_fails_a_call_in_the_time_that_it_has(tmp_path: Path) -> None:
    folder = tmp_path / "milvus.db"
    store = MilvusStore(MilvusConfig(timeout_seconds=0.3), folder, REF, lambda: "")
    found = running_server(folder)
    assert found is not None
    try:
        store.ensure()
        store.insert(ROWS)
        os.kill(found.pid, signal.SIGSTOP)
        for what, call in (
            ("take 4 rows", lambda: store.insert(ROWS)),
            ("find a collection", store.exists),
            ("list its rows", lambda: list(store.ids())),
        ):
            begun = time.monotonic()
            with pytest.raises(TransientError, match=f"Milvus could not {what}: .+ -> run the same command again"):
                call()
            assert time.monotonic() - begun < 0.3 * SLOW + 3, what
    finally:
        os.kill(found.pid, signal.SIGKILL)
        store.close()


def test_a_store_that_is_killed_under_a_run_is_started_again_and_the_run_publishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docs = make_corpus(tmp_path / "docs", {f"{n}.md": f"# Page {n}\n\nGauge {n} is read daily.\n" for n in range(4)})
    folder = lake_beside(docs).storage.local("milvus.db")
    killed: list[int] = []
    insert = MilvusStore.insert

    def insert_into_a_dying_store(store: MilvusStore, rows: Iterable[dict[str, Any]]) -> int:
        if not killed:
            found = running_server(folder)
            assert found is not None
            os.kill(found.pid, signal.SIGKILL)
            killed.append(found.pid)
        return insert(store, rows)

    monkeypatch.setattr(MilvusStore, "insert", insert_into_a_dying_store)
    begun = time.monotonic()
    assert run(docs, "milvus.shared=true", AT_ONCE).published
    assert killed and time.monotonic() - begun < 60
    monkeypatch.undo()
    found = running_server(folder)
    if found is not None:  # It would stay for ten seconds, and nobody else could read the folder.
        server = psutil.Process(found.pid)
        server.terminate()
        server.wait(timeout=20)
    assert contents(lake_beside(docs)) == clean_build(docs)
