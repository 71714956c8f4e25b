"""A process that parses documents for another one, under limits of its own: the far end of ``isolation.py``.

``python -m tasks.worker FD FUNCTION SECONDS MEGABYTES`` says that it is ready, and then answers each request on
the connection FD until that ends. Requests are pickled, since they come from the process that started it; answers are
JSON, since hostile bytes have been parsed where they come from.

The kernel ends it when a document takes more processor time than it may, or ``PATIENCE`` times that of the clock, and
refuses it memory beyond its share. So it outlives the process that asks by the time of one document at most, and by a
second where the parser lets other threads run.
"""

from __future__ import annotations

import json
import os
import pkgutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from pydantic_core import to_json

from schemas.errors import GlossatorError, PermanentError
from tasks.child import await_end_of
from tasks.memory import is_used_up

try:
    import resource
except ImportError:  # Windows: the process that asks still limits the time of the clock.
    resource = None  # type: ignore[assignment]

LOOK_EVERY = 1.0
"""Seconds between two looks at whether the process that asks is still there."""
PATIENCE = 4
"""Seconds of the clock for each second of processor time that a document may take: others need the processor too."""
OUT_OF_MEMORY = 77
"""Exit code where there was no memory left to tell of it."""
READY = b"ready"


def main(descriptor: int, function: str, seconds: int, megabytes: int) -> None:
    """Answer requests: arguments come in; the JSON of the result or of an object with ``refused`` goes out."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is meant for the process that asks; its end ends this one.
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    parse: Callable[..., Any] = pkgutil.resolve_name(function)
    connection = Connection(descriptor)
    _limit_memory(megabytes)
    connection.send_bytes(READY)
    while True:
        try:
            arguments = connection.recv()
            _limit_time(seconds)
            connection.send_bytes(_answer(parse, arguments))
            signal.setitimer(signal.ITIMER_REAL, 0)
        except EOFError:
            return
        except MemoryError:
            os._exit(OUT_OF_MEMORY)


def _answer(parse: Callable[..., Any], arguments: tuple[Any, ...]) -> bytes:
    try:
        return to_json(parse(*arguments))
    except MemoryError:
        raise
    except GlossatorError as error:
        return _refused(error)
    except Exception as error:  # Whatever a parser throws: it may be of a class that no other process knows.
        if is_used_up():  # Libraries tell of it in words of their own.
            raise MemoryError from error
        what = f"the parser failed ({type(error).__name__}: {error})"
        return _refused(PermanentError(what, hint="repair or convert the file"))


def _refused(error: GlossatorError) -> bytes:
    """Return an answer, with the traceback of the exception that is being handled."""
    told = {"what": error.what, "document": error.document, "hint": error.hint}
    return json.dumps({"refused": told, "traceback": traceback.format_exc()}).encode()


def _limit_memory(megabytes: int) -> None:
    if resource is not None:
        _lower(resource.RLIMIT_DATA, megabytes * 2**20)
        _lower(resource.RLIMIT_CORE, 0)


def _limit_time(seconds: int) -> None:
    signal.setitimer(signal.ITIMER_REAL, PATIENCE * seconds)
    if resource is not None:
        _lower(resource.RLIMIT_CPU, int(time.process_time()) + seconds + 1)


def _lower(which: int, wanted: int) -> None:
    """Set a limit that may be raised again, below the one that somebody else has set."""
    _, hard = resource.getrlimit(which)
    resource.setrlimit(which, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))


def _end_with(parent: int) -> None:
    await_end_of(parent, LOOK_EVERY)
    os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
