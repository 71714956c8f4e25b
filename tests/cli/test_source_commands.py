"""Sources on the command line: record, list, remove; and a removal that was killed is finished by the same command."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

FAILED, USAGE, REFUSED = 1, 2, 4
ROOT = Path(__file__).parents[2]


@pytest.fixture
def notes(home: Any) -> Path:
    """A folder beside the indexed one."""
    folder: Path = home.path / "notes"
    folder.mkdir()
    for number in range(3):
        (folder / f"n{number}.md").write_text(f"# Sandbank {number}\n\nSandbank {number} moves east every spring.\n")
    return folder


def names(home: Any) -> list[str]:
    return [state["name"] for state in home.call("source", "list", "--json").json]


def test_a_source_is_recorded_and_indexed_with_the_others_later(home: Any, notes: Path) -> None:
    flips = list((home.lake / "flips").iterdir())
    said = home.call("source", "add", str(notes))
    assert said.code == 0
    assert said.out.splitlines()[0] == f"Recorded source notes: {notes}"
    assert "glossator index" in said.out
    assert list((home.lake / "flips").iterdir()) == flips
    states = home.call("source", "list", "--json").json
    assert states[1] == {"name": "notes", "root": str(notes), "there": True, "documents": 0, "failing": 0}
    assert home.call("index", "--json").json["documents"]["added"] == 3
    shown = home.call("source", "list")
    assert shown.out.splitlines() == [
        "docs   31 documents",
        f"       {home.docs}",
        "notes  3 documents",
        f"       {notes}",
    ]


def test_adding_twice_changes_nothing(home: Any, notes: Path) -> None:
    assert home.call("source", "add", str(notes), "--json").json["added"] is True
    record = (home.lake / "sources" / "notes.json").read_bytes()
    again = home.call("source", "add", str(notes), "--json")
    assert (again.code, again.json["added"]) == (0, False)
    assert (home.lake / "sources" / "notes.json").read_bytes() == record


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("nowhere",), USAGE, "there is no folder"),
        (("notes", "--source", "docs"), REFUSED, "source 'docs' of collection 'default' has the root"),
        (("docs", "--source", "other"), REFUSED, "is the root of source 'docs'"),
        (("docs/support",), REFUSED, "lies in the root of source 'docs'"),
        ((".",), REFUSED, "holds the root of source 'docs'"),
        (("notes", "--source", "My Notes"), USAGE, "lower-case"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_a_source_is_refused_and_not_recorded(
    home: Any, notes: Path, arguments: tuple[str, ...], code: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home.path)
    done = home.call("source", "add", *arguments)
    assert done.code == code
    assert words in done.complaint
    assert names(home) == ["docs"]


def test_the_list_tells_of_failures_and_of_roots_that_are_gone(home: Any, notes: Path) -> None:
    (notes / "bad.md").write_bytes(bytes(range(1, 9)) * 40)
    home.call("index", str(notes))
    notes.rename(home.path / "elsewhere")
    shown = home.call("source", "list").out
    assert "3 documents, 1 failing" in shown
    assert f"{notes}  (not there now)" in shown


def test_an_empty_collection_has_no_source(empty: Any) -> None:
    assert "glossator source add FOLDER" in empty.call("source", "list").out
    assert empty.call("source", "list", "--json").json == []


def test_a_removal_says_how_many_go_needs_that_number_and_touches_no_file(home: Any, notes: Path) -> None:
    home.call("index", str(notes))
    before = home.published()
    refused = home.call("source", "remove", "notes")
    assert refused.code == REFUSED
    assert "the 3 document(s) of source 'notes' would go from the index" in refused.complaint
    assert "--allow-deletes 3" in refused.complaint
    assert home.call("source", "remove", "notes", "--allow-deletes", "2").code == REFUSED
    assert (home.published(), names(home)) == (before, ["docs", "notes"])
    done = home.call("source", "remove", "notes", "--allow-deletes", "3")
    assert done.code == 0
    assert "Removed source notes and its 3 documents from the index" in done.out
    assert "31 documents" in done.out
    assert f"Not touched: {notes}" in done.out
    assert [line for line in done.out.splitlines() if len(line) > 80 and str(notes) not in line] == []
    assert names(home) == ["docs"]
    assert len(list(notes.iterdir())) == 3
    assert home.call("status", "--json").json["counts"]["documents"] == 31
    assert not (home.lake / "state" / "hints" / "notes.arrow").exists()
    assert home.call("index", "--json").json["published"] is False
    assert home.call("source", "remove", "notes").code == USAGE


def test_a_source_that_was_never_indexed_goes_without_a_number(home: Any, notes: Path) -> None:
    home.call("source", "add", str(notes))
    done = home.call("source", "remove", "notes", "--json")
    assert done.code == 0
    assert done.json == {"source": "notes", "root": str(notes), "documents": 0, "report": None}
    assert names(home) == ["docs"]


def test_the_failures_of_a_source_go_with_it(home: Any, notes: Path) -> None:
    (notes / "bad.md").write_bytes(bytes(range(1, 9)) * 40)
    (home.docs / "worse.md").write_bytes(bytes(range(1, 9)) * 40)
    home.call("index", str(notes))
    home.call("index", str(home.docs))
    assert home.call("source", "remove", "notes", "--allow-deletes", "3").code == 0
    assert [entry["uri"] for entry in home.call("quarantine", "list", "--json").json] == ["worse.md"]


def test_the_last_source_leaves_an_index_that_says_nothing_found(home: Any) -> None:
    assert home.run("source", "remove", "docs", "--allow-deletes", "31").code == 0
    assert home.call("search", "tide gauge", "--mode", "bm25").out == "Nothing found.\n"
    assert home.run("ask", "How high is the tide?").code == 0
    assert home.run("doctor").code == 0
    assert home.run("index").code == USAGE, "there is no source to index"
    assert home.run("index", str(home.docs), "--json").json["chunks_embedded"] == 0, "what was paid for is kept"


def test_a_hold_holds_a_removal_and_the_record(home: Any, notes: Path) -> None:
    home.call("index", str(notes))
    home.call("rollback", "--reason", "wrong import")
    assert home.call("source", "remove", "docs", "--allow-deletes", "31").code == REFUSED
    assert names(home) == ["docs", "notes"]


def test_a_rollback_to_before_a_removal_shows_the_source_without_a_root(home: Any, notes: Path) -> None:
    home.call("index", str(notes))
    home.call("source", "remove", "notes", "--allow-deletes", "3")
    home.call("rollback", "--reason", "too early")
    state = home.call("source", "list", "--json").json[1]
    assert (state["name"], state["root"], state["documents"]) == ("notes", None, 3)
    assert "glossator source remove notes" in home.call("source", "list").out
    home.call("resume")
    assert "notes: removed, and published again" in home.call("status").out
    (warning,) = home.call("index", "--json").json["warnings"]
    assert "'notes' had been removed" in warning and "glossator source remove notes" in warning
    assert home.call("source", "remove", "notes", "--allow-deletes", "3").code == 0
    assert names(home) == ["docs"]
    assert home.call("index", "--json").json["warnings"] == []


KILLED_AT = {
    "before the flip": ("flows.index", "flip"),
    "after the flip": ("flows.index", "sweep"),
    "before its failures are forgotten": ("tasks.plan.quarantine", "record_failures"),
    "before its record goes": ("tasks.plan.registry", "forget_source"),
}


@pytest.mark.parametrize(("module", "function"), KILLED_AT.values(), ids=list(KILLED_AT))
def test_a_removal_that_was_killed_is_finished_by_the_same_command(
    home: Any, notes: Path, module: str, function: str
) -> None:
    (notes / "bad.md").write_bytes(bytes(range(1, 9)) * 40)
    home.run("index", str(notes))
    shutil.rmtree(notes)  # It works without the folder, too.
    removal = ["source", "remove", "notes", "--allow-deletes", "3"]
    killed = home.python(
        f"import os, sys, {module}\n{module}.{function} = lambda *a, **k: os._exit(9)\n"
        f"import glossator\nsys.argv = ['glossator', *{removal!r}]\nglossator.main()\n"
    )
    assert killed.code == 9, killed.err
    assert "notes" in names(home), "while the record is there, the same command goes on"
    assert home.run("doctor").code == 0
    done = home.run(*removal)
    assert done.code == 0, done.err
    assert names(home) == ["docs"]
    assert home.call("status", "--json").json["counts"]["documents"] == 31
    assert home.call("quarantine", "list", "--json").json == []
    assert home.run("doctor").code == 0
