"""What is wrong with a value that pydantic refuses, in one sentence: where it stands, what is allowed, what was given.

A value is told so that its owner finds it again; one that may be a secret is not: messages end up in logs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

MOST_CHARACTERS = 60
_SECRETS = frozenset({"token", "key", "apikey", "password", "passwd", "secret", "credential", "credentials"})
_WITHOUT_VALUE = frozenset({"missing", "extra_forbidden"})
"""Kinds of error whose input is not a value of the place that they name."""


def where(problem: Any) -> str:
    """Return the place of an error of ``ValidationError.errors()``: ``section.key``."""
    return ".".join(str(part) for part in problem["loc"])


def why(problem: Any) -> str:
    """Return what is allowed at the place of an error, and what was given."""
    if problem["type"] in _WITHOUT_VALUE:
        return str(problem["msg"])
    return f"{problem['msg']}; given: {given(problem['loc'], problem['input'])}"


def given(path: Sequence[object], value: Any) -> str:
    """Return a value as its owner wrote it, or nearly so: cut where it is long, left out where it may be a secret."""
    if isinstance(value, dict):
        return "a table"
    text = json.dumps(value, ensure_ascii=False, default=str)
    if _may_be_secret(path) or ("://" in text and "@" in text):
        return "a value that is not shown"
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}…"


def _may_be_secret(path: Sequence[object]) -> bool:
    # Whole words: the token of a server, and not ``child_tokens``, a size.
    return any(word in _SECRETS for part in path for word in str(part).lower().replace("-", "_").split("_"))
