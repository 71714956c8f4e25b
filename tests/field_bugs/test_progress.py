"""What users of such systems report of isolation and progress. Here is what no other test proves; elsewhere:

- ragflow#2814, one bad item blocks the queue:
  tests/plan/test_quarantine.py::test_a_bad_file_harms_only_itself_and_is_named
- Connapse#400, failed documents are never retried and invisible:
  tests/plan/test_quarantine.py::test_a_known_failure_is_still_reported_when_there_is_nothing_to_do
- RooCode#6650, txtai#695, progress is lost on a crash:
  tests/publish/test_incremental.py::test_what_was_done_before_a_kill_is_not_done_again
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

import tasks.contextualize.step
from schemas.errors import PlanRefused, TransientError
from tasks.embed.encoder import HashEncoder
from tasks.isolation import end_workers
from tasks.lake.lake import passages_folder
from tasks.load import isolation
from tasks.plan.planner import PlanOptions
from tasks.plan.quarantine import read_quarantine, release
from tasks.publish.catalog import read_arrow
from tasks.publish.milvus import MilvusStore
from tests.fixtures import clean_build, contents, lake_beside, make_corpus, plan_of, published, run
from tests.load.faulty_parser import PARSE

PAGE = "<html><head><title>{0}</title></head><body><h1>{0}</h1><p>The gauge {0} is read daily.</p></body></html>"
PAGES = {f"{name}.html": PAGE.format(name) for name in ("amber", "basalt", "segfault", "cedar", "delta")}


def page(title: str, words: str) -> str:
    """Return a document whose title stands in no chunk."""
    return f"---\ntitle: {title}\n---\n\n{words}\n"


FILES = {f"{number}.md": page(f"Page {number}", f"The gauge {number} is read daily.") for number in range(8)}


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(isolation, "FUNCTION", PARSE)
    yield
    end_workers()


@pytest.fixture
def embedded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """All texts that went through the model since."""
    texts: list[str] = []
    encode = HashEncoder.encode

    def heard(encoder: HashEncoder, some: Any, done: Any = None) -> Any:
        texts.extend(some)
        return encode(encoder, some, done)

    monkeypatch.setattr(HashEncoder, "encode", heard)
    return texts


def test_a_file_that_kills_its_parser_costs_one_document_until_somebody_asks_again(
    tmp_path: Path, faulty: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docling#3345, docling#2559: a segfault or running out of memory in one file kills the batch."""
    docs, lake = make_corpus(tmp_path / "docs", PAGES), lake_beside(tmp_path / "docs")
    report = run(docs)
    assert contents(lake).uris == PAGES.keys() - {"segfault.html"}
    assert [(one.uri, one.kind) for one in report.failed] == [("segfault.html", "PermanentError")]
    assert report.failed[0].message.startswith("the parser crashed (SIGSEGV) -> ")
    monkeypatch.undo()  # The parser is a good one from now on: nobody would know, so nothing is tried.
    assert plan_of(docs).nothing_to_do
    release(lake, read_quarantine(lake))
    assert run(docs).documents.added == 1
    assert contents(lake).uris == PAGES.keys() and read_quarantine(lake) == {}


def test_progress_survives_a_store_that_refuses(
    tmp_path: Path, embedded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """RooCode#6650, txtai#695: progress is lost on a 429."""
    docs = make_corpus(tmp_path / "docs", FILES)

    def refusing(*_: object) -> None:
        raise TransientError("429: too many requests")

    with monkeypatch.context() as patch:
        patch.setattr(MilvusStore, "insert", refusing)
        with pytest.raises(TransientError, match="429"):
            run(docs, "run.retries=0")
    assert len(embedded) == len(FILES)
    report = run(docs)
    assert report.published and report.chunks_embedded == 0 and len(embedded) == len(FILES)
    assert contents(lake_beside(docs)) == clean_build(docs)


def test_progress_survives_a_model_that_fails_in_the_middle(
    tmp_path: Path, embedded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """RooCode#6650: progress is lost on a crash in the middle of the embedding."""
    monkeypatch.setattr("schemas.identity.DOCUMENTS_PER_SHARD", 2)
    docs = make_corpus(tmp_path / "docs", FILES)
    encode, calls = HashEncoder.encode, threading.Semaphore(2)

    def failing(encoder: HashEncoder, some: Any, done: Any = None) -> Any:
        if not calls.acquire(blocking=False):
            raise TransientError("503: overloaded")
        return encode(encoder, some, done)

    with monkeypatch.context() as patch:
        patch.setattr(HashEncoder, "encode", failing)
        with pytest.raises(TransientError, match="503"):
            run(docs, "run.retries=0")
    before = len(embedded)
    assert 0 < before < len(FILES)
    run(docs)
    assert len(embedded) == len(set(embedded)) == len(FILES), "each text went through the model once"


def test_a_night_embeds_what_changed_since_the_night_before(tmp_path: Path, embedded: list[str]) -> None:
    """knowledge-base-mcp-server#695, yeti#1379, qmd#151: everything is embedded again every night."""
    docs = make_corpus(tmp_path / "docs", FILES)
    run(docs)
    nights = []
    for number in (1, 1, 2):
        embedded.clear()
        make_corpus(docs, FILES | {"0.md": f"# Page 0\n\nThe gauge is read by night {number}.\n"})
        for path in docs.iterdir():
            path.touch()
        run(docs)
        nights.append(len(embedded))
    assert nights == [1, 0, 1]


def kinds(lake: Any) -> Collection[tuple[str, bool]]:
    """Return (origin, whether there is one) of all contexts that are published."""
    frames = [
        read_arrow(lake.open_folder(passages_folder(ref.key)) / "chunks.arrow", ["origin", "context"])
        for ref in published(lake).parts["passages"]
    ]
    return {(origin, bool(context)) for frame in frames for origin, context in frame.iter_rows()}


def test_a_context_that_fails_is_never_an_empty_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Onyx, R2R, LlamaIndex: a failed context silently becomes an empty one."""
    docs, lake = make_corpus(tmp_path / "docs", FILES), lake_beside(tmp_path / "docs")
    run(docs)
    before = contents(lake)
    context = tasks.contextualize.step.structural_context

    def failing(title: str, *arguments: Any, **keywords: Any) -> str:
        if title == "Page 3 anew":
            raise ValueError("no place in the outline")
        return context(title, *arguments, **keywords)

    make_corpus(docs, FILES | {"3.md": page("Page 3 anew", "Other words."), "4.md": page("Page 4", "New words.")})
    with monkeypatch.context() as patch:
        patch.setattr(tasks.contextualize.step, "structural_context", failing)
        report = run(docs)
    assert [(one.uri, one.stage) for one in report.failed] == [("3.md", "contextualize")]
    assert "no place in the outline" in report.failed[0].message
    after = contents(lake)
    assert {uri for chunk, uri in after.chunks.items() if chunk not in before.chunks} == {"4.md"}
    assert after.uris == FILES.keys(), "its last good version serves on"
    assert kinds(lake) == {("structural", True)}
    release(lake, read_quarantine(lake))
    assert run(docs).failed == () and contents(lake) == clean_build(docs)


def test_an_index_holds_contexts_of_one_kind(tmp_path: Path) -> None:
    """Onyx, R2R, LlamaIndex: the index mixes contexts of both kinds."""
    docs, lake = make_corpus(tmp_path / "docs", FILES), lake_beside(tmp_path / "docs")
    run(docs)
    make_corpus(docs, FILES | {"0.md": page("Page 0", "Other words.")})
    with pytest.raises(PlanRefused, match="--migrate"):
        run(docs, "context.mode=none")
    assert kinds(lake) == {("structural", True)}
    run(docs, "context.mode=none", options=PlanOptions(migrate=True))
    assert kinds(lake) == {("none", False)}
