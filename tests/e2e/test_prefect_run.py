"""A whole run under Prefect: a real server, real Milvus Lite, the real model, the sample corpus.

One lake serves the module; each test leaves the corpus published. Run with ``--dist loadgroup`` when several workers
share the tests, else each of them starts a Prefect server.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from query.golden import evaluate, read_golden
from query.opening import open_retriever
from query.retriever import Retriever
from schemas.config import Config
from tasks.lake.lake import Lake
from tests.e2e.home import ROOT, Home, write_berths
from tests.e2e.prefect_server import TASKS, Server, TaskRun

pytestmark = pytest.mark.xdist_group("prefect")

CORPUS = ROOT / "data" / "corpus"
GOLDEN = ROOT / "data" / "golden.jsonl"
STAGES = ("chunk", "embed", "tokens", "passages")


@pytest.fixture(scope="module")
def home(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """The sample corpus, published by Prefect with the real model."""
    home = Home(tmp_path_factory.mktemp("home") / "glossator", server)
    report = home.index(str(CORPUS))
    assert report["published"] and report["documents"]["added"] == 31
    assert report["chunks_embedded"] == report["chunks"] > 200
    runs = server.task_runs(server.newest_flow(), len(TASKS))
    assert {name: run.state for name, run in runs.items()} == dict.fromkeys(TASKS, "Completed")
    return home


# --- what is done is not done again -----------------------------------------------------------------------------------


def test_a_second_run_over_complete_parts_is_cached_in_every_task(home: Home, server: Server) -> None:
    published, flow = home.snapshot_name(), server.newest_flow()
    home.forget()
    report = home.index()
    assert server.newest_flow() != flow
    shown = server.ask(f"/flow_runs/{server.newest_flow()}")
    assert shown["parameters"] == {"collection": "default", "reason": "index corpus"}, "the server keeps no plan"
    assert shown["tags"] == ["glossator"], "a run from the command line is missed too, when it is killed"
    runs = server.task_runs(server.newest_flow(), len(TASKS))
    assert {name: run.state for name, run in runs.items()} == dict.fromkeys(TASKS, "Cached")
    assert home.snapshot_name() == published
    assert report["chunks_embedded"] == 0


@pytest.mark.parametrize("stage", STAGES)
def test_a_missing_part_is_the_only_thing_computed_again(home: Home, server: Server, stage: str) -> None:
    published = home.snapshot_name()
    if stage == "passages":
        shutil.rmtree(next((home.lake / "passages").iterdir()))
    else:
        next((home.lake / "parts" / stage).glob("*.parquet")).unlink()
    home.forget()
    report = home.index()
    runs = server.task_runs(server.newest_flow(), len(TASKS))
    states = {name: run.state for name, run in runs.items()}
    assert states == {**dict.fromkeys(TASKS, "Cached"), stage: "Completed"}
    assert home.snapshot_name() == published
    assert (report["chunks_embedded"] > 0) == (stage == "embed")


def test_nothing_to_do_starts_no_flow(home: Home, server: Server) -> None:
    flow = server.newest_flow()
    assert home.index()["published"] is False
    assert server.newest_flow() == flow


def test_the_plain_runner_and_a_temporary_server_give_the_same_index(home: Home, tmp_path: Path) -> None:
    published = home.snapshot_name().partition("-")[0]
    plain, alone = Home(tmp_path / "plain"), Home(tmp_path / "alone")
    assert plain.index(str(CORPUS), "--runner", "plain")["snapshot"] == published
    assert alone.index(str(CORPUS))["snapshot"] == published
    assert plain.chunks() == alone.chunks() == home.chunks()
    assert len(set(home.chunks())) == len(home.chunks())
    assert not (plain.path / "data" / "prefect").exists(), "the plain runner leaves nothing of Prefect"


# --- what fails -------------------------------------------------------------------------------------------------------

INJECTION = """
import sys
import glossator
from schemas.errors import GlossatorError, PermanentError, TransientError
from tasks.lake.storage import LocalStorage

write, failures = LocalStorage.write, [{errors}]

def failing(self, key, data):
    if key.startswith("parts/chunk/"):
        with open({tried!r}, "a") as tried:
            tried.write(".")
        if failures:
            raise failures.pop()
    write(self, key, data)

LocalStorage.write = failing
sys.argv = ["glossator", "index", {folder!r}, "--set", "embed.model=hash:384"]
glossator.main()
"""


def run_with_failures(server: Server, folder: Path, errors: str) -> tuple[Any, dict[str, TaskRun]]:
    """Index two documents while the store fails as ``errors`` says; return the process and the task runs."""
    docs = folder / "docs"
    docs.mkdir()
    (docs / "one.md").write_text("# One\n\nThe gauge stands at the north pier.\n")
    (docs / "two.md").write_text("# Two\n\nThe bench mark is on the church wall.\n")
    home = Home(folder / "home", server)
    done = home.start("-c", INJECTION.format(errors=errors, folder=str(docs), tried=str(folder / "tried")))
    return done, server.task_runs(server.newest_flow(), len(TASKS) if done.returncode == 0 else 2)


def test_a_transient_error_is_tried_again(server: Server, tmp_path: Path) -> None:
    done, runs = run_with_failures(server, tmp_path, "TransientError('the disk was busy')")
    assert done.returncode == 0, done.stderr[-2_000:]
    assert done.stderr == "" and "2 added" in done.stdout
    assert runs["chunk"] == TaskRun("Completed", 2)
    assert (tmp_path / "tried").read_text() == ".."
    assert {run.attempts for name, run in runs.items() if name != "chunk"} == {1}


@pytest.mark.parametrize("kind", ["GlossatorError", "PermanentError"])
def test_an_error_that_will_not_pass_is_not_tried_again(server: Server, tmp_path: Path, kind: str) -> None:
    done, runs = run_with_failures(server, tmp_path, f"{kind}('the store is read-only', hint='mount it for writing')")
    assert done.returncode == 1
    assert done.stderr == "glossator: the store is read-only -> mount it for writing\n"
    assert done.stdout == ""
    assert runs["chunk"] == TaskRun("Failed", 1)
    assert (tmp_path / "tried").read_text() == "."
    assert not (tmp_path / "home" / "data" / "lake" / "default" / "flips").exists()


def test_an_error_that_does_not_pass_ends_the_run_after_the_last_try(server: Server, tmp_path: Path) -> None:
    errors = ", ".join(["TransientError('the disk is busy', hint='try later')"] * 5)
    done, runs = run_with_failures(server, tmp_path, errors)
    assert done.returncode == 1
    assert done.stderr == "glossator: the disk is busy -> try later\n"
    assert runs["chunk"] == TaskRun("Failed", 3)
    assert (tmp_path / "tried").read_text() == "...", "nobody else tries besides the task"


@pytest.mark.parametrize(
    ("signalled", "code", "word"),
    [(signal.SIGHUP, 129, "its terminal has closed"), (signal.SIGTERM, 143, "terminated")],
)
def test_a_flow_that_is_stopped_by_a_signal_says_so_in_one_line_and_goes_on_next_time(
    server: Server, tmp_path: Path, signalled: signal.Signals, code: int, word: str
) -> None:
    docs = tmp_path / "docs"
    write_berths(docs)
    home = Home(tmp_path / "home", server)
    home.path.mkdir()
    command = ["index", str(docs), "--set", "embed.model=hash:384"]
    running = subprocess.Popen(
        [sys.executable, str(ROOT / "glossator.py"), *command],
        env=home.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while not (home.lake / "parts" / "load").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    running.send_signal(signalled)
    out, err = running.communicate(timeout=120)
    assert running.returncode == code, err[-1_000:]
    assert err == f"glossator: {word}; what is done so far is kept -> run the same command again to go on\n"
    assert out == "" and not (home.lake / "flips").exists()
    assert home.index(*command[1:])["documents"]["added"] == 80


# --- what was built ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def retriever(home: Home, tmp_path_factory: pytest.TempPathFactory) -> Retriever:
    """A retriever on a copy of the lake: Milvus Lite is held as long as it is open."""
    copy = tmp_path_factory.mktemp("copy")
    shutil.copytree(home.lake, copy / "default")
    return open_retriever(Lake(copy, "default"), Config())


def test_golden_questions_find_their_quotes(retriever: Retriever, capsys: pytest.CaptureFixture[str]) -> None:
    evaluation = evaluate(retriever, read_golden(GOLDEN), k=5)
    recall = {score.mode: score.recall for score in evaluation.scores}
    with capsys.disabled():
        print(f"\n  golden questions, recall@5: {', '.join(f'{mode} {value:.3f}' for mode, value in recall.items())}")  # noqa: T201
    assert evaluation.unlocated == () and evaluation.expired == ()
    assert recall["hybrid"] >= 0.9
    assert recall["hybrid"] > max(recall["dense"], recall["bm25"]), "two sides together find more than either"


def test_chinese_questions_are_answered_by_words_and_the_result_says_so(retriever: Retriever) -> None:
    questions = [question for question in read_golden(GOLDEN) if question.source.startswith("zh/")]
    assert len(questions) == 8
    for question in questions:
        result = retriever.search(question.question, 5)
        assert result.dense_way is None and result.hits
        assert result.notes[0].startswith("dense side off: ")
        assert all(hit.dense is None for hit in result.hits)
    found = evaluate(retriever, questions, k=5, modes=["hybrid"]).scores[0]
    assert found.recall >= 0.8


def test_the_doctor_is_content(home: Home) -> None:
    done = home.start(str(ROOT / "glossator.py"), "doctor", "--json")
    findings = json.loads(done.stdout)
    assert done.returncode == 0
    assert [finding["check"] for finding in findings] == [
        *("files", "spans", "bm25", "milvus", "recall", "identity"),
        *("history", "access", "sources", "kept"),
    ]
    assert all(finding["ok"] for finding in findings)
