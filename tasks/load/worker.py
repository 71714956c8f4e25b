"""A process that parses documents for another one, under limits of its own: the far end of ``isolation.py``.

``python -m tasks.load.worker FD FUNCTION SECONDS MEGABYTES`` answers each request on the connection FD until that ends.
The kernel ends it when one document takes more processor time than it may, and refuses it memory beyond its share.
"""

from __future__ import annotations

import os
import pkgutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from schemas.errors import GlossatorError, PermanentError

ALMOST_ALL = 0.8
LOOK_EVERY = 1.0
"""Seconds between two looks at whether the process that asks is still there."""


def main(descriptor: int, function: str, seconds: int, megabytes: int) -> None:
    """Answer requests.

    Arguments of the function come in; ("loaded", its result), ("refused", (its error, the traceback)) or
    ("memory", None) go out.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is meant for the process that asks; its end ends this one.
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    load: Callable[..., Any] = pkgutil.resolve_name(function)
    _limit_memory(megabytes)
    connection = Connection(descriptor)
    while True:
        try:
            arguments = connection.recv()
        except EOFError:
            return
        _limit_time(seconds)
        connection.send(_answer(load, arguments, megabytes))


def _answer(load: Callable[..., Any], arguments: tuple[Any, ...], megabytes: int) -> tuple[str, Any]:
    try:
        return "loaded", load(*arguments)
    except MemoryError:
        return "memory", None
    except GlossatorError as error:
        return "refused", (error, traceback.format_exc())
    except Exception as error:  # Whatever a parser throws: it may be of a class that no other process knows.
        if _most_memory() > ALMOST_ALL * megabytes:  # Libraries tell of it in words of their own.
            return "memory", None
        what = f"the parser failed ({type(error).__name__}: {error})"
        return "refused", (PermanentError(what, hint="repair or convert the file"), traceback.format_exc())


def _most_memory() -> float:
    """Return the most memory in MB that this process has had; 0 where the system does not say.

    (``getrusage`` counts that of the process which started this one.)
    """
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return 0.0


def _limit_memory(megabytes: int) -> None:
    try:
        import resource
    except ImportError:  # Windows: the processor time is not limited either, the wall time still is.
        return
    resource.setrlimit(resource.RLIMIT_DATA, (megabytes * 2**20, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _limit_time(seconds: int) -> None:
    try:
        import resource
    except ImportError:
        return
    used = time.process_time()
    resource.setrlimit(resource.RLIMIT_CPU, (int(used) + seconds + 1, resource.RLIM_INFINITY))


def _end_with(parent: int) -> None:
    """End when the process that asks has died, however deep in a document this one is."""
    while os.getppid() == parent:
        time.sleep(LOOK_EVERY)
    os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
