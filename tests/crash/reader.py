"""A reader that asks all the time while others publish and are killed, and checks every answer."""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from query.current import CurrentRetriever
from query.retriever import SearchResult
from schemas.config import Config
from schemas.errors import GlossatorError
from tasks.lake.lake import Lake
from tasks.publish.catalog import read_catalog
from tests.crash.inspection import PASSAGES, QUESTION

PAUSE_SECONDS = 0.05


@dataclass
class Watched:
    """What a reader saw.

    Attributes:
        snapshots: names of those that it was answered from.
        refusals: errors it was given instead of an answer, by their first words.
    """

    answers: int = 0
    snapshots: set[str] = field(default_factory=set)
    refusals: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)


def watch(lake: Lake, config: Config, ends: Callable[[], bool]) -> Watched:
    """Ask until it ends. An answer must be all of one published snapshot; an error is no answer."""
    seen = Watched()
    while lake.current_flip() is None:
        if ends():
            return seen
        time.sleep(PAUSE_SECONDS)
    with closing(CurrentRetriever(lake, config, every=0.0)) as current:
        while not ends():
            try:
                found = current.search(QUESTION, PASSAGES, groups=None)
            except GlossatorError as error:
                seen.refusals[re.sub(r"[0-9a-f]{8,}", "…", error.what)[:60]] += 1
            else:
                seen.answers += 1
                seen.snapshots.add(found.snapshot)
                seen.violations += _wrong(lake, found)
            time.sleep(PAUSE_SECONDS)
    return seen


def _wrong(lake: Lake, found: SearchResult) -> list[str]:
    """Return what is wrong with an answer, by files that the reader does not search in."""
    problems = []
    if found.snapshot not in {flip.snapshot for flip in lake.newest_flips()}:
        problems.append(f"answered from {found.snapshot}, which was never published")
    try:
        catalog = lake.read_snapshot(found.snapshot).catalog
        wanted = set(read_catalog(lake, catalog, "chunks", ["chunk_id"])["chunk_id"].to_list())
    except (GlossatorError, FileNotFoundError):  # Swept since: nobody can tell any more.
        wanted = None
    ids = [hit.passage.chunk_id for hit in found.hits]
    if wanted is not None and (set(ids) != wanted or len(ids) != len(wanted)):
        problems.append(
            f"answered with {len(ids)} passages of {found.snapshot}, which has {len(wanted)}; "
            f"{len(set(ids) - wanted)} are not its own"
        )
    editions: dict[str, set[str]] = defaultdict(set)
    for hit in found.hits:
        editions[hit.passage.document.uri].update(re.findall(r"edition (\d+)", hit.passage.text))
    problems += [f"{uri} is shown in editions {sorted(seen)}" for uri, seen in editions.items() if len(seen) > 1]
    return problems


def until(path: Path) -> Callable[[], bool]:
    """Return what is true from when a file is there."""
    return path.exists
