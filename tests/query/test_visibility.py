"""Nobody is shown what they may not see: by search, by id, in any snapshot, from the moment that it is taken away."""

from __future__ import annotations

import datetime as dt
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flows.index import build
from flows.runner import PlainRunner
from query.retriever import MODES, Retriever
from query.snapshot_reader import SnapshotReader
from query.visibility import visible
from schemas.config import SearchConfig
from schemas.errors import UsageError
from schemas.identity import acl_id, document_id
from schemas.snapshot import Flip
from tasks.embed.tokenizer import HashTokenizer
from tasks.lake.access import Access, Tombstone, bury, change_groups, unbury
from tasks.lake.lake import Corrupt, Lake
from tasks.plan.planner import PlanOptions
from tasks.publish.candidate import assemble, flip
from tasks.publish.catalog import write_catalog
from tests.access_model import GROUPS, MATCHED, URIS, Model
from tests.fixtures import lake_beside, make_corpus, plan_of
from tests.query.conftest import ENCODER, Page, write_snapshot

HR, LEGAL, OPEN, NOBODY = "hr.md", "legal.md", "open.md", "nobody.md"
PAGES = (
    Page(HR, ("The tide of pay.", "The tide of leave."), groups=("hr",)),
    Page(LEGAL, ("The tide of cases.",), groups=("board", "legal")),
    Page(OPEN, ("The tide of the sea.",)),
    Page(NOBODY, ("The tide of nobody.",), groups=()),
)


def stone(uri: str) -> Tombstone:
    when = dt.datetime(2025, 1, 2, tzinfo=dt.UTC)
    return Tombstone(doc_id=document_id("docs", uri), source="docs", uri=uri, when=when, by="me")


def restrict(lake: Lake, uri: str, *groups: str) -> None:
    change_groups(lake, lambda table: table | {document_id("docs", uri): groups})


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path, "default")


@pytest.fixture
def reader(lake: Lake) -> SnapshotReader:
    return SnapshotReader(lake, write_snapshot(lake, PAGES))


@pytest.fixture
def searches(reader: SnapshotReader, make_index: Callable[..., Any]) -> tuple[Retriever, Any]:
    """A retriever that asks its vector index, and the index."""
    index = make_index(reader)
    config = SearchConfig(brute_force_rows=0)
    return Retriever(reader, lambda: index, lambda: ENCODER, HashTokenizer, config), index


def seen(reader: SnapshotReader, *groups: str) -> set[str]:
    rows = np.flatnonzero(reader.visibility.of(groups).chunks)
    return {reader.passage(int(row)).document.uri for row in rows}


# --- the rules -------------------------------------------------------------------------------------------------------


def test_a_member_sees_what_one_of_their_groups_may(reader: SnapshotReader) -> None:
    assert seen(reader, "hr") == {HR}
    assert seen(reader, "hr", "board") == {HR, LEGAL}
    assert seen(reader, "other") == seen(reader) == set()


def test_the_operator_sees_everything(reader: SnapshotReader) -> None:
    operator = reader.visibility.of(None)
    assert (operator.everything, operator.allowed, operator.acl_ids) == (True, None, None)


def test_where_no_document_has_groups_all_are_open(lake: Lake) -> None:
    reader = SnapshotReader(lake, write_snapshot(lake, [Page(HR, ("pay",)), Page(OPEN, ("sea",))]))
    assert seen(reader) == {HR, OPEN}
    restrict(lake, HR, "hr")
    assert seen(reader, "other") == {OPEN}
    assert seen(reader, "hr") == {HR, OPEN}


def test_a_revocation_counts_at_once_and_a_grant_not_before_the_snapshot_says_it(
    lake: Lake, reader: SnapshotReader
) -> None:
    restrict(lake, LEGAL, "legal", "hr")
    assert seen(reader, "board") == set()
    assert seen(reader, "legal") == {LEGAL}
    assert seen(reader, "hr") == {HR}
    restrict(lake, HR)
    assert seen(reader, "hr") == set()


def test_a_purged_document_is_hidden_from_everybody(lake: Lake, reader: SnapshotReader) -> None:
    bury(lake, stone(HR))
    assert seen(reader, "hr") == set()
    assert np.flatnonzero(~reader.visibility.of(None).chunks).size == 2
    unbury(lake, stone(HR).doc_id)
    assert seen(reader, "hr") == {HR}


def test_a_group_is_its_whole_name(reader: SnapshotReader) -> None:
    assert seen(reader, "h") == seen(reader, "HR") == seen(reader, "") == seen(reader, "board,legal") == set()


def test_when_access_cannot_be_read_nothing_is_shown(lake: Lake, searches: tuple[Retriever, Any]) -> None:
    lake.storage.write("access/groups.json", b"{")
    for groups in (None, ("hr",)):
        with pytest.raises(Corrupt, match="nobody knows"):
            searches[0].search("tide", groups=groups)


def test_masks_are_made_once_per_version_of_access(lake: Lake, reader: SnapshotReader) -> None:
    first = reader.visibility.of(["hr", "legal"])
    assert reader.visibility.of(("legal", "hr", "hr")) is first
    restrict(lake, OPEN, "x")
    assert reader.visibility.of(["hr", "legal"]) is not first


def test_a_hundred_thousand_chunks_take_milliseconds(lake: Lake) -> None:
    class Large:
        """What visibility asks of a reader."""

        table = pa.table(
            {
                "doc_id": pa.array([f"{number:016x}" for number in range(50_000)]),
                "groups": pa.array([[f"g{number % 20}"] for number in range(50_000)], pa.list_(pa.string())),
                "acl_id": pa.array([acl_id((f"g{number % 20}",)) for number in range(50_000)], pa.int64()),
            }
        )

        def documents(self) -> pa.Table:
            return self.table

        def document_rows(self) -> np.ndarray:
            return np.arange(100_000, dtype=np.int32) // 2

    access = Access(groups={f"{number:016x}": (f"g{number % 7}",) for number in range(0, 50_000, 2)})
    begun = time.perf_counter()
    found = visible(Large(), access, ["g3", "g4"])  # type: ignore[arg-type]
    assert time.perf_counter() - begun < 1.0
    expected = [n % 20 in {3, 4} and (n % 2 == 1 or n % 7 in {3, 4}) for n in range(50_000)]
    assert found.chunks[::2].tolist() == found.chunks[1::2].tolist() == expected


# --- the paths -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_searches_find_only_what_may_be_seen(searches: tuple[Retriever, Any], lake: Lake, mode: Any) -> None:
    def uris(**options: Any) -> set[str]:
        return {hit.passage.document.uri for hit in searches[0].search("tide", 50, mode, **options).hits}

    assert uris() == {HR, LEGAL, OPEN, NOBODY}
    assert uris(groups=["hr"]) == {HR}
    assert uris(groups=[]) == set()
    allowed = np.zeros(searches[0].reader.size, np.bool_)
    assert uris(groups=["hr"], allowed=allowed) == set()
    restrict(lake, HR, "nobody else")
    assert uris(groups=["hr", "legal"]) == {LEGAL}
    bury(lake, stone(LEGAL))
    assert uris(groups=["hr", "legal"]) == set()
    assert uris() == {HR, OPEN, NOBODY}


def test_the_vector_index_is_asked_for_the_sets_of_groups_that_may_be_seen(searches: tuple[Retriever, Any]) -> None:
    retriever, index = searches
    retriever.search("tide", mode="dense", groups=["hr", "legal"])
    assert sorted(index.acl_ids[-1]) == sorted([acl_id(("hr",)), acl_id(("legal", "board"))])
    retriever.search("tide", mode="dense")
    assert index.acl_ids[-1] is None


def test_too_many_sets_of_groups_are_no_filter_but_the_mask_holds(
    searches: tuple[Retriever, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("query.visibility.MOST_ACL_IDS", 1)
    retriever, index = searches
    hits = retriever.search("tide", 50, "dense", groups=["hr", "legal"]).hits
    assert index.acl_ids[-1] is None
    assert {hit.passage.document.uri for hit in hits} == {HR, LEGAL}


def test_a_passage_that_may_not_be_seen_does_not_exist(lake: Lake, reader: SnapshotReader) -> None:
    row = next(row for row in range(reader.size) if reader.passage(row).document.uri == HR)
    name = reader.chunk_id(row)
    assert reader.find(name[:12], ["hr"]).row == row
    with pytest.raises(UsageError) as unseen:
        reader.find(name[:12], ["legal"])
    with pytest.raises(UsageError) as unknown:
        reader.find("f" * 12, ["legal"])
    assert str(unseen.value).replace(name[:12], "") == str(unknown.value).replace("f" * 12, "")
    bury(lake, stone(HR))
    with pytest.raises(UsageError, match="no chunk"):
        reader.find(name)


def test_a_short_id_means_the_one_that_may_be_seen(lake: Lake) -> None:
    reader = SnapshotReader(
        lake, write_snapshot(lake, [Page(f"{n}.md", (f"text {n}",), groups=(f"g{n % 5}",)) for n in range(60)])
    )
    for row in range(reader.size):
        passage = reader.passage(row)
        group = f"g{int(passage.document.uri[:-3]) % 5}"
        mine = list(np.flatnonzero(reader.visibility.of([group]).chunks))
        length = next(n for n in range(1, 33) if _alone(reader, mine, passage.chunk_id[:n]))
        assert reader.find(passage.chunk_id[:length], [group]).row == row


def _alone(reader: SnapshotReader, rows: list[int], prefix: str) -> bool:
    return sum(reader.chunk_id(int(row)).startswith(prefix) for row in rows) == 1


# --- whatever happens ------------------------------------------------------------------------------------------------

some_groups = st.lists(st.sampled_from(GROUPS), max_size=2, unique=True).map(tuple)
worlds = st.fixed_dictionaries(
    {
        "front": st.dictionaries(st.sampled_from(URIS), st.none() | some_groups, min_size=1),
        "sidecars": st.dictionaries(st.sampled_from(URIS), some_groups, max_size=2),
        "rules": st.lists(
            st.tuples(
                st.sampled_from(list(MATCHED)),
                some_groups,
            ),
            max_size=2,
        ),
    }
)
events = st.lists(
    st.one_of(
        st.tuples(st.just("plan"), worlds),
        st.tuples(st.just("publish"), worlds),
        st.tuples(st.just("publish"), worlds),
        st.tuples(st.just("roll back"), st.integers(0, 9)),
        st.tuples(st.just("bury"), st.sampled_from(URIS)),
        st.tuples(st.just("unbury"), st.sampled_from(URIS)),
    ),
    min_size=1,
    max_size=6,
)


def write(docs: Path, world: Any) -> tuple[str, ...]:
    files = {}
    for uri, groups in world["front"].items():
        head = "" if groups is None else f"---\ngroups: {json.dumps(list(groups))}\n---\n"
        files[uri] = f"{head}# Title\n\nThe words of {uri}.\n"
    files |= {f"{uri}.groups": "\n".join(groups) for uri, groups in world["sidecars"].items() if uri in files}
    make_corpus(docs, files)
    rules = [{"match": match, "groups": list(groups)} for match, groups in world["rules"]]
    return (f"access.rules={json.dumps(rules)}",)


def publish(docs: Path, assignments: tuple[str, ...]) -> str:
    """Publish as a run does, but for Milvus and BM25, which have no say in what may be seen."""
    lake = lake_beside(docs)
    plan = plan_of(docs, *assignments, options=PlanOptions(allow_deletes=9))
    parts = build(PlainRunner(), plan)
    catalog = write_catalog(lake, parts["passages"])
    snapshot = assemble(plan.workspace, lake, plan, parts, catalog, "none")
    flip(lake, plan, snapshot, author="me", reason="test")
    return snapshot.name


def check(lake: Lake, model: Model) -> None:
    for name, documents in model.snapshots.items():
        reader = SnapshotReader(lake, name)
        of = reader.documents().column("uri").to_pylist()
        assert set(of) == set(documents)
        for members in ((), ("g",), ("h",), ("g", "i"), GROUPS):
            shown = reader.visibility.of(members).chunks
            for row, document in enumerate(reader.document_rows()):
                uri = of[document]
                may = model.may_see(name, uri, frozenset(members))
                assert bool(shown[row]) is may, (name, uri, members)
                if not may:
                    with pytest.raises(UsageError):
                        reader.find(reader.chunk_id(row), members)
        everything = {of[document] for document in reader.document_rows()[reader.visibility.of(None).chunks]}
        assert everything == set(documents) - model.buried


@settings(max_examples=int(os.environ.get("GLOSSATOR_EXAMPLES", "8")), deadline=None, derandomize=True)
@example(
    first={"front": {"a.md": None, "x/b.md": ("g",)}, "sidecars": {"a.md": ("g",)}, "rules": []},
    sequence=[("plan", {"front": {"a.md": None, "x/b.md": ("g",)}, "sidecars": {}, "rules": []})],
)
@given(first=worlds, sequence=events)
def test_nobody_is_ever_shown_a_passage_that_they_may_not_see(first: Any, sequence: list[tuple[str, Any]]) -> None:
    with TemporaryDirectory() as root:
        docs = Path(root) / "docs"
        lake = lake_beside(docs)
        model = Model()
        model.publish(publish(docs, write(docs, first)), first)
        check(lake, model)
        for verb, what in sequence:
            match verb:
                case "plan":
                    plan_of(docs, *write(docs, what), options=PlanOptions(allow_deletes=9))
                    model.plan(what, model.stated[model.current])
                case "publish":
                    assignments = write(docs, what)
                    model.plan(what, model.stated[model.current])
                    model.publish(publish(docs, assignments), what)
                case "roll back":
                    model.current = sorted(model.snapshots)[what % len(model.snapshots)]
                    number = lake.current_flip().number + 1  # type: ignore[union-attr]
                    when = stone("").when
                    lake.create_flip(Flip(number=number, snapshot=model.current, author="", reason="", created=when))
                case "bury":
                    bury(lake, stone(what))
                    model.buried.add(what)
                case "unbury":
                    unbury(lake, stone(what).doc_id)
                    model.buried.discard(what)
            check(lake, model)
