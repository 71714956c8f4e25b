"""The planner: counts, guards, and what it refuses rather than do."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.errors import PlanRefused, UsageError
from schemas.plan import ChangeCounts, Redone
from schemas.snapshot import STAGES, Stage
from tasks.lake.lake import Lake
from tasks.plan.guard import GUARD_DOCUMENTS
from tasks.plan.planner import PlanOptions, make_plan
from tasks.plan.registry import list_sources, resolve_source, source_name
from tests.fixtures import contents, lake_beside, make_config, make_corpus, plan_of, published, run


def pages(count: int, *, first: int = 0) -> dict[str, str]:
    return {f"p{number}.md": f"# Page {number}\n\nText of page {number}.\n" for number in range(first, first + count)}


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    return make_corpus(tmp_path / "docs", pages(3))


def test_a_plan_counts_each_document_once_and_writes_nothing_that_is_published(docs: Path) -> None:
    run(docs)
    files = {**pages(3), "p1.md": "# Other\n\nwords\n", "new.md": "# New\n\npage\n", "copy.md": pages(1)["p0.md"]}
    files["moved.md"] = files.pop("p2.md")
    make_corpus(docs, files)
    plan = plan_of(docs)
    assert plan.counts == ChangeCounts(added=2, changed=1, renamed=1, deleted=0, unchanged=1)
    assert plan.bytes == len(files["p1.md"]) + len(files["new.md"])  # moved and copied ones are not read
    flip = lake_beside(docs).current_flip()
    assert flip is not None
    assert flip.number == 1


def test_nothing_changed_is_nothing_to_do(docs: Path) -> None:
    run(docs)
    plan = plan_of(docs)
    assert plan.nothing_to_do
    assert plan.counts == ChangeCounts(unchanged=3)


def test_unsupported_files_are_counted_by_ending(docs: Path) -> None:
    for name in ("a.xyz", "b.XYZ", "Makefile_", "c.bin"):
        (docs / name).write_text("x")
    (source,) = plan_of(docs).sources
    assert (source.listed, source.skipped) == (3, {"(no ending)": 1, "bin": 1, "xyz": 2})
    assert source.skipped_first == ("Makefile_", "a.xyz", "b.XYZ")


def test_documents_without_a_word_do_not_come_back_as_new_every_night(docs: Path) -> None:
    """knowledge-base-mcp-server#695, yeti#1379: work that is done again every night."""
    make_corpus(docs, {**pages(3), "blank.md": " \n\n", "empty.txt": "", "empty.py": ""})
    run(docs)
    assert plan_of(docs).nothing_to_do
    assert plan_of(docs).failures == ()
    lake = lake_beside(docs)
    assert contents(lake).uris == set(pages(3))
    make_corpus(docs, {**pages(3), "blank.md": "# No longer blank\n\nwords\n", "empty.py": ""})
    assert run(docs).documents == ChangeCounts(changed=1, deleted=1, unchanged=4)
    assert contents(lake).uris == {*pages(3), "blank.md"}


def test_a_document_that_loses_its_words_loses_its_chunks(docs: Path) -> None:
    """dify#9354, ragflow#7130: deleted content is still answered."""
    run(docs)
    make_corpus(docs, {**pages(3), "p1.md": "\n"})
    run(docs)
    assert contents(lake_beside(docs)).uris == {"p0.md", "p2.md"}
    assert plan_of(docs).nothing_to_do


# --- guards ----------------------------------------------------------------------------------------------


def test_mass_deletion_is_refused_with_the_number_to_allow(tmp_path: Path) -> None:
    docs = make_corpus(tmp_path / "docs", pages(30))
    run(docs)
    before = contents(lake_beside(docs))
    gone = GUARD_DOCUMENTS + 1
    make_corpus(docs, pages(30 - gone, first=gone))
    with pytest.raises(PlanRefused, match=f"{gone} of 30 documents of source 'docs' are gone.*--allow-deletes {gone}"):
        run(docs)
    with pytest.raises(PlanRefused):
        run(docs, options=PlanOptions(allow_deletes=gone - 1))
    assert contents(lake_beside(docs)) == before
    assert run(docs, options=PlanOptions(allow_deletes=gone)).documents.deleted == gone
    assert len(contents(lake_beside(docs)).documents) == 30 - gone


def test_a_handful_of_deletions_needs_no_permission(tmp_path: Path) -> None:
    docs = make_corpus(tmp_path / "docs", pages(12))
    run(docs)
    make_corpus(docs, pages(2))
    assert run(docs).documents.deleted == GUARD_DOCUMENTS


def test_moving_everything_is_no_deletion(tmp_path: Path) -> None:
    docs = make_corpus(tmp_path / "docs", pages(15))
    run(docs)
    make_corpus(docs, {f"sub/{uri}": text for uri, text in pages(15).items()})
    assert run(docs).documents == ChangeCounts(renamed=15)


@pytest.mark.parametrize("files", [{}, {"photo.jpg": "x", "b.jpg": "y"}])
def test_an_empty_listing_deletes_nothing(docs: Path, files: dict[str, str]) -> None:
    """langchain PR30520: an empty input deletes the index. Connapse#384: an empty but successful listing wipes it."""
    run(docs)
    before = contents(lake_beside(docs))
    make_corpus(docs, files)
    with pytest.raises(PlanRefused, match=r"lists no document.*its 3 published documents stay"):
        run(docs)
    with pytest.raises(PlanRefused):  # not by permission either: an unmounted folder looks the same
        run(docs, options=PlanOptions(allow_deletes=3))
    assert contents(lake_beside(docs)) == before


def test_a_root_that_is_gone_deletes_nothing(docs: Path) -> None:
    run(docs)
    before = contents(lake_beside(docs))
    docs.rename(docs.with_name("elsewhere"))
    with pytest.raises(PlanRefused, match="cannot list source 'docs'"):
        run(docs)
    assert contents(lake_beside(docs)) == before


def test_a_source_that_holds_up_the_others_names_both_ways_out(docs: Path, tmp_path: Path) -> None:
    lake, other = lake_beside(docs), make_corpus(tmp_path / "other", pages(2, first=50))
    run(docs)
    with pytest.raises(PlanRefused, match="; if it is meant: `glossator source remove docs`$"):
        run(make_corpus(docs, {}))  # There is no other.
    make_corpus(docs, pages(3))
    run(other, lake=lake)
    make_corpus(docs, {})
    ways = f"; to index another source meanwhile: `glossator index {other}`; if it is meant: .* remove docs`$"
    for spoil in (lambda: None, docs.rmdir):
        spoil()
        with pytest.raises(PlanRefused, match=ways):
            make_plan(lake, make_config(), list_sources(lake))
    empty = make_corpus(tmp_path / "empty", {})
    with pytest.raises(PlanRefused) as refusal:
        run(empty, lake=lake)
    assert "source remove" not in str(refusal.value), "it is not recorded"


def test_a_listing_that_fails_once_blocks_nothing_later(docs: Path) -> None:
    """onyx#14261: one failed enumeration blocks deletes for ever."""
    run(docs)
    docs.rename(docs.with_name("elsewhere"))
    with pytest.raises(PlanRefused):
        run(docs)
    docs.with_name("elsewhere").rename(docs)
    make_corpus(docs, pages(2))
    assert run(docs).documents.deleted == 1


@pytest.mark.parametrize(
    ("assignment", "change", "stages"),
    [
        ("load.max_pages=7", "load.max_pages 5000 → 7", STAGES),
        ("chunk.child_tokens=60", "chunk.child_tokens 180 → 60", STAGES[1:]),
        ("context.mode=none", "context.mode structural → none", STAGES[2:]),
        ("embed.model=hash:128", "embed.model hash:384 → hash:128", ("embed", "passages")),
        ("embed.passage_prompt=passage:", 'embed.passage_prompt "" → passage:', STAGES[2:]),
        ("bm25.stem=false", "bm25.stem true → false", ("tokens",)),
    ],
)
def test_a_config_change_that_redoes_documents_is_refused_without_migrate(
    docs: Path, assignment: str, change: str, stages: tuple[Stage, ...]
) -> None:
    """cocoindex-code#285: the chunking config is missing from the cache key; stale chunks stay."""
    run(docs)
    before = published(lake_beside(docs))
    with pytest.raises(PlanRefused, match=r": 3 unchanged documents.*--migrate") as refusal:
        run(docs, assignment)
    assert refusal.value.what.startswith(f"settings changed ({change}): ")
    assert published(lake_beside(docs)) == before
    looked = plan_of(docs, assignment, options=PlanOptions(dry_run=True))
    assert looked.refused == refusal.value.message
    assert looked.redone == Redone(documents=3, stages=stages, settings=(change,))
    report = run(docs, assignment, options=PlanOptions(migrate=True))
    assert report.published and report.redone == looked.redone
    assert report.snapshot != before.id
    assert plan_of(docs, assignment).nothing_to_do


def test_a_snapshot_that_records_no_settings_names_the_stages(docs: Path) -> None:
    run(docs)
    lake = lake_beside(docs)
    key = f"snapshots/{published(lake).name}.json"
    record = lake.read_json(key)
    assert record.pop("settings")["chunk.child_tokens"] == 180
    lake.write_json(key, record)
    with pytest.raises(PlanRefused, match="^config, code or model changed for chunk: 3 unchanged documents"):
        run(docs, "chunk.child_tokens=60")


def test_changed_code_is_told_beside_changed_settings(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(docs)
    monkeypatch.setattr("tasks.plan.stages.LOADER_VERSION", 10**6)
    with pytest.raises(PlanRefused, match="^code or model changed for load: 3 unchanged documents"):
        run(docs)
    words = r"^settings changed \(chunk.child_tokens 180 → 60\), code or model changed for load: 3"
    with pytest.raises(PlanRefused, match=words):
        run(docs, "chunk.child_tokens=60")


def test_all_that_was_published_is_redone_and_what_is_new_is_not(docs: Path) -> None:
    run(docs)
    make_corpus(docs, {**pages(2), "p1.md": "# Other\n\nwords\n", "moved.md": pages(3)["p2.md"], "new.md": "# New\n"})
    plan = plan_of(docs, "chunk.child_tokens=60", options=PlanOptions(migrate=True))
    assert plan.counts == ChangeCounts(added=1, changed=1, renamed=1, unchanged=1)
    assert plan.redone is not None and plan.redone.documents == 3
    assert plan_of(docs).redone is None


def test_a_new_model_gets_a_collection_of_its_own(docs: Path) -> None:
    """open-webui#11279: a new embedding model meets the old collection."""
    run(docs)
    before = published(lake_beside(docs)).vectors
    run(docs, "embed.model=hash:128", options=PlanOptions(migrate=True))
    after = published(lake_beside(docs)).vectors
    assert before.collection != after.collection
    assert (before.dimension, after.dimension) == (384, 128)
    assert contents(lake_beside(docs)).unstored == frozenset()


def test_operational_changes_redo_nothing(docs: Path) -> None:
    run(docs)
    assert plan_of(docs, "run.workers=9", "embed.batch_tokens=99", "search.candidates=3").nothing_to_do


def test_chunks_that_would_not_fit_the_model_are_refused_before_any_work(docs: Path) -> None:
    """A model that truncates at 256 tokens gets 400-token chunks, and nobody is told."""
    with pytest.raises(UsageError, match=r"hash:384 takes 256 tokens.*child_tokens to at most 192"):
        plan_of(docs, "chunk.child_tokens=400")


# --- sources ---------------------------------------------------------------------------------------------


def test_another_root_under_a_recorded_name_is_refused(docs: Path, tmp_path: Path) -> None:
    run(docs)
    other = make_corpus(tmp_path / "other" / "docs", pages(1))
    lake = lake_beside(docs)
    with pytest.raises(PlanRefused, match=r"source 'docs' of collection 'default' has the root .*--source NAME"):
        resolve_source(lake, str(other), None)
    report = run(other, lake=lake, source="second")
    assert report.documents == ChangeCounts(added=1, unchanged=3)
    assert [spec.name for spec in list_sources(lake)] == ["docs", "second"]


def test_a_source_that_is_not_listed_is_carried_over(docs: Path, tmp_path: Path) -> None:
    run(docs)
    lake = lake_beside(docs)
    other = make_corpus(tmp_path / "other", pages(2, first=50))
    run(other, lake=lake)
    make_corpus(docs, pages(1))  # changes there are none of this run's business
    make_corpus(other, pages(1, first=50))
    assert run(other, lake=lake).documents == ChangeCounts(deleted=1, unchanged=4)
    assert contents(lake).uris == {*pages(3), "p50.md"}


def test_one_folder_is_one_source_however_it_is_written(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(docs)
    lake = lake_beside(docs)
    monkeypatch.chdir(docs)
    for way in (".", "../docs", f"{docs}/", f"{docs}/../docs", f"{docs.parent}//docs/."):
        assert resolve_source(lake, way, None) == list_sources(lake)[0]


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", "default")
    (tmp_path / "a.md").write_text("x")
    with pytest.raises(UsageError, match="there is no folder"):
        resolve_source(lake, str(tmp_path / "none"), None)
    with pytest.raises(UsageError, match=r"is a file, not a folder.*index the folder that holds it"):
        resolve_source(lake, str(tmp_path / "a.md"), None)
    with pytest.raises(UsageError, match="lower-case"):
        resolve_source(lake, str(tmp_path), "My Source")


@pytest.mark.parametrize(
    ("root", "name"), [("/a/Team Docs", "team-docs"), ("/a/灯塔", "source"), ("/", "source"), ("/x/v2.1_b", "v2-1-b")]
)
def test_default_names_are_plain(root: str, name: str) -> None:
    assert source_name(root) == name


def test_a_source_is_recorded_when_it_is_published_not_when_it_is_planned(docs: Path) -> None:
    lake = lake_beside(docs)
    plan = make_plan(lake, make_config(), [resolve_source(lake, str(docs), None)])
    assert [spec.name for spec in plan.new_sources] == ["docs"]
    assert list_sources(lake) == []
    run(docs)
    assert [spec.name for spec in list_sources(lake)] == ["docs"]
