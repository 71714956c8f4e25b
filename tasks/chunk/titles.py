"""A heading's words without its markup, as they stand in a breadcrumb."""

from __future__ import annotations

import html
import re

MAX_TITLE = 200
"""Code points. A "heading" of a damaged file can be a megabyte, and each of its chunks would carry it."""

_ATTRIBUTES = re.compile(r"\s*\{\s*:?\s*[#.][^{}]*\}\s*$")
_CODE_SPAN = re.compile(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
_LINK = re.compile(r"!?\[([^\[\]]*)\](?:\([^()]*(?:\([^()]*\)[^()]*)*\)|\[[^\[\]]*\])")
_AUTOLINK = re.compile(r"<((?:https?|mailto):[^<>\s]*)>")
_TAG = re.compile(r"</?[A-Za-z][^<>]*>|<!--.*?-->", re.DOTALL)
_STARS = re.compile(r"(\*{1,3}|~~)(?=\S)(.+?)(?<=\S)\1", re.DOTALL)
_UNDERSCORES = re.compile(r"(?<!\w)(_{1,3})(?=\S)(.+?)(?<=\S)\1(?!\w)", re.DOTALL)
_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")
_PLACEHOLDER = re.compile("\ue000(\\d+)\ue001")


def plain_title(source: str) -> str:
    """Return a heading's text: no emphasis, backticks, links, tags or ``{#anchor}``; one line.

    Args:
        source: the heading's inline source, without its ``#`` marks or underline.
    """
    kept: list[str] = []

    def keep(literal: str) -> str:
        kept.append(literal)
        return f"\ue000{len(kept) - 1}\ue001"

    title = source[: 4 * MAX_TITLE].replace("\ue000", "").replace("\ue001", "")
    title = _ATTRIBUTES.sub("", title)
    title = _CODE_SPAN.sub(lambda match: keep(match[2].strip()), title)
    title = _ESCAPE.sub(lambda match: keep(match[1]), title)
    for _ in range(2):  # An image may be a link's text.
        title = _LINK.sub(r"\1", title)
    title = _AUTOLINK.sub(r"\1", title)
    title = _TAG.sub("", title)
    for pattern in (_STARS, _UNDERSCORES):
        for _ in range(2):  # Strong within emphasis.
            title = pattern.sub(r"\2", title)
    title = html.unescape(title)
    title = _PLACEHOLDER.sub(lambda match: kept[int(match[1])], title)
    return shorten(" ".join(title.split()))


def shorten(title: str, most: int = MAX_TITLE) -> str:
    """Cut a title of more than ``most`` code points at a word, with an ellipsis."""
    if len(title) <= most:
        return title
    head = title[: most - 1]
    return (head.rpartition(" ")[0] or head).rstrip() + "…"
