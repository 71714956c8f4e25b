"""What goes wrong is told in one line that names the cause and what to do next, with the right exit code, and readers
notice nothing: the pointer and the answers are the same before and after."""

from __future__ import annotations

import os
import re
import shutil
import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.surroundings import as_nobody, nothing_changes

ROOT = Path(__file__).parents[2]
FAILED, USAGE, QUARANTINED, REFUSED, INTERRUPTED = 1, 2, 3, 4, 130

Write = Callable[..., Path]


def pdf(path: Path, *, password: str = "") -> Path:
    import pymupdf

    document = pymupdf.open()
    document.new_page().insert_text((72, 72), "The tide gauge stands at the north pier.")
    if password:
        document.save(path, encryption=pymupdf.PDF_ENCRYPT_AES_256, user_pw=password, owner_pw="owner")
    else:
        document.save(path)
    return path


# --- what to index ----------------------------------------------------------------------------------------------------


def test_a_missing_folder(home: Any) -> None:
    with nothing_changes(home):
        done = home.call("index", str(home.path / "nowhere"))
        assert done.code == USAGE
        assert f"there is no folder {home.path / 'nowhere'}" in done.complaint


def test_a_file_instead_of_a_folder(home: Any) -> None:
    with nothing_changes(home):
        done = home.call("index", str(home.docs / "support" / "glossary.md"))
        assert done.code == USAGE
        assert f"is a file, not a folder -> index the folder that holds it: {home.docs / 'support'}" in done.complaint


def test_an_empty_folder(home: Any) -> None:
    (home.path / "bare").mkdir()
    with nothing_changes(home):
        done = home.call("index", str(home.path / "bare"))
        assert done.code == REFUSED
        assert "lists no document -> put documents there" in done.complaint


def test_a_published_folder_that_became_empty_deletes_nothing(home: Any) -> None:
    shutil.rmtree(home.docs)
    home.docs.mkdir()
    with nothing_changes(home):
        done = home.call("index")
        assert done.code == REFUSED
        assert "its 31 published documents stay" in done.complaint


def test_a_published_folder_that_is_gone_deletes_nothing(home: Any) -> None:
    shutil.rmtree(home.docs)
    with nothing_changes(home):
        done = home.call("index")
        assert done.code == REFUSED
        assert "No such file or directory" in done.complaint and "nothing was changed" in done.complaint


def test_too_many_deletions_are_refused_until_allowed_by_number(home: Any) -> None:
    shutil.rmtree(home.docs / "zh")
    shutil.rmtree(home.docs / "engineering")
    with nothing_changes(home):
        done = home.call("index")
        assert done.code == REFUSED
        assert (
            "13 of 31 documents of source 'docs' are gone" in done.complaint and "--allow-deletes 13" in done.complaint
        )
    assert home.run("index", "--allow-deletes", "13", "--json").json["documents"]["deleted"] == 13


def test_a_folder_of_unsupported_types(home: Any) -> None:
    (home.path / "media").mkdir()
    for name in ("a.mp3", "b.mp3", "c.xyz"):
        (home.path / "media" / name).write_bytes(b"\0")
    with nothing_changes(home):
        done = home.call("index", str(home.path / "media"))
        assert done.code == REFUSED
        assert "2 .mp3" in done.complaint and "1 .xyz" in done.complaint


def test_the_name_of_a_source_that_has_another_root(home: Any, document: Write) -> None:
    (home.path / "other").mkdir()
    (home.path / "other" / "a.md").write_text("# Other\n\nwords\n")
    with nothing_changes(home):
        done = home.call("index", str(home.path / "other"), "--source", "docs")
        assert done.code == REFUSED
        assert str(home.docs) in done.complaint and "--source NAME" in done.complaint


def test_entries_that_cannot_be_documents_are_named_and_left_out(home: Any, document: Write) -> None:
    document("# Added\n\nwords about dredging\n")
    os.mkfifo(home.docs / "pipe.md")
    (home.docs / "dead.md").symlink_to(home.docs / "nowhere.md")
    (home.docs / "secret.md").symlink_to("/etc/passwd")
    with closing(socket.socket(socket.AF_UNIX)) as unix:
        here = Path.cwd()
        os.chdir(home.docs)  # A socket's path is at most 108 bytes.
        unix.bind("socket.md")
        os.chdir(here)
    report = home.run("index", "--json").json
    left_out = dict(report["left_out"])
    assert set(left_out) == {"docs/pipe.md", "docs/dead.md", "docs/secret.md", "docs/socket.md"}
    assert left_out["docs/dead.md"] == "a link to nothing"
    assert report["documents"]["added"] == 1 and report["documents"]["unchanged"] == 31
    shown = home.call("index")
    assert shown.code == 0 and "  * left out docs/pipe.md: not a regular file" in shown.out


def test_bad_files_are_quarantined_and_the_rest_is_published(home: Any, document: Write) -> None:
    document("# Added\n\nwords about dredging\n")
    whole = pdf(home.docs / "whole.pdf").read_bytes()
    (home.docs / "cut.pdf").write_bytes(whole[: len(whole) // 3])
    pdf(home.docs / "locked.pdf", password="tide")
    (home.docs / "binary.txt").write_bytes(bytes(range(256)) * 40)
    done = home.run("index")
    assert done.code == QUARANTINED and done.err == ""
    told = " ".join(done.out.split())
    for name, cause in (
        ("docs/locked.pdf", "protected with a password"),
        ("docs/binary.txt", "->"),
        ("docs/cut.pdf", "->"),
    ):
        assert re.search(rf"quarantined {name}: [^>]*{cause}", told), name
    status = home.call("status", "--json").json
    assert sorted(item["failure"]["uri"] for item in status["quarantine"]) == ["binary.txt", "cut.pdf", "locked.pdf"]
    assert status["counts"]["documents"] == 33
    again = home.call("index", "--json")
    assert again.code == QUARANTINED and again.json["published"] is False, "a known failure is told, not tried"


def test_a_published_document_that_became_unreadable_keeps_serving(home: Any) -> None:
    glossary = home.docs / "support" / "glossary.md"
    before = home.published()[1]
    glossary.write_bytes(bytes(range(256)) * 40)
    done = home.run("index", "--json")
    assert done.code == QUARANTINED and done.json["documents"]["failed"] == 1
    assert home.published()[1] == before


@pytest.mark.xdist_group("nobody")  # Both open the same parent folders for a while.
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv")
def test_a_file_without_permission(home: Any, document: Write) -> None:
    secret = document("# Added\n\nwords about dredging\n", "secret.md")
    secret.chmod(0)
    with as_nobody(home) as nobody:
        done = home.run("index", prefix=nobody)
        assert done.code == QUARANTINED
        told = f"quarantined docs/secret.md: no permission to read it -> chmod u+r {secret}"
        assert "".join(told.split()) in "".join(done.out.split())
    secret.chmod(0o644)
    assert home.run("index", "--json").json["documents"]["added"] == 1


# --- configuration ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("toml", "told"),
    [
        ("[chunk]\nchild_token = 90\n", "chunk.child_token: unknown key"),
        ("[chunk]\nchild_tokens = 'many'\n", "chunk.child_tokens: Input should be a valid integer"),
        ("[chunk\n", "is not valid TOML"),
        ("collection = 'A B'\n", "collection: "),
    ],
)
def test_a_wrong_configuration_file(home: Any, toml: str, told: str) -> None:
    file = home.path / "glossator.toml"
    file.write_text(toml)
    for command in (("index",), ("search", "tide"), ("status",)):
        done = home.call(*command)
        assert done.code == USAGE
        assert str(file) in done.complaint and told in done.complaint
    file.unlink()
    assert home.call("index").out.startswith("Nothing to do")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--set", "chunk.child_tokens"), "is not KEY=VALUE"),
        (("--set", "chunk.nope=1"), "--set: chunk.nope: unknown key"),
        (("--set", "chunk.max_tokens=1"), "chunk.max_tokens: unknown key -> did you mean chunk.parent_tokens"),
        (("--set", "chunk.child_tokens=-5"), "--set: chunk.child_tokens: Input should be greater than"),
        (("--set", "chunk.child_tokens=4000"), "set chunk.child_tokens to at most"),
        (("--set", "embed.model=hash:1"), "is not hash:DIM"),
        (("--set", "embed.model=/nowhere/model"), "'/nowhere/model' is neither a folder nor a model"),
        (("--config", "nowhere.toml"), "no configuration file nowhere.toml -> check --config"),
        (("--collection", "A B"), "--collection 'A B' is not a name -> use lower-case letters"),
        (("--collection", "../other"), "is not a name"),
        (("--source", "Ä"), "--source 'Ä': use lower-case letters"),
        (("--runner", "cron"), "'cron' is not one of 'prefect', 'plain'. -> `glossator index --help` shows how"),
        (("--allow-deletes", "many"), "Invalid value for '--allow-deletes'"),
        (("--nope",), "No such option: --nope -> `glossator index --help` shows how"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_wrong_option_of_index(indexed: Any, arguments: tuple[str, ...], told: str) -> None:
    (indexed.path / "other").mkdir(exist_ok=True)
    done = indexed.call("index", str(indexed.path / "other"), *arguments, HF_HUB_OFFLINE="1")
    assert done.code == USAGE
    assert told in done.complaint


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("nope",), "No such command 'nope'. -> `glossator --help` shows how"),
        (("search",), "Missing argument 'question'. -> `glossator search --help` shows how"),
        (("search", "tide", "-k", "0"), "Invalid value for '-k'"),
        (("search", "tide", "--mode", "both"), "'both' is not one of"),
        (("evaluate", "nowhere.jsonl"), "in nowhere.jsonl: No such file or directory -> name a file of JSON lines"),
        (("search", ""), "the question is empty -> say what to look for: `glossator search"),
        (("ask", " \n "), "the question is empty"),
        (("show", "zzzz"), "no chunk 'zzzz' in snapshot"),
        (("show", ""), "`glossator search` prints ids"),
        (("show", "%"), "no chunk '%'"),
        (("status", "--set", "x"), "is not KEY=VALUE"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_wrong_command_line(indexed: Any, arguments: tuple[str, ...], told: str) -> None:
    done = indexed.call(*arguments)
    assert done.code == USAGE
    assert told in done.complaint


def test_a_beginning_that_several_ids_have(indexed: Any) -> None:
    hits = indexed.call("search", "tide gauge", "-k", "100", "--mode", "bm25", "--json").json["hits"]
    first = [hit["passage"]["chunk_id"][0] for hit in hits]
    shared = next(letter for letter in first if first.count(letter) > 1)
    done = indexed.call("show", shared)
    assert done.code == USAGE
    assert f"several chunks begin with '{shared}' -> give more of the id" in done.complaint


@pytest.mark.parametrize("command", [("index",), ("search", "tide"), ("ask", "tide"), ("show", "a"), ("doctor",)])
def test_a_lake_with_nothing_in_it(empty: Any, command: tuple[str, ...]) -> None:
    done = empty.call(*command)
    assert done.code == USAGE
    assert re.search(r"is empty|has no source yet", done.complaint) and "`glossator index FOLDER`" in done.complaint


def test_a_change_of_configuration_is_refused_without_migrate(home: Any) -> None:
    with nothing_changes(home):
        done = home.call("index", "--set", "chunk.child_tokens=90")
        assert done.code == REFUSED
        assert "settings changed (chunk.child_tokens 180 → 90): 31 unchanged documents would be" in done.complaint
        assert "redone -> run again with --migrate" in done.complaint


# --- questions --------------------------------------------------------------------------------------------------------

STRANGE = (
    "a" * 10_000,
    "tide gauge " * 900,
    "潮" * 10_000,
    '"; drop collection default; --',
    "' or 1 == 1 or '",
    'chunk_id in [""] && uri like "%"',
    "[bold]tide[/] [/nope] [red",
    "{gauge} ${HOME} `id` $(id)",
    "\\x00\\u0000 \\n \\",
    "tide\x07\x1b[31mgauge",
    "🌊🌊🌊 👩‍👩‍👧‍👦 tide",
    "((((( ***** ????? ^^^",
    "\u202e\u200b\ufeff gauge",
    "--help me",
    "\udcff\udcfe tide",
)


def test_no_question_breaks_search_or_ask(indexed: Any) -> None:
    program = f"""
import sys, glossator
for question in {STRANGE!r}:
    for command in (["search"], ["search", "--mode", "bm25", "--json"], ["ask"]):
        sys.argv = ["glossator", *command, "--", question]
        try:
            glossator.main()
        except SystemExit as end:
            if end.code:
                print("FAILED", end.code, command, ascii(question[:40]), file=sys.stderr)
"""
    done = indexed.python(program)
    assert (done.code, done.err) == (0, "")
    assert done.out.count("score") > len(STRANGE), "the model finds something near to most of them"


def test_a_document_does_not_steer_the_terminal(home: Any, document: Write) -> None:
    document("# Dredging \u009b31m\n\nThe harbour is \u009d0;owned\u009c dredged in May.\n", "a\x1b[2Jb.md")
    assert home.run("index").code == 0
    for command in (("search", "dredged in May"), ("ask", "When is the harbour dredged?")):
        shown = home.run(*command)
        assert shown.code == 0 and "dredged" in shown.out and not set("\x1b\u009b\u009d") & set(shown.out)


def test_a_line_break_in_a_name_makes_no_second_line(home: Any) -> None:
    names = ("one\nline.md", "two\u2028lines.md", "three\n\tbinary.md", "four\n.xyz", "[b]five[b]\n.md")
    for name in names:
        (home.docs / name).write_text(f"# Dredging\n\nThe harbour is dredged in May, says {len(name)}.\n")
    (home.docs / names[2]).write_bytes(bytes(range(1, 9)) * 40)
    commands = (
        ("index", "--dry-run"),
        ("index",),
        ("search", "harbour dredged", "-k", "9", "--mode", "bm25"),
        ("status",),
        ("quarantine", "list"),
        ("purge", names[4], "--yes", "--reason", "gone\nfor good"),
        ("purge", names[4], "--undo"),
    )
    shown = {command: home.call(*command) for command in commands}
    assert all(done.err == "" for done in shown.values())
    lines = [line.strip() for done in shown.values() for line in done.out.splitlines()]
    assert [line for line in lines if line.startswith(("line.md", "lines.md", "binary.md", ".xyz", ".md"))] == []
    assert sum("docs/[b]five[b]\ufffd.md" in line for line in lines) == 4
    for arguments in (("index", str(home.docs / names[0])), ("purge", "no\nname"), ("status", "--config", "a\nb")):
        assert home.call(*arguments).complaint, "it is one line"
