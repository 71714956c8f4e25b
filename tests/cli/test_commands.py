"""Every command: what it prints for a person, what it prints as JSON, and how long it makes them wait."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
OPEN_MILVUS = ("ask", "doctor")
COMMANDS = ("index", "search", "ask", "show", "status", "doctor", "evaluate", "purge", "source", "quarantine")
QUESTION = "How long is the warranty of a Limpet 20?"
GOLDEN = ROOT / "data" / "golden.jsonl"
REPORT_KEYS = {
    "collection",
    "snapshot",
    "flip",
    "documents",
    "chunks",
    "chunks_embedded",
    "chunks_reused",
    "llm_calls",
    "usd",
    "seconds",
    "redone",
    "skipped",
    "skipped_first",
    "left_out",
    "denied",
    "failed",
    "failed_before",
    "mended",
    "published",
    "warnings",
}
COUNT_KEYS = {"added", "changed", "renamed", "deleted", "unchanged", "failed"}
STAGES = {"load", "chunk", "contextualize", "embed", "tokens", "passages", "catalog", "bm25", "vectors", "total"}


def texts(home: Any) -> dict[str, str]:
    """The stored text of each document, read without the code that prints it."""
    import pyarrow as pa

    found = {}
    for path in (home.lake / "passages").glob("*/documents.arrow"):
        with pa.memory_map(str(path)) as file:
            table = pa.ipc.open_file(file).read_all()
        found.update(zip(table["uri"].to_pylist(), table["text"].to_pylist(), strict=True))
    return found


def columns(line: str) -> int:
    from rich.cells import cell_len

    return cell_len(line)


# --- index ------------------------------------------------------------------------------------------------------------


def test_index_json_has_the_promised_keys(home: Any, document: Callable[..., Path]) -> None:
    document("# Dredging\n\nThe harbour is dredged in May.\n")
    (home.docs / "support" / "glossary.md").unlink()
    (home.docs / "support" / "pricing.html").rename(home.docs / "support" / "prices.html")
    done = home.run("index", "--json")
    assert done.code == 0 and done.err == ""
    report = done.json
    assert set(report) == REPORT_KEYS
    assert set(report["documents"]) == COUNT_KEYS
    assert report["documents"] == {
        "added": 1,
        "changed": 0,
        "renamed": 1,
        "deleted": 1,
        "unchanged": 29,
        "failed": 0,
    }
    assert report["chunks"] == report["chunks_embedded"] + report["chunks_reused"]
    assert report["chunks_embedded"] == 1, "a rename embeds nothing, and the new document is one chunk"
    assert (report["llm_calls"], report["usd"]) == (0, 0.0)
    assert set(report["seconds"]) == STAGES
    assert re.fullmatch(r"[0-9a-f]{32}", report["snapshot"])
    assert report["published"] is True and report["flip"] == 2


def test_index_json_of_an_unchanged_corpus_says_so(indexed: Any) -> None:
    report = indexed.call("index", "--json").json
    assert set(report) == REPORT_KEYS
    assert report["published"] is False and report["chunks_embedded"] == 0
    assert report["documents"]["unchanged"] == 31


def test_dry_run_changes_nothing(home: Any, document: Callable[..., Path]) -> None:
    document("# Dredging\n\nThe harbour is dredged in May.\n")
    before = home.tree()
    shown = home.call("index", "--dry-run")
    planned = home.call("index", "--dry-run", "--json")
    assert shown.code == planned.code == 0
    assert "1 added, 31 unchanged" in shown.out
    assert planned.json["documents"]["added"] == 1 and planned.json["shards_to_build"] == 1
    assert home.tree() == before


def test_dry_run_of_a_first_index_leaves_no_lake_but_state(empty: Any) -> None:
    planned = empty.run("index", str(ROOT / "data" / "corpus"), "--dry-run", "--json")
    assert planned.code == 0 and planned.json["documents"]["added"] == 31
    assert empty.tree() == {}


def test_documents_without_words_are_indexed_once(home: Any, document: Callable[..., Path]) -> None:
    document("", "empty.md")
    document(" \n\t\n", "blank.txt")
    assert home.run("index", "--json").json["documents"]["added"] == 2
    again = home.call("index", "--json").json
    assert again["published"] is False and again["documents"]["unchanged"] == 33
    assert home.run("doctor").code == 0


def test_index_is_quiet_without_a_terminal(home: Any, document: Callable[..., Path]) -> None:
    document("# Dredging\n\nThe harbour is dredged in May.\n")
    done = home.run("index")
    assert done.err == ""
    assert done.out.startswith("Published snapshot ")


# --- questions --------------------------------------------------------------------------------------------------------


def test_search_finds_and_shows_the_span(indexed: Any) -> None:
    found = indexed.call("search", QUESTION, "-k", "3", "--mode", "bm25")
    assert found.code == 0 and found.err == ""
    spans = re.findall(r"^    ([0-9a-f]{12}) text\[(\d+):(\d+)\]", found.out, re.MULTILINE)
    assert len(spans) == 3
    hits = indexed.call("search", QUESTION, "-k", "3", "--mode", "bm25", "--json").json["hits"]
    documents = texts(indexed)
    for (prefix, start, end), hit in zip(spans, hits, strict=True):
        passage = hit["passage"]
        assert passage["chunk_id"].startswith(prefix)
        assert (int(start), int(end)) == (passage["start"], passage["end"])
        assert documents[passage["document"]["uri"]][int(start) : int(end)] == passage["text"]


@pytest.mark.parametrize("mode", ["hybrid", "dense", "bm25"])
def test_search_in_each_mode(indexed: Any, mode: str) -> None:
    result = indexed.run("search", QUESTION, "--mode", mode, "--json").json
    assert len(result["hits"]) == 5 and result["mode"] == mode
    assert (result["dense_way"] is None) == (mode == "bm25")


def test_ask_quotes_the_documents_exactly(indexed: Any) -> None:
    shown = indexed.run("ask", QUESTION)
    answer = indexed.run("ask", QUESTION, "--json").json["answer"]
    assert shown.code == 0 and answer["quotes"]
    documents = texts(indexed)
    spans = re.findall(r"^    ([0-9a-f]{12}) text\[(\d+):(\d+)\]", shown.out, re.MULTILINE)
    assert len(spans) == len(answer["quotes"])
    flat = " ".join(shown.out.split())
    for (prefix, start, end), quote in zip(spans, answer["quotes"], strict=True):
        cited = quote["citation"]
        assert cited["chunk_id"].startswith(prefix)
        words = documents[cited["uri"]][int(start) : int(end)]
        assert words == quote["text"]
        assert " ".join(words.split()) in flat


def test_ask_says_when_the_documents_do_not_answer(indexed: Any) -> None:
    shown = indexed.run("ask", "What does error code ZX-9981 mean?")
    assert shown.code == 0 and "not in the documents: ZX-9981\nThe nearest passages:\n  - docs/" in shown.out


def test_show_takes_the_beginning_of_an_id(indexed: Any) -> None:
    passage = indexed.call("search", QUESTION, "-k", "1", "--mode", "bm25", "--json").json["hits"][0]["passage"]
    shown = indexed.call("show", passage["chunk_id"][:8])
    assert shown.code == 0 and passage["chunk_id"] in shown.out
    span = re.search(r"text\[(\d+):(\d+)\]", shown.out)
    assert span
    words = texts(indexed)[passage["document"]["uri"]][int(span[1]) : int(span[2])]
    assert " ".join(words.split()) in " ".join(shown.out.split())
    assert indexed.call("show", passage["chunk_id"], "--json").json["text"] == words


# --- state ------------------------------------------------------------------------------------------------------------


def test_status_with_and_without_json(indexed: Any) -> None:
    shown, data = indexed.call("status"), indexed.call("status", "--json").json
    assert shown.code == 0
    assert data["counts"]["documents"] == 31 and data["model"] == "hash:384" and data["flip"] == 1
    for value in (data["snapshot"], "31 documents", data["sources"][0]["root"]):
        assert value in shown.out


def test_doctor_is_content_with_a_fresh_index(indexed: Any) -> None:
    shown, data = indexed.run("doctor"), indexed.run("doctor", "--json").json
    assert shown.code == 0
    checks = ["files", "spans", "bm25", "milvus", "recall", "identity", "history", "access", "sources", "kept"]
    assert [finding["check"] for finding in data] == checks
    assert all(finding["ok"] for finding in data) and shown.out.count("✓") == len(checks)


def test_evaluate_scores_each_mode(indexed: Any) -> None:
    shown, data = indexed.run("evaluate", str(GOLDEN)), indexed.run("evaluate", str(GOLDEN), "--json").json
    assert shown.code == 0
    recalls = {score["mode"]: score["recall"] for score in data["scores"]}
    assert set(recalls) == {"hybrid", "dense", "bm25"} and recalls["bm25"] >= 0.6
    assert f"{recalls['bm25']:.3f}" in shown.out
    assert data["unlocated"] == [] and data["expired"] == []


def test_evaluate_says_which_questions_it_cannot_judge(indexed: Any, tmp_path: Path) -> None:
    lines = GOLDEN.read_text(encoding="utf-8").splitlines()
    gone = {**json.loads(lines[0]), "id": "gone-1", "source": "elsewhere/tariff.md"}
    golden = tmp_path / "golden.jsonl"
    golden.write_text("\n".join([lines[0], json.dumps(gone)]), encoding="utf-8")
    some = indexed.run("evaluate", str(golden))
    told = "1 of 2 golden questions refers to a document that is not in the index, the first is elsewhere/tariff.md"
    assert some.code == 0 and told in " ".join(some.out.split())
    golden.write_text(json.dumps(gone), encoding="utf-8")
    none = indexed.run("evaluate", str(golden))
    assert none.code == 2
    assert f"nothing of {golden} can be judged: 1 of 1 golden question refers to a document that is" in none.complaint
    assert "the first is elsewhere/tariff.md (question gone-1) -> index the folder" in none.complaint
    golden.write_text("\n")
    assert "can be judged: it holds no question" in indexed.run("evaluate", str(golden)).complaint


def test_a_question_in_another_home_or_lake_finds_another_index(indexed: Any, empty: Any, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    docs = tmp_path / "notes"
    docs.mkdir()
    (docs / "one.md").write_text("# Sandbanks\n\nThe northern bank moves east every spring.\n")
    assert empty.run("index", str(docs), GLOSSATOR_LAKE=str(elsewhere)).code == 0
    assert (elsewhere / "default" / "flips" / "1.json").exists()
    assert not (empty.path / "data" / "lake").exists()
    found = empty.call("search", "sandbanks", "--mode", "bm25", "--json", GLOSSATOR_LAKE=str(elsewhere)).json
    assert [hit["passage"]["document"]["uri"] for hit in found["hits"]] == ["one.md"]
    assert empty.call("search", "sandbanks").code == 2, "its own lake is empty"
    assert indexed.call("status", "--json").json["lake"] == str(indexed.lake.parent)


def test_collections_are_apart(home: Any, tmp_path: Path) -> None:
    docs = tmp_path / "notes"
    docs.mkdir()
    (docs / "one.md").write_text("# Sandbanks\n\nThe northern bank moves east every spring.\n")
    assert home.run("index", str(docs), "--collection", "true").code == 0
    assert home.call("status", "-c", "true", "--json").json["counts"]["documents"] == 1
    assert home.call("status", "--json").json["counts"]["documents"] == 31


# --- how it looks -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ("search", QUESTION, "-k", "8", "--mode", "bm25"),
        ("search", "台风来了怎么办", "-k", "8", "--mode", "bm25"),
        ("ask", QUESTION),
        ("ask", "台风来了怎么办"),
        ("status",),
        ("doctor",),
        ("index", "--dry-run"),
        ("index",),
        ("--help",),
        *((command, "--help") for command in COMMANDS),
        *(("source", command, "--help") for command in ("add", "list", "remove")),
        *(("quarantine", command, "--help") for command in ("list", "retry")),
        ("source", "list"),
        ("quarantine", "list"),
        ("source",),
        ("quarantine",),
    ],
    ids=" ".join,
)
def test_output_fits_80_columns_and_has_no_blanks_at_line_ends(indexed: Any, arguments: tuple[str, ...]) -> None:
    shown = (indexed.run if arguments[0] in OPEN_MILVUS else indexed.call)(*arguments)
    assert shown.code == 0 and shown.err == "", shown.out
    # Paths are not broken, so that they can be copied.
    lines = [line for line in shown.out.splitlines() if str(indexed.path) not in line]
    assert [line for line in lines if columns(line) > 80] == []
    if "--help" not in arguments and arguments not in {("source",), ("quarantine",)}:  # Typer draws boxes.
        assert [line for line in lines if line != line.rstrip()] == []


@pytest.mark.parametrize("arguments", [(), ("--help",)])
def test_help_lists_every_command_with_what_it_does(indexed: Any, arguments: tuple[str, ...]) -> None:
    shown = indexed.run(*arguments)
    assert shown.code == 0 and shown.err == "", shown.out
    for command in COMMANDS:
        assert re.search(rf"{command} +[A-Z]\w+ \w+", shown.out), command


def test_json_commands_print_one_document_and_nothing_else(indexed: Any) -> None:
    for arguments in (("search", QUESTION, "--mode", "bm25"), ("status",), ("index",)):
        done = indexed.run(*arguments, "--json")
        assert done.err == ""
        assert done.out == json.dumps(done.json, indent=2, ensure_ascii=False) + "\n"


def test_no_paragraph_of_help_breaks_in_a_sentence(indexed: Any) -> None:
    for arguments in (*COMMANDS, "maintain", "rollback", "snapshots"):
        words = indexed.call(arguments, "--help").out.partition("╭")[0].split("\n\n")
        for paragraph in words:
            lines = [line.strip() for line in paragraph.strip().splitlines()]
            # A line that has room for the next one's first word was broken by the source, not by the terminal.
            short = [
                line
                for line, after in pairwise(lines)
                if line and after and line[-1] not in ".:" and len(line) + len(after.split()[0]) < 77
            ]
            assert short == [], arguments


def test_a_closed_pipe_is_no_error(indexed: Any) -> None:
    command = 'set -o pipefail; "$0" "$1" search \'tide gauge\' -k 50 --mode bm25 --json | head -c 10'
    done = subprocess.run(
        ["bash", "-c", command, sys.executable, str(ROOT / "glossator.py")],
        env=indexed.environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


# --- how long it takes ------------------------------------------------------------------------------------------------


def quickest(home: Any, *arguments: str) -> tuple[float, float]:
    """Seconds of the clock and of the processor, each the least of three runs."""
    clock, processor = [], []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        clock.append(home.run(*arguments).seconds)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        processor.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(clock), min(processor)


@pytest.mark.parametrize(("arguments", "limit"), [(("index",), 1.0), (("--help",), 0.5)], ids=["nothing to do", "help"])
def test_what_needs_no_work_is_answered_at_once(indexed: Any, arguments: tuple[str, ...], limit: float) -> None:
    clock, processor = quickest(indexed, *arguments)
    assert processor < limit
    if os.getloadavg()[0] < 1.5 * (os.cpu_count() or 1):  # Else the clock measures the other processes.
        assert clock < limit


@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [
        (["index"], {"prefect", "torch", "sentence_transformers", "pymilvus", "pymupdf", "bm25s"}),
        (["--help"], {"prefect", "torch", "sentence_transformers", "pymilvus", "polars", "pyarrow"}),
        (["search", "tide", "--mode", "bm25"], {"prefect", "torch", "sentence_transformers", "pymilvus", "bm25s"}),
        (["search", "tide"], {"prefect", "torch", "sentence_transformers"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_commands_import_no_more_than_they_need(indexed: Any, arguments: list[str], unwanted: set[str]) -> None:
    done = indexed.python(
        f"import sys, glossator\nsys.argv = ['glossator', *{arguments!r}]\n"
        "try:\n    glossator.main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "print('MODULES', *sorted({name.partition('.')[0] for name in sys.modules}))\n"
    )
    assert done.code == 0, done.err[-1_000:]
    loaded = set(done.out.splitlines()[-1].split())
    assert loaded & unwanted == set()


# --- what comes from anywhere -----------------------------------------------------------------------------------------


ASCII_ONLY = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def test_a_terminal_that_takes_ascii_only_gets_an_answer(home: Any, document: Callable[..., Path]) -> None:
    document("# 清淤\n\n五月清淤港池。\n", "港 池.md")
    assert home.run("index", **ASCII_ONLY).code == 0
    assert home.run("index").out.startswith("Nothing to do"), "names are the same in every locale"
    shown = home.run("search", "清淤港池", **ASCII_ONLY)
    assert shown.code == 0 and shown.out.isascii() and "\\u6e05" in shown.out
    found = home.run("search", "清淤港池", "--mode", "bm25", "--json", **ASCII_ONLY).json
    assert found["question"] == "清淤港池"
    assert found["hits"][0]["passage"]["document"]["uri"] == "港 池.md"


def test_a_question_that_is_not_utf8_is_still_a_question(indexed: Any) -> None:
    for command in ("search", "ask"):
        done = indexed.run(command, "tide \udcff gauge", "--json")
        assert done.code == 0, done.err
    assert indexed.run("search", "tide \udcff gauge", "--json").json["question"] == "tide � gauge"
