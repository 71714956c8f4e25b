"""What every loaded text has in common, whatever file it came from.

Line ends are ``\\n``; there is no NUL, no lone surrogate, and no byte order mark at the start. Unicode normalisation
(NFC) is *not* applied: a quoted passage must look as its author wrote it.
"""

from __future__ import annotations

import datetime as dt
import re

from schemas.errors import PermanentError

_LINE_END = re.compile(r"\r\n?")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
# Control characters that no text editor writes; tab, line feed, form feed, return and escape (logs) are left out.
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_MAX_CONTROL_SHARE = 0.01
_MAX_TITLE = 300


def normalise(text: str) -> str:
    """Return ``text`` with ``\\n`` line ends, without NUL, lone surrogates (become U+FFFD) and leading U+FEFF."""
    if "\r" in text:
        text = _LINE_END.sub("\n", text)
    if "\x00" in text:
        text = text.replace("\x00", "")
    if not text.isascii():
        text = _SURROGATE.sub("\ufffd", text.lstrip("\ufeff"))
    return text


def refuse_binary(text: str, uri: str) -> None:
    """Raise PermanentError where more than 1 % of the characters are control characters: no text looks so."""
    controls = len(_CONTROL.findall(text))
    if controls > _MAX_CONTROL_SHARE * len(text):
        raise PermanentError(
            "the file's name says text, but its bytes are binary",
            document=uri,
            hint="give the file the extension of its real type, or add it to load.ignore",
        )


def title_of(candidate: object) -> str | None:
    """Return a title on one line, or None where there is nothing to read in it."""
    if not isinstance(candidate, str):
        return None
    title = " ".join(normalise(candidate).split())
    return title[:_MAX_TITLE].rstrip() or None


def date_of(candidate: object) -> dt.date | None:
    """Return the date that begins an ISO 8601 text ("2025-03-04", "2025-03-04T10:00:00Z"), else None.

    Other notations are left alone: 03/04/2025 is a different day in different countries.
    """
    if not isinstance(candidate, str):
        return None
    match = re.match(r"\s*(\d{4})-(\d{1,2})-(\d{1,2})(?!\d)", candidate)
    if match is None:
        return None
    try:
        return dt.date(int(match[1]), int(match[2]), int(match[3]))
    except ValueError:
        return None


def language_code(candidate: object) -> str | None:
    """Return the ISO 639 code at the start of a BCP 47 tag ("zh-Hans-CN" -> "zh"), else None."""
    if not isinstance(candidate, str):
        return None
    match = re.fullmatch(r"\s*([A-Za-z]{2,3})(?:[-_][A-Za-z0-9-_.@]*)?\s*", candidate)
    return match[1].lower() if match else None
