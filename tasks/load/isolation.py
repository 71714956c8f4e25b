"""Loading, in a worker process where the parser could do harm (``tasks/isolation.py``)."""

from __future__ import annotations

from pydantic import TypeAdapter

from schemas.config import LoadConfig
from schemas.documents import LoadedDocument
from tasks.isolation import HARMLESS, call
from tasks.load.loader import document_type, load_document

FUNCTION = "tasks.load.loader:load_document"
_ALWAYS = frozenset({"pdf", "html"})
_WHERE_LARGE = frozenset({"markdown", "code"})
_LOADED = TypeAdapter(LoadedDocument)


def is_isolated(uri: str) -> bool:
    """Tell whether a file of this name is parsed in a worker whatever its size, so that several can be at a time."""
    return document_type(uri) in _ALWAYS


def load(data: bytes, uri: str, config: LoadConfig) -> LoadedDocument:
    """Load one file, in a worker where its type and size ask for one. Arguments are those of ``load_document``.

    Raises:
        PermanentError: as ``load_document``; or the parser crashed, or took more time or memory than it may.
        GlossatorError: it was killed by somebody else.
        TransientError: no worker can start.
    """
    large = len(data) > HARMLESS and document_type(uri) in _WHERE_LARGE
    if len(data) > config.max_bytes or not (large or is_isolated(uri)):
        return load_document(data, uri, config)
    return call(FUNCTION, (data, uri, config), _LOADED, uri, config)
