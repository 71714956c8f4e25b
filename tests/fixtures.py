"""Small corpora, indexed for real: hash vectors, Milvus Lite, the plain runner, a lake in a temporary folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

from flows.index import build, describe, index, quarantine
from flows.runner import PlainRunner
from schemas.config import Config, read_config
from schemas.plan import Plan
from schemas.report import IndexReport
from schemas.snapshot import Snapshot
from tasks.lake.lake import MANIFEST, Lake, bm25_folder
from tasks.plan.planner import PlanOptions, make_plan, workspace
from tasks.plan.registry import resolve_source
from tasks.plan.stages import indexing_digest
from tasks.publish.candidate import vector_store
from tasks.publish.catalog import identify, read_catalog, write_catalog
from tasks.publish.doctor import examine
from tasks.publish.milvus import MilvusStore, open_milvus

HASH_MODEL = "embed.model=hash:384"
ALONE = "milvus.shared=false"


def make_config(*assignments: str) -> Config:
    """Return a config with hash vectors, whatever the environment says."""
    return read_config(environ={}, assignments=[HASH_MODEL, ALONE, *assignments])


def make_corpus(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """Make a folder hold exactly these files; those that hold the same bytes already are not touched."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.relative_to(folder).as_posix() not in files:
            path.unlink()
    for uri, text in files.items():
        data = text.encode() if isinstance(text, str) else text
        path = folder / uri
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_bytes() != data:
            path.write_bytes(data)
    return folder


def lake_beside(folder: Path) -> Lake:
    """Return the lake that ``run`` fills."""
    return Lake(folder.parent / "lake", "default")


def plan_of(
    folder: Path,
    *assignments: str,
    lake: Lake | None = None,
    source: str | None = None,
    options: PlanOptions | None = None,
) -> Plan:
    """Plan a run over a folder."""
    lake = lake or lake_beside(folder)
    return make_plan(lake, make_config(*assignments), [resolve_source(lake, str(folder), source)], options)


def run(
    folder: Path,
    *assignments: str,
    lake: Lake | None = None,
    source: str | None = None,
    options: PlanOptions | None = None,
) -> IndexReport:
    """Index a folder as the command line does with ``--runner plain``."""
    lake = lake or lake_beside(folder)
    plan = plan_of(folder, *assignments, lake=lake, source=source, options=options)
    if plan.nothing_to_do:
        quarantine(lake, plan)
        return describe(lake, plan)
    return index(PlainRunner(), plan, options or PlanOptions(), "test")


def published(lake: Lake) -> Snapshot:
    """Return what readers use."""
    snapshot = lake.current_snapshot()
    assert snapshot is not None
    return snapshot


@dataclass(frozen=True, slots=True)
class Contents:
    """All that a reader can find in a snapshot.

    Attributes:
        chunks: chunk_id -> URI of its document.
        bm25: checksums of the lexical index's files, which hold every score.
        unstored: chunks that Milvus lacks.
    """

    id: str
    documents: frozenset[str]
    chunks: dict[str, str]
    bm25: dict[str, str]
    unstored: frozenset[str]

    @property
    def uris(self) -> set[str]:
        """URIs of documents that have chunks."""
        return set(self.chunks.values())


def contents(lake: Lake) -> Contents:
    """Read a published snapshot from its three stores."""
    snapshot = published(lake)
    documents = read_catalog(lake, snapshot.catalog, "documents")
    chunks = read_catalog(lake, snapshot.catalog, "chunks")
    uris = documents["uri"].to_list()
    ids = chunks["chunk_id"].to_list()
    manifest = lake.read_json(f"{bm25_folder(snapshot.bm25)}/{MANIFEST}")
    store = store_of(lake)
    try:
        held = store.present(ids)
    finally:
        store.close()
    return Contents(
        id=snapshot.id,
        documents=frozenset(uris),
        chunks=dict(zip(ids, (uris[row] for row in chunks["document"].to_list()), strict=True)),
        bm25={name: entry["sha256"] for name, entry in manifest.items()},
        unstored=frozenset(set(ids) - held),
    )


def store_of(lake: Lake) -> MilvusStore:
    """Open the Milvus collection of the published snapshot."""
    return open_milvus(make_config().milvus, lake, published(lake).vectors)


def clean_build(folder: Path) -> Contents:
    """Index a folder in a new lake of its own and return what is in it."""
    lake = Lake(Path(mkdtemp(prefix="clean-", dir=folder.parent)), "default")
    run(folder, lake=lake)
    return contents(lake)


def clean_id(folder: Path) -> str:
    """Return the snapshot id of a clean build, without building its vector and lexical stores."""
    lake = Lake(Path(mkdtemp(prefix="clean-", dir=folder.parent)), "default")
    plan = plan_of(folder, lake=lake)
    passages = build(PlainRunner(), plan, {})["passages"]
    assert vector_store(plan.workspace).dimension == 384
    indexing = indexing_digest(plan.workspace.config, plan.workspace.stages)
    return identify(lake, indexing, write_catalog(lake, passages), passages)


def ailments(folder: Path) -> dict[str, str]:
    """Return what the doctor finds wrong: check -> message."""
    lake = lake_beside(folder)
    space = workspace(lake, make_config())
    return {finding.check: finding.message for finding in examine(space, lake, published(lake)) if not finding.ok}
