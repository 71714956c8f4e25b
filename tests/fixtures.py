"""Small corpora, indexed for real: hash vectors, Milvus Lite, the plain runner, a lake in a temporary folder."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import numpy.typing as npt
import polars as pl

from flows.index import build, describe, index, quarantine
from flows.runner import PlainRunner
from schemas.config import Config, read_config
from schemas.plan import Plan
from schemas.report import IndexReport
from schemas.snapshot import PartRef, Snapshot, Stage
from tasks.lake.access import left_of_purges
from tasks.lake.lake import MANIFEST, Lake, bm25_folder, passages_folder
from tasks.plan.planner import PlanOptions, make_plan, workspace
from tasks.plan.registry import resolve_source
from tasks.plan.stages import indexing_digest
from tasks.publish.catalog import identify, read_arrow, read_catalog, write_catalog
from tasks.publish.doctor import examine
from tasks.publish.lexical import write_bm25
from tasks.publish.milvus import MilvusStore, open_milvus

HASH_MODEL = "embed.model=hash:384"
ALONE = "milvus.shared=false"


def make_config(*assignments: str) -> Config:
    """Return a config with hash vectors, whatever the environment says."""
    return read_config(environ={}, assignments=[HASH_MODEL, ALONE, *assignments])


def closing_door(name: str) -> Callable[..., int]:
    """Return an ``os.open`` that a file of a name may not be opened with."""
    opens = os.open

    def guarded(path: str | Path, *arguments: int) -> int:
        if Path(path).name == name:
            raise PermissionError(errno.EACCES, "Permission denied")
        return opens(path, *arguments)

    return guarded


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
    if plan.nothing_to_do and not left_of_purges(lake):
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


@dataclass(frozen=True, slots=True)
class Made:
    """All that was made of a corpus, in a form that knows neither shards nor the order of work.

    Attributes:
        rows: each chunk with all that a reader sees of it, of its parent and of its document.
        vectors: chunk_id -> vector.
        bm25: checksums of the lexical index's files, which hold every score.
        digests: (stage, shard) -> digest of the part's canonical rows; comparable where ``shards`` are the same.
    """

    id: str
    shards: int
    rows: pl.DataFrame
    vectors: dict[str, npt.NDArray[np.float32]]
    bm25: dict[str, str]
    digests: dict[tuple[str, int], str]


def made_of(lake: Lake, id: str, shards: int, parts: Mapping[Stage, Sequence[PartRef]], bm25: str) -> Made:
    """Read what a snapshot, or a build that was not published, is made of."""
    frames, vectors = [], {}
    for ref in parts["passages"]:
        folder = lake.open_folder(passages_folder(ref.key))
        documents, parents = (
            read_arrow(folder / f"{name}.arrow").with_row_index(key).with_columns(pl.col(key).cast(pl.Int32))
            for name, key in (("documents", "document"), ("parents", "parent"))
        )
        chunks = read_arrow(folder / "chunks.arrow")
        frames.append(
            chunks.join(documents, on="document", validate="m:1")
            .join(parents.drop("document"), on="parent", suffix=" of parent", validate="m:1")
            .drop("document", "parent")
        )
        vectors.update(zip(chunks["chunk_id"].to_list(), np.load(folder / "vectors.npy"), strict=True))
    manifest = lake.read_json(f"{bm25_folder(bm25)}/{MANIFEST}")
    return Made(
        id=id,
        shards=shards,
        rows=pl.concat(frames).sort("chunk_id"),
        vectors=vectors,
        bm25={name: entry["sha256"] for name, entry in manifest.items()},
        digests={(ref.stage, ref.shard): ref.rows_digest for refs in parts.values() for ref in refs},
    )


def made(lake: Lake) -> Made:
    """Read what the published snapshot is made of."""
    snapshot = published(lake)
    return made_of(lake, snapshot.id, snapshot.shards, snapshot.parts, snapshot.bm25)


def made_cleanly(folder: Path, *assignments: str) -> Made:
    """Build a folder in a new lake of its own; its vectors lie in the passages, no vector store is filled."""
    lake = Lake(Path(mkdtemp(prefix="clean-", dir=folder.parent)), "default")
    plan = plan_of(folder, *assignments, lake=lake)
    space, parts = plan.workspace, build(PlainRunner(), plan)
    catalog = write_catalog(lake, parts["passages"])
    bm25 = write_bm25(lake, space.config.bm25, catalog, parts["passages"], parts["tokens"])
    id = identify(lake, indexing_digest(space.config, space.stages), catalog, parts["passages"])
    return made_of(lake, id, plan.shards, parts, bm25)


def differences(one: Made, other: Made) -> list[str]:
    """Return in what two builds differ: equal documents and config make equal rows and scores."""
    found = [name for name in ("id", "bm25") if getattr(one, name) != getattr(other, name)]
    if not one.rows.equals(other.rows):
        found.append("rows")
    if one.vectors.keys() != other.vectors.keys() or any(
        one.vectors[key] @ other.vectors[key] < 0.9999 for key in one.vectors
    ):
        found.append("vectors")
    if one.shards == other.shards and one.digests != other.digests:
        found += [f"part of {key}" for key in one.digests if one.digests[key] != other.digests.get(key)]
    return found


def ailments(folder: Path, name: str | None = None) -> dict[str, str]:
    """Return what the doctor finds wrong with a snapshot, the published one if none is named: check -> message."""
    lake = lake_beside(folder)
    snapshot = published(lake) if name is None else lake.read_snapshot(name)
    space = workspace(lake, make_config())
    return {finding.check: finding.message for finding in examine(space, lake, snapshot) if not finding.ok}
