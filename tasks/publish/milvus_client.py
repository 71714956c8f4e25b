"""pymilvus as we use it: imported without side effects, each call bounded, its errors in our words.

Left alone, a call waits without end for a server that is there and does not answer it, and some failures are tried
up to 75 times, 3 seconds apart, by pymilvus itself, in some calls nested. A call that is given a time ends within it,
those tries included, so that what the runner tries three times takes three times as long at most:

- a server that refuses connections fails at once, one that cannot be reached after ``CONNECT_SECONDS``, whether the
  client is opened or a call finds the server gone;
- one that does not answer fails after ``milvus.timeout_seconds``, or ``SLOW`` times that where all rows are to be on
  disk or an index is to be built of them. (A frozen one answers no pings either: 70 seconds.)
"""

from __future__ import annotations

import errno
import json
import logging
import logging.config
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from schemas.errors import TransientError
from tasks.lake.lake import first_line


class FolderUnreadable(TransientError):
    """Milvus Lite cannot work with the folder of the lake: it is damaged, or another process has it."""


CONNECT_SECONDS = 10.0
SLOW = 10
"""How much longer than others those calls may take: flush, load, create."""


def connect(uri: str, folder: Path | None, seconds: float) -> Any:
    """Return a client.

    Args:
        seconds: for a call that is given no time of its own: pymilvus makes such inside others.
        folder: of Milvus Lite, which the URI names, or our own server of it; None for a server of somebody else.

    Raises:
        TransientError: nobody answers there, or another process holds the folder.
    """
    _import_pymilvus()
    _quiet()
    from grpc import RpcError
    from pymilvus import MilvusClient
    from pymilvus.exceptions import MilvusException

    try:
        if folder is not None:
            folder.parent.mkdir(parents=True, exist_ok=True)
        return MilvusClient(
            uri=uri,
            token=os.environ.get("MILVUS_TOKEN", ""),
            timeout=CONNECT_SECONDS,
            grpc_options={"grpc.service_config": _service_config(seconds)},
        )
    except (MilvusException, RpcError, OSError, RuntimeError) as error:
        raise _unreachable(uri, folder is not None, error) from error


def _service_config(seconds: float) -> str:
    """Return gRPC's own limit for every call (github.com/grpc/grpc-proto, service_config.proto)."""
    return json.dumps({"methodConfig": [{"name": [{}], "timeout": f"{seconds:.3f}s"}]})


def _unreachable(uri: str, local: bool, error: Exception) -> TransientError:
    if local:
        return FolderUnreadable(
            f"cannot open Milvus Lite in {uri} ({_said(error)}): another process holds it, or it cannot be written",
            hint="wait for the other glossator command to end, then try again",
        )
    return TransientError(
        f"cannot reach Milvus at {shown(uri)}: {_said(error)}", hint="check milvus.uri and that the server runs"
    )


def shown(uri: str) -> str:
    """Return a URI without the name and password that may stand in it."""
    parts = urlsplit(uri)
    return uri if parts.username is None else urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


@contextmanager
def told(what: str, kind: type[TransientError] = TransientError) -> Iterator[None]:
    """Tell of Milvus's errors in our words.

    Args:
        kind: of errors that say something of the store; those of the moment are TransientErrors, whatever it is.
    """
    from grpc import RpcError
    from pymilvus.exceptions import MilvusException

    try:
        yield
    except (MilvusException, RpcError) as error:
        raise (TransientError if _is_of_the_moment(error) else kind)(
            f"Milvus could not {what}: {_said(error)}", hint="run the same command again: what is done so far is kept"
        ) from error


def _is_of_the_moment(error: Exception) -> bool:
    """Tell whether a server is gone or late, or a disk full: nothing follows from it for what is stored."""
    from grpc import RpcError, StatusCode
    from pymilvus.exceptions import MilvusUnavailableException

    cause = error if isinstance(error, RpcError) else error.__cause__ or error.__context__
    lost = {StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED, StatusCode.CANCELLED}
    code = getattr(cause, "code", None)
    return (
        isinstance(error, MilvusUnavailableException)
        or (callable(code) and code() in lost)
        or os.strerror(errno.ENOSPC) in str(error)
    )


def _said(error: Exception) -> str:
    """Return the first line of an error's own words; Milvus's put a code before them when printed."""
    if callable(details := getattr(error, "details", None)):  # Of gRPC: its text is a page.
        return first_line(details() or type(error).__name__)
    message = getattr(error, "message", error)
    return first_line(message if str(message).strip() else type(error).__name__)


_importing = threading.Lock()


def _import_pymilvus() -> None:
    """Import pymilvus without letting it reconfigure the logging of the whole process.

    On import it calls ``logging.config.dictConfig``, which closes everybody's handlers: Prefect's then waits five
    seconds for its queue and never logs again.
    """
    with _importing:  # Of two threads the later would keep what the earlier has put in its place for a moment.
        if "pymilvus" not in sys.modules:
            _import_quietly()


def _import_quietly() -> None:
    # gRPC's core writes to stderr past Python's logging, about pings among others.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    configure = logging.config.dictConfig
    logging.config.dictConfig = lambda config: None
    try:
        import pymilvus  # noqa: F401
    finally:
        logging.config.dictConfig = configure


def _quiet() -> None:
    # Milvus Lite logs a traceback for each optional call that it lacks; errors reach us as exceptions anyway.
    for name in ("pymilvus", "milvus_lite", "faiss", "grpc", "grpc._server"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
