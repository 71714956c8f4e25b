"""``glossator purge`` and ``--as``, as a person meets them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

MARKER = "zyxquokka"
SECRET = f"# Vault\n\nThe password of the vault is {MARKER} and nothing else.\n"


@pytest.fixture
def home(empty: Any) -> Any:
    """A home with three documents, one of them secret, one for a group."""
    empty.docs.mkdir()
    (empty.docs / "secret.md").write_text(SECRET)
    (empty.docs / "pay.md").write_text("# Pay\n\nWhat people earn at the tide gauge.\n")
    (empty.docs / "pay.md.groups").write_text("hr\n")
    (empty.docs / "open.md").write_text("# Open\n\nThe tide gauge is open to all staff.\n")
    (empty.docs / "open.md.groups").write_text("hr\nstaff\n")
    done = empty.run("index", str(empty.docs))
    assert done.code == 0, done.err
    return empty


def found(home: Any, question: str, *options: str) -> list[str]:
    done = home.run("search", question, "--json", *options)
    assert done.code == 0, done.err
    return [hit["passage"]["document"]["uri"] for hit in done.json["hits"]]


def files_with(home: Any, word: str) -> list[Path]:
    return [path for path in home.lake.rglob("*") if path.is_file() and word.encode() in path.read_bytes()]


def test_purge_erases_and_a_run_does_not_bring_it_back_but_undo_does(home: Any) -> None:
    assert found(home, MARKER, "--mode", "bm25") == ["secret.md"]
    assert files_with(home, MARKER)
    done = home.run("purge", "secret.md", "--reason", "asked for", "--yes")
    assert (done.code, done.err) == (0, "")
    assert "Purged docs/secret.md" in done.out and "none is there" in done.out
    assert max(map(len, done.out.splitlines())) <= 80
    assert files_with(home, MARKER) == []
    assert "secret.md" not in found(home, "password of the vault")
    assert home.run("doctor").code == 0
    assert home.run("index").out.startswith("Nothing to do")
    assert "purged" in home.run("status").out
    again = home.run("purge", "secret.md", "--yes", "--json")
    assert (again.code, again.json["files"], again.json["flip"]) == (0, 0, None)
    assert home.run("purge", "secret.md", "--undo").code == 0
    assert home.run("index").code == 0
    assert found(home, MARKER, "--mode", "bm25") == ["secret.md"]


def test_a_purge_that_is_not_meant_does_nothing(home: Any) -> None:
    before = home.tree()
    assert "--yes" in home.run("purge", "secret.md", "--reason", "x").complaint
    assert "--reason" in home.run("purge", "secret.md", "--yes").complaint
    assert "no document 'secrt.md'" in home.run("purge", "secrt.md", "--reason", "x", "--yes").complaint
    assert "not purged" in home.run("purge", "secret.md", "--undo").complaint
    assert home.tree() == before


def test_a_uri_of_two_sources_needs_its_source(home: Any) -> None:
    more = home.path / "more"
    more.mkdir()
    (more / "secret.md").write_text("# Another\n\nAnother text of another source.\n")
    assert home.run("index", str(more)).code == 0
    assert "docs/secret.md, more/secret.md" in home.run("purge", "secret.md", "--reason", "x", "--yes").complaint
    done = home.run("purge", "docs/secret.md", "--reason", "x", "--yes", "--json")
    assert done.code == 0 and (done.json["source"], done.json["uri"]) == ("docs", "secret.md")
    assert "more/secret.md is not purged" in home.run("purge", "more/secret.md", "--undo").complaint
    assert "docs/secret.md would be" in home.run("purge", "secret.md", "--source", "docs").complaint
    assert files_with(home, MARKER) == []
    assert "secret.md" in found(home, "another source")


def test_search_ask_and_show_as_a_member(home: Any) -> None:
    assert set(found(home, "tide gauge")) >= {"pay.md", "open.md"}
    assert set(found(home, "tide gauge", "--as", "hr")) == {"pay.md", "open.md"}
    assert found(home, "tide gauge", "--as", "staff,other") == ["open.md"]
    assert found(home, "tide gauge", "--as", "") == []
    asked = home.run("ask", "What do people earn at the tide gauge?", "--as", "staff", "--json").json
    assert "pay.md" not in json.dumps(asked)
    pay = next(
        hit["passage"]["chunk_id"]
        for hit in home.run("search", "earn", "--json").json["hits"]
        if hit["passage"]["document"]["uri"] == "pay.md"
    )
    assert home.run("show", pay, "--as", "hr").code == 0
    assert "no chunk" in home.run("show", pay, "--as", "staff").complaint


def test_a_revocation_counts_before_the_next_publish(home: Any) -> None:
    (home.docs / "open.md.groups").write_text("hr\n")
    assert home.run("index", "--dry-run").code == 0
    assert found(home, "tide gauge", "--as", "staff") == ["open.md"], "a dry run changes nothing"
    refused = home.run("index", "--set", "chunk.child_tokens=60")
    assert refused.code == 4, "nothing is built"
    assert "(rights that rules or sidecars take away count already) -> run again" in refused.complaint
    assert found(home, "tide gauge", "--as", "staff") == []
    assert set(found(home, "tide gauge", "--as", "hr")) == {"pay.md", "open.md"}


def test_restricted_documents_are_told(home: Any) -> None:
    assert "2 documents for some groups only" in home.run("index", "--dry-run").out
    assert home.run("index", "--dry-run", "--json").json["restricted"] == 2
    assert "2 documents for some groups only" in home.run("status").out
    (home.docs / "new.md").write_text("---\ngroups: [hr]\n---\n# New\n\nFor some only.\n")
    assert "access: at least 2 documents for some groups only" in home.run("index", "--dry-run").out
    assert home.run("index", "--dry-run", "--json").json["unread"] == 1
    (home.docs / "pay.md.groups").write_bytes(b"\xff\xfe")
    done = home.run("index")
    assert done.code == 0 and "  * shown to nobody docs/pay.md" in done.out
