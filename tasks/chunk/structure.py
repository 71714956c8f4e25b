"""What parsers say of a document: its blocks or units, before anything is counted.

All that could do harm to the process that chunks is here: a large text is parsed in a worker (``tasks/isolation.py``).
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import TypeAdapter

from schemas.config import LoadConfig
from schemas.documents import DocumentType
from tasks.chunk.blocks import Block, markdown_blocks, paragraph_blocks
from tasks.chunk.code import Unit, read_code
from tasks.isolation import HARMLESS, call


@dataclass(frozen=True, slots=True)
class Structure:
    """The parts of a text in order: units of code, blocks of all else.

    Attributes:
        definitions: names that code defines.
    """

    blocks: tuple[Block, ...] = ()
    units: tuple[Unit, ...] = ()
    definitions: tuple[str, ...] = ()


FUNCTION = f"{__name__}:read_structure"
_STRUCTURE = TypeAdapter(Structure)


def read_structure(text: str, type_: DocumentType, syntax: str | None) -> Structure:
    """Parse a text. Arguments are those of ``chunk_document``."""
    match type_:
        case "code":
            units, definitions = read_code(text, syntax)
            return Structure(units=units, definitions=definitions)
        case "text":
            return Structure(blocks=tuple(paragraph_blocks(text)))
        case "markdown" | "html" | "pdf":
            return Structure(blocks=tuple(markdown_blocks(text)))


def read_structure_within(
    limits: LoadConfig, text: str, type_: DocumentType, syntax: str | None, uri: str
) -> Structure:
    """Parse a text, in a worker where its type and size ask for one.

    Raises:
        PermanentError: the parser crashed, or took more time or memory than it may.
        GlossatorError: it was killed by somebody else.
        TransientError: no worker can start.
    """
    if type_ == "text" or len(text) <= HARMLESS:
        return read_structure(text, type_, syntax)
    return call(FUNCTION, (text, type_, syntax), _STRUCTURE, uri, limits)
