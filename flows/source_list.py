"""The sources of a collection, with what is published of each."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from schemas.snapshot import Record
from tasks.lake.lake import Lake
from tasks.plan.quarantine import read_quarantine
from tasks.plan.registry import list_sources


class SourceState(Record):
    """A source.

    Attributes:
        root: None for one that is published and no longer recorded (after a rollback to before its removal).
        there: False where the root is a folder that is not there now.
        documents: in the published snapshot.
        failing: documents in quarantine, whether or not an earlier version of them is published.
    """

    name: str
    root: str | None
    there: bool
    documents: int
    failing: int


def read_sources(lake: Lake) -> list[SourceState]:
    """Return all sources that are recorded or published, by name."""
    roots = {spec.name: spec.root for spec in list_sources(lake)}
    documents = count_documents(lake)
    failing = Counter(item.failure.source for item in read_quarantine(lake).values())
    return [
        SourceState(
            name=name,
            root=roots.get(name),
            there=name in roots and ("://" in roots[name] or Path(roots[name]).is_dir()),
            documents=documents[name],
            failing=failing[name],
        )
        for name in sorted(roots.keys() | documents.keys())
    ]


def count_documents(lake: Lake) -> Counter[str]:
    """Return the number of documents of each source in the published snapshot."""
    snapshot = lake.current_snapshot()
    if snapshot is None:
        return Counter()
    from tasks.publish.catalog import read_catalog

    return Counter(read_catalog(lake, snapshot.catalog, "documents", ["source"])["source"].to_list())
