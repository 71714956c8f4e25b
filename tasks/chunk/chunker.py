"""Text to parents and children (``schemas.documents.ChunkedDocument``).

    text -> structure (blocks or units) -> sections -> children -> parents

What holds for every text, type and size:

- every character that is not white space lies in exactly one child; ``text[start:end]`` is the child, neither
  empty nor with white space at its ends;
- a child has ``child_tokens`` tokens at most, counted by the model's tokenizer on the child alone, and 8 times as many
  characters;
- every child lies in exactly one parent; a parent of more than one child has ``parent_tokens`` at most;
- children of a section depend on that section alone.
"""

from __future__ import annotations

from schemas.config import ChunkConfig
from schemas.documents import ChunkedDocument, DocumentType, Span
from tasks.chunk.children import children_of
from tasks.chunk.parents import parents_of
from tasks.chunk.sections import code_outline, outline
from tasks.chunk.structure import Structure, read_structure
from tasks.chunk.token_index import TokenIndex
from tasks.embed.tokenizer import Tokenizer

CHUNKER_VERSION = 1
"""Raised whenever the same text may give other chunks."""


def chunk_document(
    text: str,
    type_: DocumentType,
    syntax: str | None,
    tokenizer: Tokenizer,
    config: ChunkConfig,
    structure: Structure | None = None,
) -> ChunkedDocument:
    """Part a document's normalised text.

    Args:
        text: offsets count its code points.
        type_: how to read it: ``code`` by definitions, ``text`` by blank lines, all others as Markdown.
        syntax: the language of code.
        tokenizer: of the embedding model; sizes are its tokens, special ones left out.
        config: sizes.
        structure: of the text, where it has been read already.

    Returns:
        Without parents and children when there is only white space.
    """
    if not text.strip():
        return ChunkedDocument(parents=(), children=(), parent_of=())
    index = TokenIndex(text, tokenizer)
    structure = structure or read_structure(text, type_, syntax)
    if type_ == "code":
        root = code_outline(structure.units, index, config.child_tokens)
    else:
        root = outline(structure.blocks, len(text))
    children: list[Span] = []
    for section in root.sections():
        section.children.extend(children_of(section, index, config.child_tokens))
        children.extend(section.children)
    parents: list[Span] = []
    parent_of: list[int] = []
    for parent, count in parents_of(root, index, config.parent_tokens):
        parent_of.extend([len(parents)] * count)
        parents.append(parent)
    return ChunkedDocument(
        parents=tuple(parents),
        children=tuple(children),
        parent_of=tuple(parent_of),
        definitions=structure.definitions,
    )
