"""The quarantine on the command line: what failed and why, what serves meanwhile, and another try."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_commands import columns

QUARANTINED, USAGE = 3, 2
BINARY = bytes(range(1, 9)) * 40
KEYS = {
    "doc_id",
    "source",
    "uri",
    "stage",
    "kind",
    "message",
    "traceback",
    "since",
    "tried",
    "attempts",
    "retry",
    "stale",
}


@pytest.fixture
def sick(home: Any) -> Any:
    """A home in which a new document and a changed one cannot be loaded."""
    (home.docs / "new.md").write_bytes(BINARY)
    (home.docs / "support" / "glossary.md").write_bytes(BINARY)
    assert home.call("index").code == QUARANTINED
    return home


def entries(home: Any) -> dict[str, Any]:
    return {entry["uri"]: entry for entry in home.call("quarantine", "list", "--json").json}


def test_the_list_says_what_happened_and_what_serves_meanwhile(sick: Any) -> None:
    found = entries(sick)
    assert set(found) == {"new.md", "support/glossary.md"}
    new, changed = found["new.md"], found["support/glossary.md"]
    assert set(new) == KEYS
    assert (new["source"], new["stage"], new["kind"], new["attempts"]) == ("docs", "load", "PermanentError", 1)
    assert (new["stale"], changed["stale"]) == (False, True)
    assert new["retry"] == "when the file changes"
    assert new["since"] == new["tried"]
    assert "its bytes are binary" in new["message"]
    assert new["traceback"].startswith("Traceback")
    shown = sick.call("quarantine", "list").out
    assert "2 documents in quarantine" in shown
    assert "docs/support/glossary.md" in shown
    assert shown.count("its last good version serves on") == 1
    assert shown.count("no version of it is published") == 1
    assert "Traceback" not in shown
    assert [line for line in shown.splitlines() if columns(line) > 80 or line != line.rstrip()] == []


def test_the_traceback_is_shown_when_asked_for(sick: Any) -> None:
    shown = sick.call("quarantine", "list", "docs/new.md", "--traceback")
    error = shown.out[shown.out.index("    schemas.errors.PermanentError") :]
    assert [line for line in error.splitlines() if columns(line) > 80] == []
    assert shown.code == 0
    assert "Traceback (most recent call last)" in shown.out
    assert "normalisation.py" in shown.out
    assert "glossary" not in shown.out


def test_an_empty_quarantine_says_so(indexed: Any) -> None:
    assert indexed.call("quarantine", "list").out == "Nothing is in quarantine.\n"
    assert indexed.call("quarantine", "list", "--json").json == []
    assert indexed.call("quarantine", "retry").code == 0


@pytest.mark.parametrize("command", ["list", "retry"])
def test_an_unknown_document_is_a_usage_error_and_nothing_is_released(sick: Any, command: str) -> None:
    done = sick.call("quarantine", command, "new.md", "nothing.md")
    assert done.code == USAGE
    assert "nothing.md is not in quarantine -> `glossator quarantine list` shows what is" in done.complaint
    assert entries(sick)["new.md"]["retry"] == "when the file changes"


def test_a_document_that_is_retried_is_tried_by_the_next_index_alone(sick: Any) -> None:
    flips = sick.published()[0]
    done = sick.call("quarantine", "retry", "new.md")
    assert done.code == 0
    assert "Released 1 document for another try" in done.out
    assert "glossator index" in done.out
    assert entries(sick)["new.md"]["retry"] == "next index"
    assert entries(sick)["support/glossary.md"]["retry"] == "when the file changes"
    assert sick.published()[0] == flips, "it publishes nothing by itself"
    assert sick.call("index").code == QUARANTINED
    found = entries(sick)
    assert (found["new.md"]["attempts"], found["support/glossary.md"]["attempts"]) == (2, 1)
    assert found["new.md"]["retry"] == "when the file changes"
    assert found["new.md"]["since"] < found["new.md"]["tried"]


def test_all_are_released_where_none_is_named(sick: Any) -> None:
    done = sick.call("quarantine", "retry", "--json")
    assert [(entry["uri"], entry["retry"]) for entry in done.json] == [
        ("new.md", "next index"),
        ("support/glossary.md", "next index"),
    ]
    sick.call("index")
    assert [entry["attempts"] for entry in entries(sick).values()] == [2, 2]


def test_the_same_uri_in_two_sources_is_told_apart_by_the_source(sick: Any) -> None:
    other: Path = sick.path / "second"
    other.mkdir()
    (other / "new.md").write_bytes(BINARY)
    (other / "good.md").write_text("# Good\n\nwords\n")
    sick.call("index", str(other))
    assert [entry["source"] for entry in sick.call("quarantine", "retry", "new.md", "--json").json] == [
        "docs",
        "second",
    ]
    assert [entry["source"] for entry in sick.call("quarantine", "list", "second/new.md", "--json").json] == ["second"]


def test_index_names_what_failed_in_this_run_and_counts_what_failed_before(sick: Any) -> None:
    (sick.docs / "newer.md").write_bytes(BINARY)
    (sick.docs / "new.md").write_bytes(BINARY[::-1])
    planned = sick.call("index", "--dry-run").out
    assert "1 document in quarantine since earlier runs: glossator quarantine list" in planned
    done = sick.call("index")
    assert done.code == QUARANTINED
    assert done.out.startswith("Nothing published: snapshot ")
    assert "quarantined docs/newer.md: " in done.out and "quarantined docs/new.md: " in done.out
    assert "glossary" not in done.out
    assert "1 document in quarantine since earlier runs: glossator quarantine list" in " ".join(done.out.split())
    again = sick.call("index")
    assert again.code == QUARANTINED
    assert again.out.startswith("Nothing to do: snapshot ")
    assert "quarantined docs" not in again.out
    assert "3 documents in quarantine since earlier runs: glossator quarantine list" in again.out
    report = sick.call("index", "--json").json
    assert len(report["failed"]) == len(report["failed_before"]) == 3


def test_a_folder_of_which_nothing_could_be_indexed_is_known_to_the_next_index(empty: Any) -> None:
    empty.docs.mkdir()
    (empty.docs / "new.md").write_bytes(BINARY)
    for arguments in (("index", str(empty.docs)), ("index",)):
        done = empty.call(*arguments)
        assert done.code == 1
        assert "no document of collection 'default' could be indexed -> `glossator quarantine list`" in done.complaint
    assert [entry["uri"] for entry in empty.call("quarantine", "list", "--json").json] == ["new.md"]
    (empty.docs / "new.md").write_text("# Dredging\n\nThe harbour is dredged in May.\n")
    assert empty.call("index", "--json").json["documents"]["added"] == 1
