"""Whatever happens to a corpus, indexing it step by step gives the snapshot that a clean build gives."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import schemas.identity
from tasks.plan.planner import PlanOptions
from tests.fixtures import ailments, clean_id, lake_beside, make_corpus, plan_of, published, run

URIS = ("a.md", "b.md", "c.md", "sub/a.md", "sub/d.md", "灯/e.md", "f.txt", "g.md")
TITLES = ("Anchors", "灯塔", "Buoys")
WORDS = ("Zinc is eaten first.", "灯塔每隔五秒闪一次。", "Red to port.", "Two words")


@st.composite
def texts(draw: st.DrawFn) -> str:
    """A small Markdown document; few words, so that equal documents and equal sections happen."""
    sections = draw(st.lists(st.tuples(st.sampled_from(TITLES), st.sampled_from(WORDS)), min_size=0, max_size=3))
    front = draw(st.sampled_from(["", "", "---\ntags: [x]\n---\n", "---\ndate: 2025-03-04\n---\n"]))
    body = "".join(f"## {title}\n\n{words}\n\n" for title, words in sections)
    return f"{front}# {draw(st.sampled_from(TITLES))}\n\n{draw(st.sampled_from(WORDS))}\n\n{body}"


corpora = st.dictionaries(st.sampled_from(URIS), texts(), min_size=1, max_size=len(URIS))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from(URIS), texts()),
        st.tuples(st.just("append"), st.sampled_from(URIS), st.sampled_from(WORDS)),
        st.tuples(st.just("rename"), st.sampled_from(URIS), st.sampled_from(URIS)),
        st.tuples(st.just("copy"), st.sampled_from(URIS), st.sampled_from(URIS)),
        st.tuples(st.just("delete"), st.sampled_from(URIS), st.none()),
        st.tuples(st.just("touch"), st.sampled_from(URIS), st.none()),
    ),
    min_size=1,
    max_size=6,
)


def after(files: dict[str, str], step: tuple[str, str, str | None]) -> dict[str, str]:
    """Return the corpus after a step; one that does not apply changes nothing."""
    verb, uri, what = step
    if verb == "write":
        return files | {uri: what or ""}
    if uri not in files:
        return files
    match verb:
        case "append":
            return files | {uri: f"{files[uri]}\n\n{what}\n"}
        case "copy":
            return files | {str(what): files[uri]}
        case "rename":
            return {name: text for name, text in files.items() if name != uri} | {str(what): files[uri]}
        case "delete" if len(files) > 1:
            return {name: text for name, text in files.items() if name != uri}
    return files


@pytest.mark.parametrize("per_shard", [2, 256])
@settings(max_examples=10, deadline=None, derandomize=True)
@given(files=corpora, sequence=steps)
def test_every_step_gives_the_snapshot_of_a_clean_build(
    per_shard: int, files: dict[str, str], sequence: list[tuple[str, str, str | None]]
) -> None:
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as root:
        patch.setattr(schemas.identity, "DOCUMENTS_PER_SHARD", per_shard)
        docs = make_corpus(Path(root) / "docs", files)
        run(docs)
        for step in sequence:
            before = files
            files = after(files, step)
            make_corpus(docs, files)
            if step[0] == "touch" and step[1] in files:
                os.utime(docs / step[1], ns=(10**18, 10**18))
            report = run(docs, options=PlanOptions())
            assert report.snapshot == published(lake_beside(docs)).id == clean_id(docs)
            assert report.published == (files != before)
            assert report.failed == ()
            if step[0] in {"rename", "copy", "touch", "delete"}:
                assert report.chunks_embedded == 0
        assert plan_of(docs).nothing_to_do
        assert ailments(docs) == {}
