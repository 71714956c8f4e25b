"""Sections to parents: the passage that a reader gets around a child.

A parent is the largest subtree of the outline that fits. A larger one is opened: its own body first, then its
subtrees; a body that is too large alone is parted between children, never within one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from schemas.documents import Span
from tasks.chunk.sections import Node, Section, common_prefix
from tasks.chunk.token_index import TokenIndex


def parents_of(root: Node, index: TokenIndex, limit: int) -> Iterator[tuple[Span, int]]:
    """Yield each parent and how many consecutive children it holds, in document order.

    Args:
        root: the outline, its sections chunked.
        index: the text's tokens.
        limit: tokens (and characters, 8 per token) of a parent that has more than one child.
    """
    children = _children(root)
    while len(filled := [item for item in root.items if _children(item)]) == 1 and isinstance(filled[0], Node):
        root = filled[0]
    if _fits(children, index, limit):
        if children:
            yield _parent(children, root.breadcrumb, root.level)
        return
    body: list[Span] = []
    for item in root.items:
        if isinstance(item, Section):
            body.extend(item.children)
        else:
            yield from _part(body, root.level, index, limit)
            body = []
            yield from parents_of(item, index, limit)
    yield from _part(body, root.level, index, limit)


def _children(item: Section | Node) -> list[Span]:
    if isinstance(item, Section):
        return item.children
    return [child for inner in item.items for child in _children(inner)]


def _fits(children: Sequence[Span], index: TokenIndex, limit: int) -> bool:
    return len(children) <= 1 or index.fits(children[0].start, children[-1].end, limit)


def _parent(children: Sequence[Span], breadcrumb: tuple[str, ...], level: int) -> tuple[Span, int]:
    return Span(children[0].start, children[-1].end, breadcrumb, level), len(children)


def _part(body: list[Span], level: int, index: TokenIndex, limit: int) -> Iterator[tuple[Span, int]]:
    """Part one body: as many children as fit, the last two parents balanced."""
    first = 0
    while first < len(body):
        after = first + 1
        while after < len(body) and index.may_fit(body[first].start, body[after].end, limit):
            after += 1
        while not _fits(body[first:after], index, limit):
            after -= 1
        if after < len(body) and index.size(body[first].start, body[-1].end) <= 2 * limit:
            after = _halve(body, first, after, index, limit)
        group = body[first:after]
        breadcrumb = common_prefix([child.breadcrumb for child in group])
        yield _parent(group, breadcrumb, group[0].level if breadcrumb == group[0].breadcrumb else level)
        first = after


def _halve(body: list[Span], first: int, most: int, index: TokenIndex, limit: int) -> int:
    """Return the border up to ``most`` that parts the rest most evenly into two that fit, else ``most``."""

    def imbalance(after: int) -> int:
        left = index.size(body[first].start, body[after].start)
        return abs(left - index.size(body[after].start, body[-1].end))

    return next(
        (a for a in sorted(range(first + 1, most + 1), key=imbalance) if _fits(body[a:], index, limit)),
        most,
    )
