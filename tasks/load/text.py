"""Plain text: kept as it is; blank lines divide its paragraphs."""

from __future__ import annotations

import re

from schemas.documents import LoadedDocument, Metadata
from tasks.load.encoding import decode
from tasks.load.language import detect_language
from tasks.load.normalisation import normalise, refuse_binary, title_of

_UNDERLINE = re.compile(r"\s*([=\-~*#_])\1{2,}\s*")
_MAX_TITLE = 80
_SENTENCE_ENDS = tuple(".,;:!?。，；：！？、…")


def load_text(data: bytes, uri: str) -> LoadedDocument:
    """Load a plain text file."""
    decoded = decode(data, uri)
    refuse_binary(decoded.text, uri)
    text = normalise(decoded.text)
    metadata = Metadata(type="text", title=text_title(text), language=detect_language(text))
    return LoadedDocument(text=text, metadata=metadata, flags=decoded.flags)


def text_title(text: str) -> str | None:
    """Return the first line where it is clearly a title, else None.

    Clearly: shorter than 80 characters, no sentence's end, and underlined or followed by a blank line and more text.
    """
    start = len(text) - len(text.lstrip())
    first, _, rest = text[start:].partition("\n")
    second = rest.partition("\n")[0]
    candidate = first.strip().lstrip("#").strip()  # some write Markdown under any name
    if not rest.strip() or len(candidate) >= _MAX_TITLE or not any(map(str.isalpha, candidate)):
        return None
    if _UNDERLINE.fullmatch(second):
        return title_of(candidate)
    return None if second.strip() or candidate.endswith(_SENTENCE_ENDS) else title_of(candidate)
