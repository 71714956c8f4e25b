"""Sealed Parquet: a file that carries the SHA-256 of all its other bytes.

Parquet's own checksums leave page headers and the footer out, and a bit that flips there can change a name or a value
without an error. The seal lies between the last page and the footer, where the format allows any bytes (offsets
count from the file's start, the footer is found from its end): every Parquet reader opens a sealed file.
"""

from __future__ import annotations

import hashlib
import struct

_SEAL = hashlib.sha256().digest_size
_TAIL = 8
"""Length of the footer (4 bytes) and the magic (4 bytes)."""


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
