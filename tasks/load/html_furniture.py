"""What on an HTML page is furniture (navigation, banners, footers) and what is content.

trafilatura (Barbaresi, 2021) says which words are content. It was made for articles: its own output drops blank lines
of code, quotes' marks and, on short pages, whole tables and headings. So its words only choose the *region* of the
page, and the region is then rendered from the original tree, less the furniture inside it. A page where it finds
nearly nothing is rendered whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lxml.html import HtmlElement

INVISIBLE = frozenset({
    "script", "style", "noscript", "template", "head", "iframe", "object", "embed", "svg", "canvas", "video", "audio",
    "map", "button", "select", "input", "textarea", "datalist", "progress", "meter", "dialog", "link", "meta",
})  # fmt: skip
_FURNITURE_TAGS = frozenset({"nav", "footer", "menu"})
_FURNITURE_ROLES = frozenset({
    "navigation", "banner", "contentinfo", "search", "dialog", "alertdialog", "menu", "menubar", "toolbar",
})  # fmt: skip
_FURNITURE_NAMES = re.compile(
    r"(?:^|[-_\s])(?:cookies?|consent|gdpr|breadcrumbs?|sidebar|side-bar|sidenav|navbar|nav|navigation|menu|toc"
    r"|table-of-contents|footer|site-?header|masthead|topbar|pagination|pager|share|sharing|social|newsletter|advert"
    r"|ads|skip-?link|skip-?to-?content|edit-?(?:this-?)?page|feedback|related|prev-?next|linenos?|line-?numbers?"
    r"|headerlink|mw-editsection|noprint)(?:$|[-_\s])",
    re.IGNORECASE,
)
_BLOCKS = frozenset({
    "p", "li", "dt", "dd", "td", "th", "caption", "pre", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote", "div",
    "figcaption", "summary",
})  # fmt: skip
_CONTAINERS = frozenset({"body", "main", "article", "section", "div", "form", "center", "font", "span"})
_MIN_SHARE = 0.25
_REGION_SHARE = 0.95
_LINK_DENSITY = 0.6
_NEAR = 20_000
"""Characters behind the last find in which the next one is looked for first."""
_NOT_WORD = re.compile(r"[\W_]+")


@dataclass(frozen=True, slots=True)
class Content:
    """Where the content is.

    Attributes:
        region: the element that holds it.
        heading: a level-1 heading that names the page but stands outside the region.
        furniture: elements inside the region that are none of it.
        whole_body: nothing was singled out; ``region`` is the body.
    """

    region: HtmlElement
    heading: HtmlElement | None
    furniture: frozenset[HtmlElement]
    whole_body: bool


def find_content(root: HtmlElement, title: str | None) -> Content:
    """Find the content of a parsed page (``title``: what the page states as its title)."""
    body = root.find("body")
    if body is None:
        body = root
    plain = _furniture(body, body, None)
    extracted = _extracted_words(root)
    if len(extracted) < _MIN_SHARE * len(_words(body, plain)) or not extracted:
        return Content(body, None, plain, whole_body=True)
    words = _Extracted(extracted)
    region = _region(body, words)
    heading = None
    if title and region.find(".//h1") is None:
        named = (h1 for h1 in body.iter("h1") if _words(h1) and _words(h1) in _squash(title))
        heading = next(named, None)
    return Content(region, heading, _furniture(body, region, words), whole_body=False)


class _Extracted:
    """The words that trafilatura takes for content, letters and digits only.

    Elements are asked for in the order of the page, so that each is looked for where the last one was found before
    anywhere else: a search from the beginning each time would take quadratic time on long pages.
    """

    def __init__(self, words: str) -> None:
        self._words = words
        self._at = 0

    def hold(self, text: str) -> bool:
        """Tell whether ``text`` is among the words."""
        at = self._words.find(text, self._at, self._at + len(text) + _NEAR)
        if at < 0:
            at = self._words.find(text)
        if at >= 0:
            self._at = at
        return at >= 0


def _extracted_words(root: HtmlElement) -> str:
    """Return all letters and digits that trafilatura takes for content."""
    from lxml import html
    from trafilatura import bare_extraction

    document = bare_extraction(
        html.fromstring(html.tostring(root)),  # it changes the tree that it is given
        with_metadata=False,
        include_comments=False,
        include_tables=True,
        favor_recall=True,
    )
    return "" if document is None or document.text is None else _squash(document.text)


def _squash(text: str) -> str:
    return _NOT_WORD.sub("", text).lower()


def visible_text(element: HtmlElement, without: frozenset[HtmlElement] = frozenset()) -> Iterator[str]:
    """Yield the text below ``element`` that a reader sees, piece by piece."""
    stack: list[HtmlElement | str] = [element]
    while stack:
        node = stack.pop()
        if isinstance(node, str):
            yield node
            continue
        for child in reversed(node):
            if child.tail:
                stack.append(child.tail)
            if isinstance(child.tag, str) and not is_invisible(child) and child not in without:
                stack.append(child)
        if node.text:
            yield node.text


def _words(element: HtmlElement, without: frozenset[HtmlElement] = frozenset()) -> str:
    return _squash("".join(visible_text(element, without)))


def is_invisible(element: HtmlElement) -> bool:
    """Tell whether a browser shows nothing of an element."""
    if element.tag in INVISIBLE or element.get("hidden") is not None:
        return True
    style = element.get("style")
    return style is not None and re.search(r"display\s*:\s*none|visibility\s*:\s*hidden", style) is not None


def _region(body: HtmlElement, words: _Extracted) -> HtmlElement:
    """Return the deepest container that holds nearly all of the extracted words."""
    found: dict[HtmlElement, int] = {}
    for block in body.iter(*_BLOCKS):
        own = _squash("".join([block.text or "", *(child.tail or "" for child in block)]))
        inline = _squash("".join("".join(child.itertext()) for child in block if child.tag not in _BLOCKS))
        text = own + inline
        if text and (words.hold(text) or (own and words.hold(own))):
            element: HtmlElement | None = block
            while element is not None:
                found[element] = found.get(element, 0) + len(text)
                element = element.getparent()
    region = body
    while True:
        inner = [child for child in region if found.get(child, 0) >= _REGION_SHARE * max(1, found.get(body, 0))]
        if not inner or inner[0].tag not in _CONTAINERS:
            return region
        region = inner[0]


def _furniture(body: HtmlElement, region: HtmlElement, words: _Extracted | None) -> frozenset[HtmlElement]:
    """Return the elements inside ``region`` that are furniture: by tag, role or name, or links that nobody extracted.

    A name alone condemns nothing that holds most of the page: sites call their main column "has-sidebar".
    """
    total = max(1, len(_words(region)))
    furniture: set[HtmlElement] = set()
    for element in region.iter():
        if element is region or not isinstance(element.tag, str) or element.getparent() in furniture:
            if isinstance(element.tag, str) and element.getparent() in furniture:
                furniture.add(element)
            continue
        if element.tag in ("html", "body", "main", "article") or re.fullmatch(r"h[1-6]|pre|code", element.tag):
            continue
        named = (
            element.tag in _FURNITURE_TAGS
            or element.get("role", "").lower() in _FURNITURE_ROLES
            or (element.tag == "header" and element.getparent() is body)
        )
        suspicious = named or _FURNITURE_NAMES.search(f"{element.get('class', '')} {element.get('id', '')}") is not None
        if not suspicious and not (words and element.tag in ("ul", "ol", "div", "section", "aside", "p", "table")):
            continue
        text = _words(element)
        if (suspicious and len(text) < 0.5 * total) or (
            words and not words.hold(text) and _is_links(element, text, words)
        ):
            furniture.add(element)
    return frozenset(furniture)


def _is_links(element: HtmlElement, text: str, words: _Extracted) -> bool:
    """Tell whether an element is mostly links, none of them among the extracted words."""
    links = [_words(link) for link in element.iter("a")]
    return sum(map(len, links)) >= _LINK_DENSITY * max(1, len(text)) and not any(
        len(link) > 3 and words.hold(link) for link in links
    )
