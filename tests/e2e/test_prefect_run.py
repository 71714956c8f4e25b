"""A whole run under Prefect: a real server, real Milvus Lite, the real model, the sample corpus.

One server and one lake serve the module; each test leaves the corpus published. Run with ``--dist loadgroup`` when
several workers share the tests, else each of them starts a server.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from query.golden import evaluate, read_golden
from query.opening import open_retriever
from query.retriever import Retriever
from query.snapshot_reader import SnapshotReader
from schemas.config import Config
from tasks.lake.lake import Lake

pytestmark = pytest.mark.xdist_group("prefect")

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "data" / "corpus"
GOLDEN = ROOT / "data" / "golden.jsonl"
TASKS = {"load", "chunk", "contextualize", "embed", "tokens", "passages", "catalog", "bm25", "vectors"}
STAGES = ("chunk", "embed", "tokens", "passages")


@dataclass(frozen=True)
class TaskRun:
    """What Prefect knows of a task run."""

    state: str
    attempts: int


@dataclass(frozen=True)
class Server:
    """A Prefect server."""

    url: str

    def ask(self, path: str, body: Mapping[str, Any]) -> Any:
        request = urllib.request.Request(
            f"{self.url}{path}", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def newest_flow(self) -> str:
        """Return the id of the flow run that was started last, "" before the first."""
        flows = self.ask("/flow_runs/filter", {"sort": "START_TIME_DESC", "limit": 1})
        return str(flows[0]["id"]) if flows else ""

    def task_runs(self, flow: str, expected: int) -> dict[str, TaskRun]:
        """Return the task runs of a flow run by task name, when as many as expected have come to an end.

        The server records them from events, a moment after they happened.
        """
        deadline = time.monotonic() + 60
        while True:
            runs = self.ask("/task_runs/filter", {"flow_runs": {"id": {"any_": [flow]}}})
            ended = [run for run in runs if run["state_type"] in {"COMPLETED", "FAILED", "CRASHED"}]
            if len(ended) >= expected or time.monotonic() > deadline:
                return {
                    run["name"].split()[0].split("-")[0]: TaskRun(run["state_name"], run["run_count"]) for run in runs
                }
            time.sleep(0.2)


@dataclass(frozen=True)
class Home:
    """A place with a lake."""

    path: Path
    server: Server | None = None

    @property
    def lake(self) -> Path:
        return self.path / "data" / "lake" / "default"

    def environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR", "LD_LIBRARY_PATH") if name in os.environ}
        api = {"PREFECT_API_URL": self.server.url} if self.server else {}
        return {
            **kept,
            **api,
            "HOME": str(self.path),
            "PYTHONPATH": str(ROOT),
            "GLOSSATOR_HOME": str(self.path),
            "GLOSSATOR__RUN__RETRY_DELAY_SECONDS": "0.05",
            "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
        }

    def start(self, *command: str) -> subprocess.CompletedProcess[str]:
        self.path.mkdir(exist_ok=True)
        return subprocess.run(
            [sys.executable, *command],
            env=self.environment(),
            cwd=self.path,
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )

    def index(self, *arguments: str) -> Any:
        done = self.start(str(ROOT / "glossator.py"), "index", *arguments, "--json")
        assert done.returncode == 0, done.stderr[-2_000:]
        assert done.stderr == ""
        return json.loads(done.stdout)

    def forget(self) -> None:
        """Take the pointer away: nothing is published, everything that was computed is there."""
        shutil.rmtree(self.lake / "flips")

    def chunks(self) -> list[str]:
        reader = SnapshotReader(Lake(self.lake.parent, "default"), self.snapshot_name())
        return [reader.chunk_id(row) for row in range(reader.size)]

    def snapshot_name(self) -> str:
        flip = Lake(self.lake.parent, "default").current_flip()
        assert flip is not None
        return flip.snapshot


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("prefect")
    port = free_port()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PREFECT_HOME": str(folder),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_LOGGING_LEVEL": "ERROR",
    }
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with (folder / "log").open("w") as log:
        child = subprocess.Popen([*command, "--no-ui"], env=environment, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield wait_for(Server(f"http://127.0.0.1:{port}/api"), child, folder / "log")
    finally:
        child.terminate()
        child.wait(timeout=60)


def wait_for(server: Server, child: subprocess.Popen[bytes], log: Path) -> Server:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert child.poll() is None, log.read_text()[-2_000:]
        try:
            with urllib.request.urlopen(f"{server.url}/health", timeout=5):
                return server
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise TimeoutError(log.read_text()[-2_000:])


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
    if key.startswith("parts/chunk/") and failures:
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
    done = home.start("-c", INJECTION.format(errors=errors, folder=str(docs)))
    return done, server.task_runs(server.newest_flow(), len(TASKS) if done.returncode == 0 else 2)


def test_a_transient_error_is_tried_again(server: Server, tmp_path: Path) -> None:
    done, runs = run_with_failures(server, tmp_path, "TransientError('the disk was busy')")
    assert done.returncode == 0, done.stderr[-2_000:]
    assert done.stderr == "" and "2 added" in done.stdout
    assert runs["chunk"] == TaskRun("Completed", 2)
    assert {run.attempts for name, run in runs.items() if name != "chunk"} == {1}


@pytest.mark.parametrize("kind", ["GlossatorError", "PermanentError"])
def test_an_error_that_will_not_pass_is_not_tried_again(server: Server, tmp_path: Path, kind: str) -> None:
    done, runs = run_with_failures(server, tmp_path, f"{kind}('the store is read-only', hint='mount it for writing')")
    assert done.returncode == 1
    assert done.stderr == "glossator: the store is read-only -> mount it for writing\n"
    assert done.stdout == ""
    assert runs["chunk"] == TaskRun("Failed", 1)
    assert not (tmp_path / "home" / "data" / "lake" / "default" / "flips").exists()


def test_an_error_that_does_not_pass_ends_the_run_after_the_last_try(server: Server, tmp_path: Path) -> None:
    errors = ", ".join(["TransientError('the disk is busy', hint='try later')"] * 5)
    done, runs = run_with_failures(server, tmp_path, errors)
    assert done.returncode == 1
    assert done.stderr == "glossator: the disk is busy -> try later\n"
    assert runs["chunk"] == TaskRun("Failed", 3)


def test_an_interrupted_flow_says_so_in_one_line_and_goes_on_next_time(server: Server, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    for number in range(80):
        text = "\n\n".join(f"# Berth {number}.{part}\n\n" + f"Dredging {number}. " * 60 for part in range(10))
        (docs / f"berth-{number}.md").write_text(text)
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
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=120)
    assert running.returncode == 130, err[-1_000:]
    assert err == "glossator: interrupted; what is done so far is kept -> run the same command again to go on\n"
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
    assert done.returncode == 0 and len(findings) == 6
    assert all(finding["ok"] for finding in findings)
