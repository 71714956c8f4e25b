"""A parser that has every fault a library in C can have, by the name of the file; any other file it loads well."""

from __future__ import annotations

import ctypes
import os
import signal
import time

from schemas.config import LoadConfig
from schemas.documents import LoadedDocument
from schemas.errors import PermanentError
from tasks.load.loader import load_document

PARSE = f"{__name__}:parse"
_parsed: list[str] = []


class OwnError(Exception):
    """Of a class that the other process need not know."""


def parse(data: bytes, uri: str, config: LoadConfig) -> LoadedDocument:
    """Do what the name says."""
    _parsed.append(uri)
    fault = uri.partition(".")[0]
    if fault == "segfault" or (fault == "late" and len(_parsed) > 1):
        ctypes.string_at(0)
    if fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "loop":
        while True:
            pass
    if fault == "sleep":
        time.sleep(1_000)
    if fault == "bomb":
        [bytearray(2**24) for _ in range(10**4)]
    if fault == "quit":
        os._exit(3)
    if fault == "odd":
        raise OwnError("no such glyph")
    if fault == "refused":
        raise PermanentError("is a scan", document=uri, hint="recognise its text")
    if fault == "chatter":
        os.write(1, b"MuPDF warning\n")
        os.write(2, b"MuPDF error\n")
    return load_document(data, uri, config)
