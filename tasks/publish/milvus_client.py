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
from urllib.parse import urlsplit

from schemas.errors import GlossatorError, TransientError
from tasks.lake.lake import first_line

CONNECT_SECONDS = 10.0
SLOW = 10
"""How much longer than others those calls may take: flush, load, create."""

_NO_LOGIN = "check the token: the environment variable MILVUS_TOKEN, or user:password@ in milvus.uri"
_NOT_THERE = "run `glossator doctor --repair`: what is gone is written again"
_OTHER_COLUMNS = "the server takes no such rows or questions: check its version and the settings of [milvus]"
_NEVER_BY_CODE = {
    100: _NOT_THERE,  # Collection.
    800: "the database of milvus.uri is not there: create it on the server, or name another",
    109: _OTHER_COLUMNS,  # Schema.
    1100: _OTHER_COLUMNS,  # Invalid parameter.
    1101: _OTHER_COLUMNS,  # Missing parameter.
    1400: _NO_LOGIN,
    1401: "the user of MILVUS_TOKEN lacks a privilege: grant it on the server",
    1700: _OTHER_COLUMNS,  # Field.
}
"""Of a server's refusals that stay however often it is asked (github.com/milvus-io/milvus, pkg/util/merr/errors.go)."""
_NEVER_BY_STATUS = {
    "UNAUTHENTICATED": _NO_LOGIN,
    "PERMISSION_DENIED": _NO_LOGIN,
    "INVALID_ARGUMENT": _OTHER_COLUMNS,
    "UNIMPLEMENTED": "the server does not know this call: check its version",
}
"""Of gRPC."""
_importing = threading.Lock()


def connect(uri: str, folder: Path | None, seconds: float) -> Any:
    """Return a client.

    Args:
        seconds: for a call that is given no time of its own: pymilvus makes such inside others.
        folder: of Milvus Lite, which the URI names, or our own server of it; None for a server of somebody else.

    Raises:
        TransientError: nobody answers there, or another process holds the folder.
        GlossatorError: the server refuses this client.
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


def shown_uri(uri: str) -> str:
    """Return the URI of a server as it may be printed: without user and password."""
    try:
        login = urlsplit(uri).netloc.rpartition("@")[0]
    except ValueError:
        return "milvus.uri"
    return uri.replace(f"{login}@", "", 1) if login else uri


def _unreachable(uri: str, local: bool, error: Exception) -> GlossatorError:
    if local:
        return TransientError(
            f"cannot open Milvus Lite in {uri} ({_said(error)}): another process holds it, or it cannot be written",
            hint="wait for the other glossator command to end, then try again",
        )
    shown = shown_uri(uri)
    said = _said(error).replace(uri, shown)
    if hint := _never(error):
        return GlossatorError(f"Milvus at {shown} refuses us: {said}", hint=hint)
    return TransientError(f"cannot reach Milvus at {shown}: {said}", hint="check milvus.uri and that the server runs")


@contextmanager
def told(what: str) -> Iterator[None]:
    """Tell of Milvus's errors in our words.

    Raises:
        GlossatorError: it refuses the call, and would again. TransientError: any other failure.
    """
    from grpc import RpcError
    from pymilvus.exceptions import MilvusException

    try:
        yield
    except (MilvusException, RpcError) as error:
        message = f"Milvus could not {what}: {_said(error)}"
        if hint := _never(error):
            raise GlossatorError(message, hint=hint) from error
        raise TransientError(message, hint="run the same command again: what is done so far is kept") from error


def _never(error: BaseException | None) -> str | None:
    """Return what to do about a failure that no other try mends; None for one that may pass."""
    from grpc import RpcError
    from pymilvus.exceptions import DataNotMatchException, MilvusException

    seen: set[int] = set()
    while error is not None and id(error) not in seen:  # pymilvus wraps some of gRPC's refusals, and raises e from e.
        seen.add(id(error))
        if isinstance(error, DataNotMatchException):
            return _OTHER_COLUMNS
        if isinstance(error, MilvusException) and error.code in _NEVER_BY_CODE:
            return _NEVER_BY_CODE[error.code]
        if isinstance(error, RpcError) and callable(status := getattr(error, "code", None)):
            return _NEVER_BY_STATUS.get(status().name)
        error = error.__cause__
    return None


def _said(error: Exception) -> str:
    """Return the first line of an error's own words; Milvus's put a code before them when printed."""
    if callable(details := getattr(error, "details", None)):  # Of gRPC: its text is a page.
        return first_line(details() or type(error).__name__)
    message = getattr(error, "message", error)
    return first_line(message if str(message).strip() else type(error).__name__)


def _import_pymilvus() -> None:
    """Import pymilvus without letting it reconfigure the logging of the whole process.

    On import it calls ``logging.config.dictConfig``, which closes everybody's handlers: Prefect's then waits five
    seconds for its queue and never logs again.
    """
    with _importing:  # Of two threads at once, the second would put the first one's stand-in back.
        if "pymilvus" in sys.modules:
            return
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
