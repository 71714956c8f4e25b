"""Text to parents and children (``schemas.documents.ChunkedDocument``).

    text -> blocks -> sections -> children -> parents

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
from tasks.chunk.blocks import markdown_blocks, paragraph_blocks
from tasks.chunk.children import children_of
from tasks.chunk.code import definitions, units
from tasks.chunk.parents import parents_of
from tasks.chunk.sections import Node, code_outline, outline
from tasks.chunk.token_index import TokenIndex
from tasks.embed.tokenizer import Tokenizer

CHUNKER_VERSION = 1
"""Raised whenever the same text may give other chunks."""


def chunk_document(
    text: str, type_: DocumentType, syntax: str | None, tokenizer: Tokenizer, config: ChunkConfig
) -> ChunkedDocument:
    """Part a document's normalised text.

    Args:
        text: offsets count its code points.
        type_: how to read it: ``code`` by definitions, ``text`` by blank lines, all others as Markdown.
        syntax: the language of code.
        tokenizer: of the embedding model; sizes are its tokens, special ones left out.
        config: sizes.

    Returns:
        Without parents and children when there is only white space.
    """
    if not text.strip():
        return ChunkedDocument(parents=(), children=(), parent_of=())
    index = TokenIndex(text, tokenizer)
    root = _outline(index, type_, syntax, config)
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
        definitions=definitions(text, syntax) if type_ == "code" else (),
    )


def _outline(index: TokenIndex, type_: DocumentType, syntax: str | None, config: ChunkConfig) -> Node:
    text = index.text
    match type_:
        case "code":
            return code_outline(units(text, syntax), index, config.child_tokens)
        case "text":
            return outline(paragraph_blocks(text), len(text))
        case "markdown" | "html" | "pdf":
            return outline(markdown_blocks(text), len(text))
