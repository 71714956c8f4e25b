"""Globs of access rules: what they match, and which can mean nothing."""

from __future__ import annotations

import pytest

from schemas.access import compile_glob
from schemas.errors import UsageError
from tests.fixtures import make_config


@pytest.mark.parametrize(
    ("glob", "place", "matches"),
    [
        ("docs/*.md", "docs/a.md", True),
        ("docs/*.md", "docs/sub/a.md", False),
        ("docs/**", "docs/sub/deep/a.md", True),
        ("docs/**", "docsx/a.md", False),
        ("docs/**/a.md", "docs/a.md", True),
        ("docs/**/a.md", "docs/x/y/a.md", True),
        ("docs/**/a.md", "docs/xa.md", False),
        ("**/secret/**", "docs/x/secret/y", True),
        ("**", "docs/line\nbreak.md", True),
        ("docs/?.md", "docs//.md", False),
        ("docs/[a-c].md", "docs/b.md", True),
        ("docs/[!a-c].md", "docs/b.md", False),
        ("docs/[!a-c].md", "docs/d.md", True),
        ("docs[!x]a.md", "docs/a.md", False),
        ("docs/a+b(1).md", "docs/a+b(1).md", True),
        ("docs/a.md", "docs/axmd", False),
        ("docs/[a.md", "docs/[a.md", True),
        ("docs/A.md", "docs/a.md", False),
    ],
)
def test_globs(glob: str, place: str, matches: bool) -> None:
    assert bool(compile_glob(glob).fullmatch(place)) is matches


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ('{"match":"docs/hr/","groups":["hr"]}', "hr/\\*\\*"),
        ('{"match":"","groups":["hr"]}', "matches no document"),
        ('{"match":"docs/[z-a].md","groups":["hr"]}', "not a glob"),
        ('{"match":"**","groups":["a,b"]}', "without a comma"),
        ('{"match":"**","groups":["  "]}', "not the name"),
        ('{"match":"**"}', "groups"),
        ('{"match":"**","groups":["a"],"group":["b"]}', "unknown key"),
    ],
)
def test_a_rule_that_cannot_mean_anything_is_refused(rule: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        make_config(f"access.rules=[{rule}]")
