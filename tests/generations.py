"""A corpus of which every generation can be told from every passage: indexed for real, with hash vectors, Milvus Lite
and the plain runner."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Collection
from contextlib import closing
from pathlib import Path

from flows.index import index
from flows.runner import PlainRunner
from query.opening import open_retriever
from query.retriever import SearchResult
from schemas.config import Config, read_config
from schemas.snapshot import Flip, Snapshot
from tasks.lake.lake import Lake
from tasks.plan.planner import PlanOptions, make_plan, workspace
from tasks.plan.registry import resolve_source
from tasks.publish.catalog import read_catalog
from tasks.publish.doctor import examine
from tasks.publish.milvus import open_milvus
from tasks.publish.sweep import SweepPolicy

NOW = dt.timedelta(0)
AT_ONCE = SweepPolicy(grace=NOW, passages=NOW, parts=NOW, records=NOW, temporary=NOW)
"""Nothing that is not needed survives a sweep."""

DOCUMENTS = 4
QUESTION = "Which generation is the gauge of?"


class Generations:
    """A collection in a folder of its own, published generation by generation.

    Attributes:
        corpus: the source.
        documents: how many documents a generation changes; ``always.md`` never changes.
    """

    def __init__(self, folder: Path, *assignments: str, name: str = "default", documents: int = DOCUMENTS) -> None:
        self.corpus = folder / "corpus"
        self.corpus.mkdir(exist_ok=True)
        (self.corpus / "always.md").write_text("# Tides\n\nThe tide of this gauge comes in twice a day, always.\n")
        self.lake = Lake(folder / "lake", name)
        self.documents = documents
        self.config: Config = read_config(
            environ={}, assignments=["embed.model=hash:384", f"collection={name}", *assignments]
        )

    def write(self, generation: int) -> None:
        """Make every document say which generation it is of."""
        for number in range(self.documents):
            text = f"# Gauge {number}\n\nThe gauge {number} is of generation-{generation} and of no other.\n"
            (self.corpus / f"gauge-{number}.md").write_text(text)

    def publish(self, generation: int | None = None, *, migrate: bool = False) -> Snapshot:
        """Index and publish; return what is current then."""
        if generation is not None:
            self.write(generation)
        options = PlanOptions(migrate=migrate, allow_deletes=100)
        plan = make_plan(self.lake, self.config, [resolve_source(self.lake, str(self.corpus), None)], options)
        if not plan.nothing_to_do:
            index(PlainRunner(), plan, options, "test")
        return self.current()

    def current(self) -> Snapshot:
        """Return what readers use."""
        snapshot = self.lake.current_snapshot()
        assert snapshot is not None
        return snapshot

    def flip(self) -> Flip:
        """Return the pointer."""
        flip = self.lake.current_flip()
        assert flip is not None
        return flip

    def search(self, question: str = QUESTION, name: str | None = None) -> SearchResult:
        """Search with both sides, in a retriever of its own."""
        with closing(open_retriever(self.lake, self.config, name)) as retriever:
            return retriever.search(question, 20)

    def ids(self, name: str) -> set[str]:
        """Return the chunks of a snapshot."""
        catalog = self.lake.read_snapshot(name).catalog
        return set(read_catalog(self.lake, catalog, "chunks", ["chunk_id"])["chunk_id"].to_list())

    def rows(self, collection: str | None = None) -> set[str]:
        """Return all ids in Milvus."""
        ref = self.current().vectors
        if collection is not None:
            ref = ref.model_copy(update={"collection": collection})
        with closing(open_milvus(self.config.milvus, self.lake, ref)) as store:
            return set(store.ids())

    def ailments(self, names: Collection[str] | None = None) -> list[str]:
        """Return what the doctor finds wrong with all retained snapshots."""
        space = workspace(self.lake, self.config)
        return [
            f"{name}: {finding.check}: {finding.message}"
            for name in (self.flip().retained if names is None else names)
            for finding in examine(space, self.lake, self.lake.read_snapshot(name))
            if not finding.ok
        ]


def generations(result: SearchResult) -> set[int]:
    """Return the generations that the passages of an answer speak of."""
    texts = (hit.passage.text for hit in result.hits)
    return {int(number) for text in texts for number in re.findall(r"generation-(\d+)", text)}
