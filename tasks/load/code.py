"""Source code and configuration files: text as it is, and the language that it is written in."""

from __future__ import annotations

import ast

from schemas.documents import LoadedDocument, Metadata
from tasks.load.encoding import decode
from tasks.load.language import UNKNOWN
from tasks.load.normalisation import normalise, refuse_binary, title_of
from tasks.python_source import parse_python

SYNTAX_BY_EXTENSION = {
    "py": "python", "pyi": "python",
    "ts": "typescript", "tsx": "typescript", "mts": "typescript", "cts": "typescript",
    "js": "javascript", "jsx": "javascript", "mjs": "javascript", "cjs": "javascript",
    "go": "go",
    "rs": "rust",
    "java": "java",
    "kt": "kotlin",
    "scala": "scala",
    "swift": "swift",
    "c": "c", "h": "c",
    "cc": "cpp", "cpp": "cpp", "cxx": "cpp", "hh": "cpp", "hpp": "cpp", "hxx": "cpp",
    "cs": "csharp",
    "rb": "ruby",
    "php": "php",
    "sql": "sql",
    "proto": "protobuf",
    "sh": "shell", "bash": "shell", "zsh": "shell",
    "toml": "toml",
    "yaml": "yaml", "yml": "yaml",
    "json": "json",
}  # fmt: skip


def load_code(data: bytes, uri: str, syntax: str) -> LoadedDocument:
    """Load a source file whose ``syntax`` is one of SYNTAX_BY_EXTENSION's values."""
    decoded = decode(data, uri)
    refuse_binary(decoded.text, uri)
    text = normalise(decoded.text)
    title = _docstring_title(text) if syntax == "python" else None
    metadata = Metadata(type="code", title=title, syntax=syntax, language=UNKNOWN)
    return LoadedDocument(text=text, metadata=metadata, flags=decoded.flags)


def _docstring_title(source: str) -> str | None:
    """Return the first line of a Python module's docstring (PEP 257: its summary)."""
    module = parse_python(source)
    docstring = ast.get_docstring(module) if module is not None else None  # what does not parse is indexed all the same
    return title_of(docstring.strip().partition("\n")[0]) if docstring else None
