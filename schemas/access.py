"""Access groups of a document: who stated them, and whose word counts.

Two may state them. Whoever writes a document *states* groups in its front matter; whoever runs the index *grants* them,
by a sidecar file beside it or by a rule of the configuration. What is granted wins, since who runs the index decides
before who wrote the document.

None is no statement, which is open as long as no document has groups; an empty tuple names nobody, and is closed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

Groups = tuple[str, ...]


def canonical(groups: Iterable[str]) -> str:
    """Return the one string that stands for a set of groups: ``["a","b"]``."""
    return json.dumps(sorted(set(groups)), ensure_ascii=False, separators=(",", ":"))


def parse(granted: str) -> Groups:
    """Return the groups that ``canonical`` wrote."""
    return tuple(json.loads(granted))


def effective(granted: str | None, stated: Sequence[str] | None) -> Groups | None:
    """Return the groups that count.

    Args:
        granted: by a rule or a sidecar, canonical; None where neither speaks.
        stated: by the document itself; None where it says nothing.
    """
    if granted is not None:
        return parse(granted)
    return None if stated is None else tuple(sorted(set(stated)))


def compile_glob(glob: str) -> re.Pattern[str]:
    """Translate the glob of a rule, to be matched with all of ``source/uri``.

    ``*`` and ``?`` stay within a folder, ``**`` crosses folders, ``[a-z]`` and ``[!a-z]`` are classes; every other
    character stands for itself.

    Raises:
        ValueError: it can match no document.
    """
    if not glob or glob.endswith("/"):
        raise ValueError(f"{glob!r} matches no document: for all below a folder write {glob + '**'!r}")
    tokens = re.findall(r"\*\*/|\*\*|\*|\?|\[![^\]]+\]|\[[^!\]][^\]]*\]|.", glob, flags=re.DOTALL)
    try:
        return re.compile("".join(_WILD.get(token) or _plain(token) for token in tokens), re.DOTALL)
    except re.error as error:
        raise ValueError(f"{glob!r} is not a glob: {error}") from error


_WILD = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def _plain(token: str) -> str:
    if len(token) == 1:
        return re.escape(token)
    members, negated = token[1:-1], token[1] == "!"
    escaped = re.sub(r"([\\\[\]^&~|])", r"\\\1", members.removeprefix("!") if negated else members)
    return f"(?!/)[{'^' if negated else ''}{escaped}]"


def group_name(name: str) -> str:
    """Return a group's name with its blanks made single.

    Raises:
        ValueError: it is empty, or holds a comma, which parts names on the command line.
    """
    plain = " ".join(name.split())
    if not plain or "," in plain:
        raise ValueError(f"{name!r} is not the name of a group: one name without a comma")
    return plain
