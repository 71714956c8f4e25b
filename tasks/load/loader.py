"""The one door of this folder: bytes of a file to a LoadedDocument."""

from __future__ import annotations

from pathlib import PurePosixPath

from schemas.config import LoadConfig
from schemas.documents import DocumentType, LoadedDocument
from schemas.errors import PermanentError
from tasks.load.code import SYNTAX_BY_EXTENSION, load_code

LOADER_VERSION = 3
"""Raised whenever the same bytes give another text, metadata or pages than before, or the table another column."""

_TYPES: dict[str, DocumentType] = {
    **dict.fromkeys(("md", "markdown", "mdown", "mkd", "mdx"), "markdown"),
    **dict.fromkeys(("html", "htm", "xhtml"), "html"),
    **dict.fromkeys(("txt", "text", "rst", "adoc", "asciidoc", "org"), "text"),
    **dict.fromkeys(SYNTAX_BY_EXTENSION, "code"),
    "pdf": "pdf",
}
_NAMES_WITHOUT_EXTENSION = frozenset({"readme", "license", "licence", "changelog", "contributing", "notice", "authors"})


def _extension(uri: str) -> str:
    return PurePosixPath(uri).suffix.removeprefix(".").lower()


def document_type(uri: str) -> DocumentType | None:
    """Return how a file of this name is loaded; None where it is not supported, to be skipped and counted."""
    if PurePosixPath(uri).name.lower() in _NAMES_WITHOUT_EXTENSION:
        return "text"
    return _TYPES.get(_extension(uri))


def load_document(data: bytes, uri: str, config: LoadConfig) -> LoadedDocument:
    """Load one file.

    Args:
        data: its bytes.
        uri: its place in the source; its extension chooses the loader, nothing else of it enters the result.

    Raises:
        PermanentError: these bytes can never work: too large, too many pages, password-protected, a scan, broken
            beyond repair, binary under a text's name, or of a type that is not supported.
    """
    if len(data) > config.max_bytes:
        raise PermanentError(
            f"{len(data):,} bytes are more than load.max_bytes = {config.max_bytes:,}",
            document=uri,
            hint="divide the file, or raise load.max_bytes",
        )
    match document_type(uri):
        case "markdown":
            from tasks.load.markdown import load_markdown

            return load_markdown(data, uri)
        case "html":
            from tasks.load.html import load_html

            return load_html(data, uri)
        case "pdf":
            from tasks.load.pdf import load_pdf

            return load_pdf(data, uri, config.max_pages)
        case "text":
            from tasks.load.text import load_text

            return load_text(data, uri)
        case "code":
            return load_code(data, uri, SYNTAX_BY_EXTENSION[_extension(uri)])
        case None:
            raise PermanentError(
                "files of this type are not supported",
                document=uri,
                hint="convert it to PDF, Markdown, HTML or plain text, or add it to load.ignore",
            )
