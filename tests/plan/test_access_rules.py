"""Who may see a document: rules before sidecars before the document's own word, and nothing is open by mistake."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import tasks.publish.candidate
from flows.index import build, publish
from flows.runner import PlainRunner
from query.snapshot_reader import SnapshotReader
from schemas.errors import Overtaken, PlanRefused
from schemas.identity import acl_id, document_id
from schemas.plan import ChangeCounts
from tasks.lake.access import put_back_access, read_access
from tasks.lake.lake import Corrupt, Lake, snapshot_path
from tasks.plan.planner import PlanOptions, make_plan
from tasks.plan.registry import list_sources
from tasks.publish.catalog import read_catalog
from tasks.publish.history import resume, rollback
from tests.fixtures import ailments, lake_beside, make_config, make_corpus, plan_of, published, run, store_of

HR = 'access.rules=[{"match":"docs/hr/**","groups":["hr"]}]'
FILES = {
    "hr/pay.md": "---\ngroups: [everyone]\n---\n# Pay\n\nWhat people earn.\n",
    "hr/plan.md": "# Plan\n\nWho is promoted.\n",
    "hr/plan.md.groups": "board\n",
    "legal.md": "---\ngroups: [legal, board]\n---\n# Case\n\nThe case.\n",
    "open.md": "# Open\n\nFor all.\n",
}


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    return make_corpus(tmp_path / "docs", FILES)


def groups(docs: Path) -> dict[str, list[str] | None]:
    lake = lake_beside(docs)
    documents = read_catalog(lake, published(lake).catalog, "documents", ["uri", "groups"])
    return {uri: None if one is None else list(one) for uri, one in documents.iter_rows()}


def today(docs: Path) -> dict[str, tuple[str, ...]]:
    uris = {document_id("docs", path.relative_to(docs).as_posix()): path.name for path in docs.rglob("*.md")}
    return {uris[doc_id]: groups for doc_id, groups in read_access(lake_beside(docs)).groups.items()}


# --- where groups come from ------------------------------------------------------------------------------------------


def test_a_rule_wins_over_a_sidecar_and_a_sidecar_over_front_matter(docs: Path) -> None:
    make_corpus(docs, {**FILES, "legal.md.groups": "court"})
    run(docs, HR)
    assert groups(docs) == {"hr/pay.md": ["hr"], "hr/plan.md": ["hr"], "legal.md": ["court"], "open.md": None}
    assert today(docs) == {"pay.md": ("hr",), "plan.md": ("hr",), "legal.md": ("court",)}


def test_without_rules_sidecars_and_front_matter_count(docs: Path) -> None:
    run(docs)
    expected = {"hr/pay.md": ["everyone"], "hr/plan.md": ["board"], "legal.md": ["board", "legal"], "open.md": None}
    assert groups(docs) == expected


def test_the_first_rule_that_matches_counts(docs: Path) -> None:
    rules = (
        '[{"match":"docs/hr/pay.*","groups":[]},{"match":"**","groups":["staff"]},{"match":"docs/**","groups":["x"]}]'
    )
    run(docs, f"access.rules={rules}")
    assert groups(docs) == {"hr/pay.md": [], "hr/plan.md": ["staff"], "legal.md": ["staff"], "open.md": ["staff"]}


def test_rules_stand_in_the_configuration_file(tmp_path: Path) -> None:
    from schemas.config import read_config

    file = tmp_path / "glossator.toml"
    file.write_text('[[access.rules]]\nmatch = "hr/**"\ngroups = ["hr", " the  board "]\n')
    (rule,) = read_config(file=file, environ={}).access.rules
    assert (rule.match, rule.groups) == ("hr/**", ("hr", "the board"))


# --- sidecars --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sidecar", "expected"),
    [
        ("hr\nlegal\n", ["hr", "legal"]),
        ("# who\n\n  hr \t\r\nhr\n", ["hr"]),
        ("the  board # and nobody else\nC#\n", ["C#", "the board"]),
        ("\ufeffhr", ["hr"]),
        ("人事部\n", ["人事部"]),
        ("", []),
        ("# nobody yet\n", []),
    ],
)
def test_a_sidecar_names_one_group_a_line(tmp_path: Path, sidecar: str, expected: list[str]) -> None:
    docs = make_corpus(tmp_path / "docs", {"a.md": "# A\n\nwords\n", "a.md.groups": sidecar})
    report = run(docs)
    assert groups(docs) == {"a.md": expected}
    assert (report.denied, report.skipped, report.documents.added) == ((), {}, 1)


@pytest.mark.parametrize("what", ["latin-1", "comma", "unreadable", "link to nothing", "folder"])
def test_a_sidecar_that_cannot_be_read_denies_the_document_to_all_and_is_reported(tmp_path: Path, what: str) -> None:
    docs = make_corpus(tmp_path / "docs", {"a.md": "---\ngroups: [all]\n---\n# A\n\nwords\n", "b.md": "# B\n\nwords\n"})
    sidecar = docs / "a.md.groups"
    match what:
        case "latin-1":
            sidecar.write_bytes("Geschäftsführung\n".encode("latin-1"))
        case "comma":
            sidecar.write_text("hr, legal\n")
        case "unreadable":
            if os.geteuid() == 0:
                pytest.skip("root reads everything")
            sidecar.write_text("hr\n")
            sidecar.chmod(0)
        case "link to nothing":
            sidecar.symlink_to(docs / "nowhere")
        case "folder":
            sidecar.mkdir()
    report = run(docs)
    assert groups(docs) == {"a.md": [], "b.md": None}
    assert [name for name, _ in report.denied] == ["docs/a.md"]
    assert "a.md.groups" in report.denied[0][1]


def test_a_sidecar_is_ignored_with_its_document_only(docs: Path) -> None:
    run(docs, 'load.ignore=["*.groups", "open*"]')
    assert groups(docs)["hr/plan.md"] == ["board"]
    assert "open.md" not in groups(docs)


def test_a_sidecar_of_no_document_is_told(docs: Path) -> None:
    (docs / "opn.md.groups").write_text("staff\n")
    assert plan_of(docs).sources[0].unusable == (("opn.md.groups", "names the groups of no document"),)


def test_sidecars_alone_are_no_documents(tmp_path: Path) -> None:
    docs = make_corpus(tmp_path / "docs", {"a.md.groups": "hr\n"})
    with pytest.raises(PlanRefused, match="lists no document"):
        run(docs)


# --- what a change costs ---------------------------------------------------------------------------------------------


def test_other_groups_are_a_change_that_loads_and_embeds_nothing(docs: Path) -> None:
    run(docs)
    plan = plan_of(docs, HR)
    assert (plan.counts, plan.bytes, plan.migrates) == (ChangeCounts(changed=2, unchanged=2), 0, ())
    report = run(docs, HR)
    assert (report.documents, report.chunks_embedded) == (ChangeCounts(changed=2, unchanged=2), 0)
    assert groups(docs)["hr/pay.md"] == ["hr"]
    assert plan_of(docs, HR).nothing_to_do
    assert ailments(docs) == {}
    make_corpus(docs, FILES | {"legal.md.groups": "court\n"})
    assert run(docs, HR).documents == ChangeCounts(changed=1, unchanged=3)
    assert plan_of(docs, HR).nothing_to_do


def test_the_snapshot_depends_on_the_groups_and_not_on_how_they_came(docs: Path, tmp_path: Path) -> None:
    first = run(docs).snapshot
    assert run(docs, HR).snapshot != first
    assert run(docs).snapshot == first
    make_corpus(tmp_path / "docs", {**FILES, "hr/plan.md.groups": "hr", "hr/pay.md.groups": "# us\nhr\n"})
    by_sidecars = run(docs)
    assert by_sidecars.snapshot == run(docs, HR).snapshot


def test_rows_carry_the_groups_to_the_vector_store(docs: Path) -> None:
    run(docs, HR)
    lake = lake_beside(docs)
    documents = read_catalog(lake, published(lake).catalog, "documents", ["uri", "acl_id"])
    assert dict(documents.iter_rows())["hr/pay.md"] == acl_id(("hr",))
    chunks = read_catalog(lake, published(lake).catalog, "chunks")
    vector = [0.0] * 384
    vector[0] = 1.0
    store = store_of(lake)
    try:
        import numpy as np

        found = store.search(np.array(vector, np.float32), 10, acl_ids=[acl_id(("hr",)), 7])
    finally:
        store.close()
    uris = documents["uri"].to_list()
    of = {name: uris[row] for name, row in chunks.select("chunk_id", "document").iter_rows()}
    assert {of[name] for name, _ in found} == {"hr/pay.md", "hr/plan.md"}


def test_documents_of_a_source_that_is_not_listed_keep_what_was_granted_and_follow_rules(tmp_path: Path) -> None:
    one = make_corpus(tmp_path / "one", {"a.md": "# A\n\na\n", "a.md.groups": "staff", "b.md": "# B\n\nb\n"})
    two = make_corpus(tmp_path / "two", {"c.md": "# C\n\nc\n"})
    run(one)
    run(two)
    assert groups(one) == {"a.md": ["staff"], "b.md": None, "c.md": None}
    report = run(two, 'access.rules=[{"match":"one/b.md","groups":["hr"]}]')
    assert report.documents == ChangeCounts(changed=1, unchanged=2)
    assert groups(one) == {"a.md": ["staff"], "b.md": ["hr"], "c.md": None}
    lake = lake_beside(one)
    assert make_plan(lake, make_config(), list_sources(lake)).counts.changed == 1


# --- what counts at once ---------------------------------------------------------------------------------------------


def test_a_plan_takes_rights_away_and_a_dry_one_does_not(docs: Path) -> None:
    run(docs)
    before = today(docs)
    plan_of(docs, HR, options=PlanOptions(dry_run=True))
    assert today(docs) == before
    plan_of(docs, HR)
    assert today(docs) == before | {"pay.md": (), "plan.md": ()}, "hr gets them by the publish"
    assert groups(docs)["hr/pay.md"] == ["everyone"], "nothing is published yet"


def test_rights_are_taken_away_even_where_the_plan_is_refused(docs: Path) -> None:
    run(docs)
    with pytest.raises(PlanRefused, match="--migrate"):
        plan_of(docs, HR, "chunk.child_tokens=60")
    assert today(docs)["pay.md"] == ()


def test_what_the_document_says_itself_counts_from_the_publish_on(docs: Path) -> None:
    run(docs)
    make_corpus(docs, FILES | {"legal.md": FILES["legal.md"].replace("legal, board", "court")})
    plan_of(docs)
    assert today(docs)["legal.md"] == ("board", "legal")
    run(docs)
    assert today(docs)["legal.md"] == ("court",)


def test_a_publisher_that_is_killed_at_its_flip_has_opened_nothing(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(docs)
    make_corpus(docs, FILES | {"legal.md": FILES["legal.md"].replace("legal, board", "board, everyone")})

    class Killed(BaseException):
        pass

    def killed(*arguments: object, **options: object) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(tasks.publish.candidate, "point", killed)
        run(docs)
    assert today(docs)["legal.md"] == ("board",)
    run(docs)
    assert today(docs)["legal.md"] == ("board", "everyone")


def test_a_grant_whose_writer_was_killed_after_its_flip_comes_with_the_next_run(
    docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(docs)
    make_corpus(docs, FILES | {"legal.md": FILES["legal.md"].replace("legal, board", "board, everyone")})
    with monkeypatch.context() as patch:
        patch.setattr(tasks.publish.candidate, "widen", lambda *arguments, **options: None)
        run(docs)
    assert today(docs)["legal.md"] == ("board",)
    assert plan_of(docs).withheld == 1
    assert run(docs).chunks_embedded == 0
    assert today(docs)["legal.md"] == ("board", "everyone")
    assert plan_of(docs).nothing_to_do


def test_neither_a_rollback_nor_the_plans_after_it_give_rights_back(docs: Path) -> None:
    """Snapshots roll back, access does not: what was published last said that the board may not see it."""
    run(docs)
    make_corpus(docs, FILES | {"legal.md": FILES["legal.md"].replace("legal, board", "legal")})
    run(docs)
    assert today(docs)["legal.md"] == ("legal",)
    lake = lake_beside(docs)
    rollback(lake, None, author="me", reason="test", milvus=make_config().milvus)
    with pytest.raises(PlanRefused, match="held"):
        plan_of(docs)
    assert groups(docs)["legal.md"] == ["board", "legal"], "of the snapshot"
    assert today(docs)["legal.md"] == ("legal",)
    resume(lake, author="me", reason="test")
    (docs / "legal.md").write_text("---\ngroups: [court, board]\n---\n# Other\n", encoding="utf-8")
    plan_of(docs)
    assert today(docs)["legal.md"] == ("legal",), "the new words are not read yet"
    run(docs)
    assert today(docs)["legal.md"] == ("board", "court")


def test_a_publisher_gives_nothing_where_somebody_has_taken_rights_away_since_its_plan(docs: Path) -> None:
    run(docs)
    make_corpus(docs, FILES | {"legal.md": FILES["legal.md"].replace("legal, board", "board, everyone")})
    plan = plan_of(docs)
    plan_of(docs, HR)  # Another process, whose rules are stricter.
    parts = build(PlainRunner(), plan)
    with pytest.raises(Overtaken, match="who may see what"):
        publish(PlainRunner(), plan, parts, "test")
    assert today(docs)["pay.md"] == ()


def test_rules_reach_documents_that_are_gone_and_still_served(docs: Path) -> None:
    """In older snapshots, to which a rollback leads, and in the current one while the publish is refused."""
    run(docs)
    (docs / "legal.md").unlink()
    run(docs)
    legal = 'access.rules=[{"match":"docs/legal.md","groups":["court"]}]'
    run(docs, legal)
    gone = document_id("docs", "legal.md")
    assert read_access(lake_beside(docs)).groups[gone] == ()
    rollback(lake_beside(docs), "#1", author="me", reason="test", milvus=make_config().milvus)
    reader = SnapshotReader(lake_beside(docs), published(lake_beside(docs)).name)
    assert groups(docs)["legal.md"] == ["board", "legal"]
    shown = reader.visibility.of(["board", "legal", "court"]).chunks
    uris = [reader.documents().column("uri")[row].as_py() for row in reader.document_rows()[shown]]
    assert uris and "legal.md" not in uris


def test_rules_name_an_older_snapshot_that_is_damaged_and_pass_over_one_that_is_gone(
    docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(docs, HR)
    lake = lake_beside(docs)
    older = published(lake).name
    (docs / "legal.md").unlink()
    run(docs, HR)
    path = lake.storage.local(snapshot_path(older))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(Corrupt, match=f"older snapshot {older}.* -> restore that file from a copy, or delete it"):
        plan_of(docs, HR)
    path.unlink()
    names = Lake.snapshot_names
    monkeypatch.setattr(Lake, "snapshot_names", lambda self: [*names(self), older])  # Listed, then swept.
    assert plan_of(docs, HR).nothing_to_do


def test_a_source_that_cannot_be_listed_keeps_no_revocation_back(docs: Path, tmp_path: Path) -> None:
    run(docs)
    more = make_corpus(tmp_path / "more", {"x.md": "# X\n\nx\n"})
    run(more, lake=lake_beside(docs))
    shutil.rmtree(more)
    (docs / "hr/plan.md.groups").write_text("hr\n", encoding="utf-8")
    lake = lake_beside(docs)
    with pytest.raises(PlanRefused, match="cannot list source 'more'"):
        make_plan(lake, make_config(), list_sources(lake)[::-1])
    assert today(docs)["plan.md"] == ()


def test_a_document_that_lost_its_groups_is_nobodys_while_others_have_some(docs: Path) -> None:
    run(docs)
    make_corpus(docs, {uri: text for uri, text in FILES.items() if not uri.endswith(".groups")})
    plan_of(docs)
    assert today(docs)["plan.md"] == ()
    bare = {uri: text.split("---\n")[-1] for uri, text in FILES.items() if not uri.endswith(".groups")}
    make_corpus(docs, bare)
    run(docs)
    plan_of(docs)
    assert today(docs) == {}, "no document has groups any more"


def test_a_lost_table_of_today_denies_until_it_is_put_back_from_its_copy(docs: Path) -> None:
    run(docs, HR)
    before = today(docs)
    lake = lake_beside(docs)
    lake.storage.delete("access/groups.json")
    for look in (lambda: plan_of(docs, HR), lambda: today(docs)):
        with pytest.raises(Corrupt, match=r"groups\.json is missing.*doctor --repair"):
            look()
    assert put_back_access(lake) == ["access/groups.json"]
    assert plan_of(docs, HR).nothing_to_do
    assert today(docs) == before


def test_the_plan_tells_how_many_documents_are_restricted(docs: Path) -> None:
    assert plan_of(docs, HR).restricted == 2, "the others are not read yet"
    run(docs, HR)
    assert plan_of(docs, HR).summary().restricted == 3


def test_corpora_without_groups_have_no_access_folder(tmp_path: Path) -> None:
    docs = make_corpus(tmp_path / "docs", {"a.md": "# A\n\nwords\n"})
    run(docs)
    assert not lake_beside(docs).storage.exists("access")
