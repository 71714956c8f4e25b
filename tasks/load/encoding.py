"""Bytes to text: byte order mark, UTF-8, the document's own word, UTF-16 by its zero bytes, then detection.

UTF-8 comes before everything but the mark since text in another encoding is practically never valid UTF-8. What is
left is detected with charset-normalizer. A guess is never silent: the result carries the flag ``decoded:<name>``, and
bytes that could not be decoded are counted in the flag ``undecodable:<count>``.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

from schemas.errors import PermanentError

_MARKS = (
    # UTF-32 first: its little-endian mark begins with that of UTF-16.
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# The WHATWG Encoding Standard reads these labels as their supersets, and so do browsers.
_SUPERSETS = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "hz": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "big5": "big5hkscs",
}
_CJK = frozenset({
    "big5", "big5hkscs", "cp932", "cp949", "cp950", "euc_jis_2004", "euc_jisx0213", "euc_jp", "euc_kr", "gb18030",
    "gb2312", "gbk", "johab", "shift_jis", "shift_jis_2004", "shift_jisx0213",
})  # fmt: skip
_CJK_RUN = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]+")
_SAMPLE_BYTES = 256 * 1024
_MAX_LOSS = 0.01


@dataclass(frozen=True, slots=True)
class Decoded:
    """A text, and how it was come by (flags for LoadedDocument)."""

    text: str
    flags: tuple[str, ...] = ()


def decode(data: bytes, uri: str, declared: str | None = None) -> Decoded:
    """Decode the bytes of a text file.

    Args:
        data: the file.
        uri: for the message of an error.
        declared: the encoding that the document itself names (HTML ``meta charset``), tried before detection.

    Raises:
        PermanentError: no encoding fits, or more than 1 % of the bytes cannot be decoded.
    """
    for mark, name in _MARKS:
        if data.startswith(mark):
            return _decode_with_loss(data, name, uri, guessed=name not in ("utf-8-sig",))
    try:
        return Decoded(data.decode("utf-8"))
    except UnicodeDecodeError:
        if _is_damaged_utf8(data):
            return _decode_with_loss(data, "utf-8", uri, guessed=False)
    for candidate in (_python_name(declared), _utf16_without_mark(data)):
        if candidate is not None:
            try:
                return Decoded(data.decode(candidate), (_guess(candidate),))
            except UnicodeDecodeError:
                continue
    detected = _detect(data)
    if detected is None:
        raise PermanentError("no text encoding fits these bytes", document=uri, hint="save the file as UTF-8")
    return _decode_with_loss(data, detected, uri, guessed=True)


def _guess(name: str) -> str:
    return f"decoded:{name.replace('_', '-')}"


def _decode_with_loss(data: bytes, name: str, uri: str, *, guessed: bool) -> Decoded:
    flags = (_guess(name),) if guessed else ()
    try:
        return Decoded(data.decode(name), flags)
    except UnicodeDecodeError:
        text = data.decode(name, errors="replace")
    lost = text.count("\ufffd")
    if name.startswith("utf-8"):
        lost -= data.count("\ufffd".encode())
    if lost > _MAX_LOSS * len(data):
        raise PermanentError(
            f"{lost} of {len(data)} bytes cannot be decoded as {name}", document=uri, hint="save the file as UTF-8"
        )
    return Decoded(text, (*flags, f"undecodable:{lost}"))


def _is_damaged_utf8(data: bytes) -> bool:
    """Tell UTF-8 with a few damaged bytes from another encoding: most non-ASCII sequences are still valid in it."""
    text = data.decode("utf-8", errors="replace")
    damaged = text.count("\ufffd")
    beyond_ascii = len(text) - len(text.encode("ascii", "ignore"))
    return beyond_ascii - damaged > 2 * damaged


def _python_name(label: str | None) -> str | None:
    if label is None:
        return None
    try:
        name = codecs.lookup(label.strip()).name
    except LookupError:
        return None
    # A page that names UTF-16 in ASCII is not UTF-16; UTF-8 was tried.
    return None if name.startswith("utf") else _SUPERSETS.get(name, name)


def _utf16_without_mark(data: bytes) -> str | None:
    """Recognise UTF-16 by the zero bytes of its spaces, digits and line ends: all on one side."""
    sample = data[:_SAMPLE_BYTES]
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    if len(data) % 2 or max(even, odd) < max(1, 0.002 * len(sample)):
        return None
    if odd > 20 * even:
        return "utf-16-le"
    return "utf-16-be" if even > 20 * odd else None


def _detect(data: bytes) -> str | None:
    from charset_normalizer import from_bytes

    sample = data[:_SAMPLE_BYTES]
    matches = from_bytes(sample, enable_fallback=False, cp_exclusion=["johab"])
    best = matches.best()
    if best is not None and best.encoding in _CJK and not _reads_as_cjk(str(best)):
        matches = from_bytes(sample, enable_fallback=False, cp_exclusion=sorted(_CJK))
        best = matches.best()
    if best is None:
        return None
    # Where nothing speaks against them, these are much the likeliest on disk: encodings of a family overlap.
    preferred = "gb18030" if best.encoding in _CJK else "cp1252"
    for match in matches:
        if preferred in match.could_be_from_charset and match.chaos <= best.chaos and match.coherence >= best.coherence:
            return preferred
    return str(best.encoding)


def _reads_as_cjk(text: str) -> bool:
    """Tell Chinese, Japanese or Korean from Western words whose accented letters were taken for lone ideographs."""
    runs = [len(run) for run in _CJK_RUN.findall(text)]
    return 2 * sum(run for run in runs if run > 1) > sum(runs)
