"""Whatever happens to a collection, it holds what a clean build holds, and every retained snapshot stays whole.

The machine does at random what people and disks do: edits, renames, copies, deletions, files that break and heal,
changes of config, runs that are killed, rollbacks, pins, sweeps. After each step the published snapshot is compared
with a clean build of the *effective corpus*: a document whose file cannot be used counts as its last good version.

``make soak`` (or GLOSSATOR_EXAMPLES=N) tells longer stories, other ones each time.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import schemas.identity
from schemas.errors import GlossatorError, PlanRefused, PublishRefused
from schemas.plan import ChangeCounts
from tasks.lake.lease import publishing
from tasks.load.loader import load_document
from tasks.plan.planner import PlanOptions
from tasks.publish.catalog import read_catalog
from tasks.publish.history import resume, rollback
from tasks.publish.pins import create_pin, read_pins, remove_pin
from tasks.publish.pointer import available, fence
from tasks.publish.sweep import sweep
from tests.fixtures import (
    Made,
    ailments,
    differences,
    lake_beside,
    made,
    made_cleanly,
    make_config,
    make_corpus,
    plan_of,
    published,
    run,
)

EXAMPLES = int(os.environ.get("GLOSSATOR_EXAMPLES", "0"))

URIS = ("a.md", "b.md", "sub/a.md", "sub/d.md", "灯/a.md", "f.txt", "g.txt", "p.pdf")
TITLES = ("Anchors", "灯塔", "Buoys")
WORDS = ("Zinc is eaten first.", "灯塔每隔五秒闪一次。", "Red to port.", "Two words")
FRONTS = ("", "---\ntags: [x]\n---\n", "---\ntags: [x, y]\n---\n", "---\ndate: 2025-03-04\n---\n")
UNREADABLE = b"# Page\n\n" + bytes(range(1, 9)) * 20
SETTINGS = {
    "chunk.child_tokens": ("180", "32"),
    "bm25.k1": ("1.2", "1.5"),
    "bm25.stem": ("true", "false"),
    "embed.model": ("hash:384", "hash:256"),
    "milvus.index": ("HNSW", "FLAT"),
    "load.max_pages": ("2000", "1999"),
}
LATER = (dt.timedelta(0), dt.timedelta(minutes=16), dt.timedelta(hours=25), dt.timedelta(days=8))

Files = dict[str, bytes]
Edit = tuple[str, str, str]


@cache
def pdf(words: str) -> bytes:
    import pymupdf

    with pymupdf.open() as document:
        document.new_page().insert_text((72, 72), f"{words} And so it is on every page of this book.")
        return bytes(document.tobytes())


@st.composite
def texts(draw: st.DrawFn) -> str:
    """A small Markdown document; few words, so that equal documents and equal sections happen."""
    sections = draw(st.lists(st.tuples(st.sampled_from(TITLES), st.sampled_from(WORDS)), min_size=0, max_size=3))
    body = "".join(f"## {title}\n\n{words}\n\n" for title, words in sections)
    return f"# {draw(st.sampled_from(TITLES))}\n\n{draw(st.sampled_from(WORDS))}\n\n{body}"


uris = st.sampled_from(URIS)
edits = st.one_of(
    st.tuples(st.just("write"), uris, texts()),
    st.tuples(st.just("append"), uris, st.sampled_from(WORDS)),
    st.tuples(st.just("front"), uris, st.sampled_from(FRONTS)),
    st.tuples(st.just("print"), st.just("p.pdf"), st.sampled_from(WORDS[::2])),
    st.tuples(st.just("break"), uris, st.just("")),
    st.tuples(st.just("heal"), uris, st.just("")),
    st.tuples(st.just("rename"), uris, uris),
    st.tuples(st.just("move"), st.sampled_from(["sub", "灯"]), st.sampled_from(["灯", "sub", "deep/er"])),
    st.tuples(st.just("copy"), uris, uris),
    st.tuples(st.just("delete"), uris, st.just("")),
    st.tuples(st.just("touch"), uris, st.just("")),
)
changes = st.lists(edits, min_size=1, max_size=3)


def after(files: Files, edit: Edit, good: Mapping[str, bytes]) -> Files:
    """Return the files after an edit; one that does not apply changes nothing.

    Args:
        good: what is published, which a file that heals is given back.
    """
    verb, uri, what = edit
    match verb:
        case "write":
            return files | {uri: what.encode()}
        case "print":
            return files | {uri: pdf(what)}
        case "move":
            moved = {name.replace(uri, what, 1) if name.startswith(f"{uri}/") else name: name for name in files}
            return {name: files[old] for name, old in moved.items()}
        case "heal" if uri in good:
            return files | {uri: good[uri]}
    if uri not in files:
        return files
    match verb:
        case "append":
            return files | {uri: files[uri] + f"\n\n{what}\n".encode()}
        case "front":
            return files | {uri: what.encode() + files[uri].rpartition(b"---\n")[2]}
        case "break":
            return files | {uri: b"%PDF-1.7\nbroken" if uri.endswith("pdf") else UNREADABLE}
        case "copy":
            return files | {what: files[uri]}
        case "rename":
            return {name: data for name, data in files.items() if name != uri} | {what: files[uri]}
        case "delete":
            return {name: data for name, data in files.items() if name != uri}
    return files


def is_free(edit: Edit) -> bool:
    """Tell whether an edit gives the model no text that it has not seen. (Its ending decides how a file is read.)"""
    verb, uri, what = edit
    same = verb in {"rename", "copy"} and Path(uri).suffix == Path(what).suffix
    return same or verb in {"move", "delete", "touch", "break", "heal"}


@cache
def loads(uri: str, data: bytes) -> bool:
    """Tell whether a loader takes a file: what this means is tested with the loaders."""
    try:
        load_document(data, uri, make_config().load)
    except GlossatorError:
        return False
    return True


@dataclass(frozen=True)
class Index:
    """What a snapshot must hold: the last good bytes of each document, and the settings that it was made under."""

    documents: Files
    settings: dict[str, str]


class Collection(RuleBasedStateMachine):
    """One collection. ``files`` is its source now, ``history`` what each snapshot must hold."""

    def __init__(self) -> None:
        super().__init__()
        self.temporary = TemporaryDirectory()
        self.root = Path(self.temporary.name)
        self.docs = self.root / "docs"
        self.patch = pytest.MonkeyPatch()
        self.files: Files = {}
        self.settings = {key: values[0] for key, values in SETTINGS.items()}
        self.history: dict[str, Index] = {}
        self.current = ""
        self.held = False
        self.in_step = False
        self.clean_builds = 0

    def teardown(self) -> None:
        try:
            if self.current:
                self.everything_retained_is_whole()
        finally:
            self.patch.undo()
            self.temporary.cleanup()

    def everything_retained_is_whole(self) -> None:
        found = {name: ailments(self.docs, name) for name in available(lake_beside(self.docs))}
        assert {name: ailing for name, ailing in found.items() if ailing} == {}

    @property
    def published(self) -> Files:
        return self.history[self.current].documents if self.current else {}

    def wanted(self) -> Index:
        documents = {uri: data if loads(uri, data) else self.published.get(uri) for uri, data in self.files.items()}
        return Index({uri: data for uri, data in documents.items() if data is not None}, dict(self.settings))

    def edit(self, edits: list[Edit]) -> bool:
        """Change the files; tell whether nothing of it should need the model."""
        for step in edits:
            self.files = after(self.files, step, self.published)
        make_corpus(self.docs, self.files)
        for verb, uri, _ in edits:
            if verb == "touch" and uri in self.files:
                os.utime(self.docs / uri, ns=(10**18, 10**18))
        return self.in_step and all(is_free(step) for step in edits)

    def assignments(self) -> list[str]:
        return [f"{key}={value}" for key, value in self.settings.items()]

    def options(self) -> PlanOptions:
        """Nothing is redone unless somebody said so, and nobody has to say so without a reason."""
        return PlanOptions(migrate=bool(self.current) and self.settings != self.history[self.current].settings)

    def index(self, *, free: bool = False) -> None:
        """Index, and compare what came of it with a clean build."""
        lake, wanted = lake_beside(self.docs), self.wanted()
        before = self.history.get(self.current)
        if self.held:
            self.in_step = False
            with pytest.raises(PlanRefused, match="held since"):
                run(self.docs, *self.assignments(), options=self.options())
            return
        failing = {uri for uri, data in self.files.items() if not loads(uri, data)}
        try:
            report = run(self.docs, *self.assignments(), options=self.options())
        except PublishRefused:
            # Other loading cannot be applied to a last good version: its bytes are gone.
            assert before is not None
            assert failing & before.documents.keys()
            assert before.settings["load.max_pages"] != self.settings["load.max_pages"]
            self.in_step = False
            return
        self.current = published(lake).name
        self.history[self.current] = wanted
        assert {failure.uri for failure in report.failed} == failing
        assert report.published == (wanted != before)
        self.assert_counted(report.documents, before.documents if before else {}, wanted.documents, len(failing))
        assert report.snapshot == published(lake).id
        assert differences(made(lake), self.clean(wanted)) == []
        if free:
            assert report.chunks_embedded == 0
        assert plan_of(self.docs, *self.assignments()).nothing_to_do
        self.in_step = True

    def assert_counted(self, counts: ChangeCounts, before: Files, after: Files, failing: int) -> None:
        """Hold a report to what has changed; which gone and new documents it pairs as renames is its affair."""
        assert counts.deleted + counts.renamed == len(before.keys() - self.files.keys())
        assert counts.added + counts.renamed == len(after.keys() - before.keys())
        assert counts.changed == sum(before[uri] != after[uri] for uri in before.keys() & after.keys())
        assert counts.failed == failing

    def clean(self, wanted: Index) -> Made:
        self.clean_builds += 1
        folder = make_corpus(self.root / f"clean-{self.clean_builds}" / self.docs.name, wanted.documents)
        return made_cleanly(folder, *self.assignments())

    @initialize(files=st.dictionaries(st.sampled_from(URIS[:-1]), texts()), per_shard=st.sampled_from([2, 256]))
    def begin(self, files: dict[str, str], per_shard: int) -> None:
        self.patch.setattr(schemas.identity, "DOCUMENTS_PER_SHARD", per_shard)
        # One document always stays: a source that lists as empty is refused, which is tested elsewhere.
        self.files = {uri: text.encode() for uri, text in files.items()} | {"keel.md": b"# Keel\n\nIt stays.\n"}
        self.edit([])
        self.index()

    @rule(edits=changes)
    def change(self, edits: list[Edit]) -> None:
        self.index(free=self.edit(edits))

    @rule(edits=changes, place=st.sampled_from(["publish", "verify", "flip"]))
    def change_and_be_killed(self, edits: list[Edit], place: str) -> None:
        """What was done before a kill is not done again, and nobody saw any of it."""
        self.edit(edits)
        killed = False

        def kill(*_: object, **__: object) -> None:
            nonlocal killed
            killed = True
            raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as dying:
            dying.setattr(f"flows.index.{place}", kill)
            try:
                run(self.docs, *self.assignments(), options=self.options())
            except (KeyboardInterrupt, PlanRefused, PublishRefused):
                assert published(lake_beside(self.docs)).name == self.current
        self.index(free=killed)

    @rule(setting=st.sampled_from([(key, value) for key, values in SETTINGS.items() for value in values]))
    def reconfigure(self, setting: tuple[str, str]) -> None:
        self.settings = self.settings | {setting[0]: setting[1]}
        self.index()

    @rule(number=st.integers(0, 3))
    def roll_back(self, number: int) -> None:
        lake = lake_beside(self.docs)
        others = [name for name in available(lake) if name != self.current]
        if others:
            self.current = others[number % len(others)]
            rollback(lake, self.current, author="", reason="", milvus=make_config().milvus)
            self.held, self.in_step = True, False

    @precondition(lambda self: self.held)
    @rule()
    def go_on(self) -> None:
        resume(lake_beside(self.docs), author="", reason="")
        self.held = False
        self.index()

    @rule(number=st.integers(0, 3))
    def pin(self, number: int) -> None:
        lake = lake_beside(self.docs)
        create_pin(lake, available(lake)[number % len(available(lake))], author="", reason="")

    @rule(number=st.integers(0, 3))
    def unpin(self, number: int) -> None:
        lake = lake_beside(self.docs)
        if pins := sorted(read_pins(lake)):
            remove_pin(lake, pins[number % len(pins)])

    @rule(later=st.sampled_from(LATER))
    def maintain(self, later: dt.timedelta) -> None:
        lake = lake_beside(self.docs)
        with publishing(lake, "maintain", 0) as held:
            fence(lake, "", "maintain")
            now = dt.datetime.now(dt.UTC) + later
            assert sweep(lake, make_config().milvus, held.still_ours, now=now, full=True).finished
        self.everything_retained_is_whole()

    @invariant()
    def readers_get_what_was_published_and_it_is_whole(self) -> None:
        if not self.current:
            return
        lake = lake_beside(self.docs)
        assert published(lake).name == self.current
        documents = read_catalog(lake, published(lake).catalog, "documents", ["uri", "content_digest"])
        expected = {uri: sha256(data).hexdigest() for uri, data in self.published.items()}
        assert dict(documents.iter_rows()) == expected
        assert ailments(self.docs) == {}


TestCollection = Collection.TestCase
TestCollection.settings = settings(
    max_examples=EXAMPLES or 9,
    stateful_step_count=40 if EXAMPLES else 12,
    derandomize=not EXAMPLES,
    # Twelve steps can be read as they are; to find the shortest story takes minutes.
    phases=tuple(Phase) if EXAMPLES else (Phase.explicit, Phase.generate),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
