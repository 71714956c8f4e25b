"""YAML front matter: what a Markdown file states about itself between two ``---`` lines at its top.

It never stays in the text, where its closing ``---`` would turn its last line into a heading. Front matter that is
not valid YAML is kept as words, fenced as a code block for the same reason, and flagged.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass

import yaml

from schemas.errors import PermanentError
from tasks.load.normalisation import date_of, language_code, title_of

INVALID = "front-matter-invalid"

_BLOCK = re.compile(r"---[ \t]*\n(?P<yaml>.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.MULTILINE | re.DOTALL)
_OPEN = re.compile(r"\s*---[ \t]*\n(?P<yaml>(?:.*\S.*(?:\n|\Z))*)")
"""What may have been meant as front matter: it begins too late, or never ends. Its first paragraph."""
_STATED = re.compile(r"(?:^|[{,?])\s*[\"']?groups[\"']?\s*:", re.MULTILINE)
_WORD = re.compile(r"\bgroups\b")
_MAX_CHARACTERS = 64 * 1024


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """The statements that the index uses; the others are dropped.

    Attributes:
        body: the text after the front matter.
        groups: None where the document says nothing of access; an empty tuple where it names nobody.
    """

    body: str
    title: str | None = None
    language: str | None = None
    tags: tuple[str, ...] = ()
    date: dt.date | None = None
    groups: tuple[str, ...] | None = None
    flags: tuple[str, ...] = ()


def split_front_matter(text: str, uri: str) -> FrontMatter:
    """Part a normalised Markdown text from its front matter.

    Raises:
        PermanentError: the front matter names access groups in a way that cannot be read. Guessing would show the
            document to the wrong people.
    """
    match = _BLOCK.match(text)
    if match is None or len(match["yaml"]) > _MAX_CHARACTERS:
        meant = match or _OPEN.match(text)
        if meant is not None and _STATED.search(meant["yaml"]):
            raise _unreadable_access(uri)
        return FrontMatter(body=text)
    try:
        # BaseLoader builds nothing but text, lists and mappings: `title: 2024` and `title: Yes` stay what they say.
        statements = yaml.load(match["yaml"], Loader=yaml.BaseLoader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        if _WORD.search(match["yaml"]):
            raise _unreadable_access(uri) from error
        fence = "`" * max(3, 1 + max(map(len, re.findall(r"`+", match["yaml"])), default=0))
        return FrontMatter(body=f"{fence}yaml\n{match['yaml']}{fence}\n{text[match.end() :]}", flags=(INVALID,))
    if statements is None or statements == "":
        return FrontMatter(body=text[match.end() :])
    if not isinstance(statements, dict):
        # Two thematic breaks around prose.
        return FrontMatter(body=text)
    return FrontMatter(
        body=text[match.end() :],
        title=title_of(statements.get("title")),
        language=language_code(statements.get("language", statements.get("lang"))),
        tags=_labels(statements.get("tags")) or (),
        date=date_of(statements.get("date")),
        groups=_groups(statements, uri),
    )


def _labels(value: object) -> tuple[str, ...] | None:
    """Read a list of labels, or a text with commas; None where it is neither. Order and copies do not count."""
    if value is None:
        return ()
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, list) or not all(isinstance(label, str) for label in value):
        return None
    return tuple(sorted({" ".join(label.split()) for label in value} - {""}))


def _groups(statements: dict[object, object], uri: str) -> tuple[str, ...] | None:
    if "groups" not in statements:
        if "<<" in statements and _WORD.search(str(statements["<<"])):  # YAML's merge, which is not followed.
            raise _unreadable_access(uri)
        return None
    groups = _labels(statements["groups"])
    if groups is None:
        raise _unreadable_access(uri)
    return groups


def _unreadable_access(uri: str) -> PermanentError:
    return PermanentError(
        "the front matter names access groups, but they cannot be read",
        document=uri,
        hint="begin the file with front matter between two lines of `---`, and in it `groups: [staff, partners]`",
    )
