"""Real histories, indexed revision by revision: each gives what a clean build gives, for little more than it must.

Here the newest revisions of a part of each; ``python -m tests.benchmarks.replay`` replays all of it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.replay import median_ratio, replay, table
from tests.shared import SHARED

CORPORA = SHARED / "corpora"

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not CORPORA.is_dir(), reason=f"no corpora in {SHARED} (set GLOSSATOR_SHARED)"),
]


@pytest.mark.parametrize(
    ("name", "folder", "only", "last", "most"),
    [
        ("rust_book", ".", "**/ch1*.md", 3, 2.5),
        # Few words of many one-line paragraphs: each costs its chunk. Of the whole history the median is 1.9.
        ("fastapi", "docs/en/docs", "tutorial/**/*.md", 4, 3.0),
    ],
)
def test_each_revision_of_a_real_corpus_is_indexed_as_a_clean_build_would(
    tmp_path: Path, name: str, folder: str, only: str, last: int, most: float
) -> None:
    steps = list(replay(CORPORA / name / "history.bundle", tmp_path, folder, only, last))
    told = table(steps)
    assert len(steps) == last, told
    assert all(step.documents > 20 for step in steps), told
    assert sum(step.changed for step in steps[1:]) > 20, told
    assert all(step.same for step in steps), told
    assert all(step.embedded <= step.chunks for step in steps), told
    assert median_ratio(steps) <= most, told
