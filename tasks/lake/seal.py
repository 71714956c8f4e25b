"""Sealed files: they carry the SHA-256 of all their other bytes.

Parquet's own checksums leave page headers and the footer out, and a bit that flips there can change a name or a value
without an error. The seal lies between the last page and the footer, where the format allows any bytes (offsets
count from the file's start, the footer is found from its end): every Parquet reader opens a sealed file.

A small JSON record carries its checksum as its last member: a bit that flips in a name or a number leaves good JSON
that says something else.
"""

from __future__ import annotations

import hashlib
import re
import struct
from pathlib import Path

from tasks.lake.storage import reading

_SEAL = hashlib.sha256().digest_size
_TAIL = 8
"""Length of the footer (4 bytes) and the magic (4 bytes)."""
_RECORD_SEAL = re.compile(rb',\n "sha256": "([0-9a-f]{64})"\n\}')
_ONCE_SEALED = re.compile(rb'"sha256": "|[0-9a-f]{64}')
"""A bit that flips in a seal leaves the one or the other of it."""
_RECORD_SEAL_BYTES = len(',\n "sha256": ""\n}') + 64


def seal(data: bytes) -> bytes:
    """Return a Parquet file with its seal."""
    border = len(data) - _TAIL - _footer(memoryview(data))
    pages, footer = data[:border], data[border:]
    return b"".join((pages, hashlib.sha256(pages + footer).digest(), footer))


def check_seal(data: memoryview) -> None:
    """Check a sealed file.

    Raises:
        ValueError: it is cut short, changed, or was never sealed.
    """
    border = len(data) - _TAIL - _footer(data) if len(data) >= _TAIL else 0
    if border < _SEAL:
        raise ValueError("cut short")
    digest = hashlib.sha256(data[: border - _SEAL])
    digest.update(data[border:])
    if digest.digest() != bytes(data[border - _SEAL : border]):
        raise ValueError("its bytes differ from its checksum")


def _footer(data: memoryview) -> int:
    (length,) = struct.unpack("<I", data[-_TAIL:-4])
    return int(length)


def seal_record(data: bytes) -> bytes:
    """Return a JSON object, printed with an indent of 1, with the checksum of its bytes as its last member.

    One that has no member stays as it is.
    """
    if not data.endswith(b"\n}"):
        return data
    return data[:-2] + f',\n "sha256": "{hashlib.sha256(data).hexdigest()}"\n}}'.encode()


def open_record(data: bytes) -> bytes:
    """Return a JSON object as it was before it was sealed; one without a seal, of an earlier version, as it is.

    Raises:
        ValueError: it is not what its checksum says.
    """
    tail = len(data) - _RECORD_SEAL_BYTES
    found = _RECORD_SEAL.fullmatch(data, max(tail, 0))
    if found is None:
        if _ONCE_SEALED.search(data, max(tail, 0)):
            raise ValueError("its checksum is damaged")
        return data
    body = data[:tail] + b"\n}"
    if hashlib.sha256(body).hexdigest().encode() != found[1]:
        raise ValueError("its bytes differ from its checksum")
    return body


def file_digest(file: Path) -> str:
    """Return the SHA-256 of a file's bytes; "" where it is gone.

    Raises:
        TransientError, GlossatorError: it cannot be read now, or not by us.
    """
    try:
        with reading(file):
            return hashlib.sha256(file.read_bytes()).hexdigest()
    except FileNotFoundError:
        return ""
