"""The outline of a text: a tree of headings (for code: of definitions), each with its own body.

A *section* is the smallest range whose chunks depend on nothing outside it: children are packed inside one section,
so that an edit changes no chunk of another. Sections tile the text. A heading stands at the start of its own
section; one without a body is carried to the section that follows, so that no chunk is a heading alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from schemas.documents import Span
from tasks.chunk.blocks import Block
from tasks.chunk.code import Unit
from tasks.chunk.token_index import TokenIndex


@dataclass(slots=True)
class Section:
    """A range that is chunked by itself.

    Attributes:
        start, end: code points; ``end`` is where the next section starts.
        breadcrumb, level: as in ``schemas.documents.Span``.
        blocks: what it consists of, headings first.
        children: filled by chunking.
    """

    start: int
    end: int
    breadcrumb: tuple[str, ...]
    level: int
    blocks: list[Block]
    children: list[Span] = field(default_factory=list)


@dataclass(slots=True)
class Node:
    """A heading or definition with everything below it, in document order."""

    breadcrumb: tuple[str, ...] = ()
    level: int = 0
    items: list[Section | Node] = field(default_factory=list)

    def sections(self) -> Iterator[Section]:
        """Yield all sections below, in document order."""
        for item in self.items:
            if isinstance(item, Section):
                yield item
            else:
                yield from item.sections()


def common_prefix(breadcrumbs: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the headings that all of ``breadcrumbs`` share, outermost first."""
    first, last = min(breadcrumbs), max(breadcrumbs)
    shared = 0
    while shared < min(len(first), len(last)) and first[shared] == last[shared]:
        shared += 1
    return first[:shared]


def outline(blocks: Iterable[Block], length: int) -> Node:
    """Arrange blocks under their headings.

    Args:
        blocks: in document order.
        length: of the text, in code points.
    """
    root = Node()
    path = [root]
    last: Section | None = None
    start, pending = 0, list[Block]()

    def close(end: int) -> Section:
        section = Section(start, end, path[-1].breadcrumb, path[-1].level, pending)
        path[-1].items.append(section)
        return section

    for block in blocks:
        if block.heading:
            if _has_body(pending):
                last = close(block.start)
                start, pending = block.start, []
            while path[-1].level >= block.heading:
                path.pop()
            titles = (block.title,) if block.title else ()
            node = Node(path[-1].breadcrumb + titles, block.heading)
            path[-1].items.append(node)
            path.append(node)
        pending.append(block)
    if _has_body(pending):
        close(length)
    elif last is not None:  # Headings at the very end have nothing to be carried to.
        last.blocks.extend(pending)
        last.end = length
    elif pending:
        root.items.append(Section(0, length, (), 0, pending))
    return root


def _has_body(blocks: list[Block]) -> bool:
    # Looked at from the end, where the body is: a run of a million empty headings must not be walked each time.
    for block in reversed(blocks):
        if block.heading:
            return False
        if not block.mark:
            return True
    return False


def code_outline(units: Sequence[Unit], index: TokenIndex, limit: int) -> Node:
    """Arrange a code's units: small neighbours share a section, large ones are opened.

    A unit of more than ``limit`` tokens that has parts (a class) becomes a node; one without (a long function) a
    section by itself; runs of smaller units of one scope fill sections of ``limit`` tokens at most, whose breadcrumb
    is what they share.
    """
    return _scope(units, Node(), index, limit)


def _scope(units: Sequence[Unit], node: Node, index: TokenIndex, limit: int) -> Node:
    run: list[Unit] = []

    def breadcrumb_of(unit: Unit) -> tuple[str, ...]:
        return (*node.breadcrumb, unit.name) if unit.name else node.breadcrumb

    def flush() -> None:
        if run:
            breadcrumb = common_prefix([breadcrumb_of(unit) for unit in run])
            blocks = [Block(unit.start, unit.end, "code") for unit in run]
            node.items.append(Section(run[0].start, run[-1].end, breadcrumb, len(breadcrumb), blocks))
            run.clear()

    for unit in units:
        if unit.parts and index.size(unit.start, unit.end) > limit:
            flush()
            breadcrumb = breadcrumb_of(unit)
            node.items.append(_scope(unit.parts, Node(breadcrumb, len(breadcrumb)), index, limit))
            continue
        if run and index.size(run[0].start, unit.end) > limit:
            flush()
        run.append(unit)
    flush()
    return node
