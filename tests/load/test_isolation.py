"""A document that crashes its parser, hangs it or eats the memory costs itself alone, and says why."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from schemas.config import LoadConfig
from schemas.errors import GlossatorError, PermanentError, TransientError
from tasks import isolation
from tasks.isolation import WorkerEnded
from tasks.load.isolation import load
from tasks.load.loader import load_document
from tests.load.faulty_parser import PARSE

ROOT = Path(__file__).parents[2]
CONFIG = LoadConfig(max_seconds=1, max_memory_mb=512)
PAGE = b"<html><body><p>The tide gauge stands at pier seven and is read twice a day.</p></body></html>"
PDFS = sorted((ROOT / "data" / "corpus").rglob("*.pdf"))


@pytest.fixture(autouse=True)
def faulty(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("tasks.load.isolation.FUNCTION", PARSE)
    isolation.end_workers()
    yield
    isolation.end_workers()


def refusal(uri: str, config: LoadConfig = CONFIG) -> PermanentError:
    with pytest.raises(PermanentError) as caught:
        load(PAGE, uri, config)
    assert caught.value.document == uri
    return caught.value


@pytest.mark.parametrize(
    ("uri", "what", "hint"),
    [
        ("segfault.html", "the parser crashed (SIGSEGV)", "repair or convert"),
        ("quit.html", "the parser crashed (exit code 3)", "repair or convert"),
        ("loop.html", "the parser took longer than load.max_seconds = 1", "glossator quarantine retry"),
        ("bomb.html", "the parser needed more memory than load.max_memory_mb = 512", "raise load.max_memory_mb"),
    ],
)
def test_a_parser_that_ends_badly_costs_its_document_and_says_why(uri: str, what: str, hint: str) -> None:
    error = refusal(uri)
    assert error.what == what and error.hint is not None and hint in error.hint
    assert load(PAGE, "good.html", CONFIG) == load_document(PAGE, "good.html", CONFIG)


def test_a_parser_that_waits_for_ever_is_ended_too() -> None:
    begun = time.monotonic()
    assert "took longer than load.max_seconds = 1" in refusal("sleep.html").what
    assert time.monotonic() - begun < 30


def test_a_worker_that_is_stopped_is_ended_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    load(PAGE, "good.html", CONFIG)
    [worker] = isolation._idle
    worker._process.send_signal(signal.SIGSTOP)
    monkeypatch.setattr(isolation, "PATIENCE", 0)
    monkeypatch.setattr(isolation, "GRACE_SECONDS", 0.5)
    large = PAGE + b" " * 2**20  # More than a pipe holds.
    with pytest.raises(WorkerEnded, match="took longer"):
        worker.ask((large, "good.html", CONFIG), "good.html")
    worker.close()
    isolation._idle.clear()


def test_a_worker_that_was_killed_blames_no_document_for_good() -> None:
    with pytest.raises(GlossatorError, match="killed from outside") as caught:
        load(PAGE, "killed.html", CONFIG)
    assert not isinstance(caught.value, PermanentError), "the next run tries again"


@pytest.mark.parametrize("way", ["no such function", "no process"])
def test_a_worker_that_cannot_start_blames_no_document(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tasks.load.isolation.FUNCTION", "tasks.load.loader:nobody" if way == "no such function" else PARSE
    )
    if way == "no process":
        monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(TransientError, match="cannot start"):
        load(PAGE, "good.html", CONFIG)


LIMITED = f"""
import resource
from schemas.config import LoadConfig
from tasks.load.isolation import load
resource.setrlimit(resource.RLIMIT_CPU, (600, 600))
resource.setrlimit(resource.RLIMIT_DATA, (2**32, 2**32))
print(load({PAGE!r}, "good.html", LoadConfig(max_seconds=10**6, max_memory_mb=10**6)).text)
"""


def test_limits_of_the_machine_are_kept() -> None:
    command = [sys.executable, "-c", LIMITED]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("needs setpriv: root may raise every limit")
        command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", *command]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert "The tide gauge stands" in done.stdout, done.stderr


def test_a_parser_is_told_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILVUS_TOKEN", "secret")
    load(PAGE, "good.html", CONFIG)
    [worker] = isolation._idle
    assert "MILVUS_TOKEN" not in psutil.Process(worker._process.pid).environ()


def test_what_a_parser_throws_arrives_with_where_it_was_thrown() -> None:
    assert (refusal("refused.html").what, refusal("refused.html").hint) == ("is a scan", "recognise its text")
    odd = refusal("odd.html")
    assert odd.what == "the parser failed (OwnError: no such glyph)" and odd.hint
    assert any("faulty_parser.py" in note for note in odd.__notes__)


def test_a_document_is_not_blamed_for_what_its_forerunners_left() -> None:
    load(PAGE, "good.html", CONFIG)
    assert load(PAGE, "late.html", CONFIG) == load_document(PAGE, "late.html", CONFIG)


def test_a_worker_is_used_again_and_replaced_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "DOCUMENTS", 2)
    seen = []
    for _ in range(3):
        load(PAGE, "good.html", CONFIG)
        seen += [worker._process.pid for worker in isolation._idle]
    assert len(seen) == 2 and seen[0] != seen[1], "the first served twice, the second is there"


def test_libraries_in_c_say_nothing_on_our_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    load(PAGE, "chatter.html", CONFIG)
    assert capfd.readouterr() == ("", "")


def test_a_child_that_is_forked_has_workers_of_its_own() -> None:
    load(PAGE, "good.html", CONFIG)
    ours = [worker._process.pid for worker in isolation._idle]
    child = multiprocessing.get_context("fork").Process(target=load, args=(PAGE, "good.html", CONFIG))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert load(PAGE, "good.html", CONFIG).text
    assert [worker._process.pid for worker in isolation._idle] == ours


HANGS = f"""
import sys, threading, time
from schemas.config import LoadConfig
from tasks import isolation
from tasks.load import isolation as loading
loading.FUNCTION = {PARSE!r}
threading.Thread(target=loading.load, args=(b"", "loop.html", LoadConfig()), daemon=True).start()
while not isolation._turns._value < isolation.CORES:
    time.sleep(0.05)
time.sleep(1)
print("at work", flush=True)
time.sleep(100)
"""


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_no_worker_outlives_the_process_that_asks(end: signal.Signals) -> None:
    asking = subprocess.Popen(
        [sys.executable, "-c", HANGS],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert asking.stdout is not None and asking.stdout.readline() == "at work\n"
    workers = psutil.Process(asking.pid).children()
    assert len(workers) == 1
    asking.send_signal(end)
    asking.wait(timeout=20)
    gone, alive = psutil.wait_procs(workers, timeout=20)
    assert len(gone) == 1 and alive == []


def pdf_bomb(megabytes: int) -> bytes:
    """Return a small PDF with a page whose contents inflate to so many megabytes of empty drawing operators."""
    packer = zlib.compressobj(9)
    block = b"q Q " * (2**18)
    stream = b"".join(packer.compress(block) for _ in range(megabytes)) + packer.flush()
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 200]/Contents 4 0 R>>",
        b"<</Filter/FlateDecode/Length %d>>stream\n%s\nendstream" % (len(stream), stream),
    ]
    body, places = b"%PDF-1.7\n", []
    for number, content in enumerate(objects, 1):
        places.append(len(body))
        body += b"%d 0 obj%s endobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    trailer = b"trailer<</Size 5/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % len(body)
    return body + b"xref\n0 5\n0000000000 65535 f \n" + table + trailer


@pytest.mark.parametrize(
    ("uri", "data", "ends"),
    [
        ("bomb.pdf", pdf_bomb(400), "the parser took longer"),
        ("nested.html", b"<html><body>" + b"<div>" * 100_000 + b"deep" + b"</div>" * 100_000, "nesting-cut"),
        ("line.html", b"<html><body><p>" + b"<b>tide gauge</b> " * 500_000, "the parser needed more memory"),
    ],
)
def test_real_bombs_cost_one_document(uri: str, data: bytes, ends: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.load.isolation.FUNCTION", "tasks.load.loader:load_document")
    limits = LoadConfig(max_seconds=20 if uri == "line.html" else 2, max_memory_mb=512)
    try:
        told = " ".join(load(data, uri, limits).flags)
    except PermanentError as error:
        told = error.what
    assert ends in told


@pytest.mark.parametrize("path", PDFS, ids=lambda path: path.name)
def test_a_worker_loads_what_this_process_would(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.load.isolation.FUNCTION", "tasks.load.loader:load_document")
    data = path.read_bytes()
    assert load(data, path.name, LoadConfig()) == load_document(data, path.name, LoadConfig())
