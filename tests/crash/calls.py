"""Points of another kind: Milvus is about to be asked for something, or connected to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psutil

from tasks.publish.milvus import local_milvus
from tasks.publish.milvus_server import running_server
from tests.crash.points import MILVUS_CALLS, Points
from tests.crash.room import Room

BORDER = "calls"
QUESTIONS = (
    "has_collection",
    "describe_collection",
    "list_collections",
    "load_collection",
    "get",
    "query",
    "query_iterator",
    "search",
)


def watch_calls(points: Points, room: Room) -> None:
    """Count the calls of Milvus's client."""
    from pymilvus import MilvusClient

    def asking(name: str, asks: Callable[..., Any]) -> Callable[..., Any]:
        def call(client: Any, *arguments: Any, **keywords: Any) -> Any:
            points.cross(f"milvus: before {name}")
            return asks(client, *arguments, **keywords)

        return call

    for name in (*MILVUS_CALLS, *QUESTIONS):
        setattr(MilvusClient, name, asking(name, getattr(MilvusClient, name)))
    MilvusClient.__init__ = asking("connect", MilvusClient.__init__)  # type: ignore[method-assign]


def is_gone(point: str) -> None:
    """Fail, as the client does when nobody listens any more.

    Raises:
        MilvusException
    """
    from pymilvus.exceptions import MilvusException

    words = "Fail connecting to server on 127.0.0.1:19530, illegal connection params or server unavailable"
    raise MilvusException(code=2, message=words)


def kill_server(room: Room) -> Callable[[str], None]:
    """Return what kills the server that the command has started, wherever in its work that is."""

    def strike(point: str) -> None:
        server = running_server(local_milvus(room.lake))
        if server is not None:
            process = psutil.Process(server.pid)
            process.kill()
            process.wait(10)

    return strike
