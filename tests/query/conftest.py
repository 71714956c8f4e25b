"""A tiny real snapshot, written through the lake with the schemas that readers are promised."""

from __future__ import annotations

import datetime as dt
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from query.retriever import Retriever
from query.snapshot_reader import SnapshotReader
from schemas.config import Bm25Config, SearchConfig
from schemas.documents import Metadata
from schemas.identity import (
    acl_id,
    chunk_id,
    document_id,
    embedded_digest,
    embedded_text,
    metadata_digest,
    shard_of,
    text_digest,
)
from schemas.snapshot import Counts, Flip, PartRef, Snapshot, VectorStoreRef
from schemas.tables import CATALOG_CHUNKS, CATALOG_DOCUMENTS, PASSAGE_CHUNKS, PASSAGE_DOCUMENTS, PASSAGE_PARENTS
from tasks.embed.encoder import HashEncoder
from tasks.embed.tokenizer import HashTokenizer
from tasks.lake.lake import Lake, ipc_bytes
from tasks.publish.bm25_build import build_bm25
from tasks.tokens.analyzer import Analyzer

SHARDS = 2
DIMENSION = 64
ENCODER = HashEncoder(DIMENSION)


@dataclass(frozen=True)
class Page:
    """A document whose chunks are its paragraphs; all of them have one parent."""

    uri: str
    paragraphs: tuple[str, ...]
    title: str | None = None
    language: str = "en"
    kind: str = "prose"
    pages: tuple[int, ...] = ()
    groups: tuple[str, ...] | None = None


@dataclass
class _Shard:
    documents: list[dict[str, Any]] = field(default_factory=list)
    parents: list[dict[str, object]] = field(default_factory=list)
    chunks: list[dict[str, object]] = field(default_factory=list)


def _npy(array: npt.NDArray[np.float32]) -> bytes:
    sink = io.BytesIO()
    np.save(sink, array)
    return sink.getvalue()


def write_snapshot(lake: Lake, pages: Sequence[Page]) -> str:
    """Write everything that a reader opens, and the flip; return the snapshot's name."""
    shards = [_Shard() for _ in range(SHARDS)]
    embedded: dict[str, str] = {}
    for page in sorted(pages, key=lambda page: document_id("docs", page.uri)):
        doc_id = document_id("docs", page.uri)
        text = "\n\n".join(page.paragraphs)
        metadata = Metadata(type="markdown", title=page.title, language=page.language, groups=page.groups)
        shard = shards[shard_of(doc_id, SHARDS)]
        breadcrumb = [page.title] if page.title else []
        span = {"breadcrumb": breadcrumb, "level": 1, "page_from": None, "page_to": None}
        start = 0
        for index, paragraph in enumerate(page.paragraphs):
            context = page.title or ""
            whole = embedded_text(context, paragraph)
            name = chunk_id(doc_id, whole, metadata, page.paragraphs[:index].count(paragraph))
            embedded[name] = whole
            shard.chunks.append(
                {
                    **span,
                    "chunk_id": name,
                    "document": len(shard.documents),
                    "parent": len(shard.parents),
                    "index": index,
                    "total": len(page.paragraphs),
                    "start": start,
                    "end": start + len(paragraph),
                    "kind": page.kind,
                    "context": context,
                    "origin": "structural",
                    "embedded_digest": embedded_digest(whole),
                }
            )
            start += len(paragraph) + 2
        shard.parents.append(
            {**span, "document": len(shard.documents), "index": 0, "start": 0, "end": len(text), "kind": "prose"}
        )
        shard.documents.append(
            {
                "doc_id": doc_id,
                "source": "docs",
                "uri": page.uri,
                "content_digest": "",
                "text_digest": text_digest(text),
                "metadata_digest": metadata_digest(metadata, tuple(page.pages)),
                "type": "markdown",
                "title": page.title,
                "syntax": None,
                "language": page.language,
                "tags": [],
                "date": None,
                "groups": page.groups,
                "stated_groups": None,
                "granted": None,
                "pages": list(page.pages),
                "flags": [],
                "text": text,
            }
        )
    refs = []
    for number, shard in enumerate(shards):
        shard.chunks.sort(key=lambda row: str(row["chunk_id"]))
        texts = [embedded[str(row["chunk_id"])] for row in shard.chunks]
        lake.write_folder(
            f"passages/p{number}",
            {
                "documents.arrow": ipc_bytes(pa.Table.from_pylist(shard.documents, PASSAGE_DOCUMENTS)),
                "parents.arrow": ipc_bytes(pa.Table.from_pylist(shard.parents, PASSAGE_PARENTS)),
                "chunks.arrow": ipc_bytes(pa.Table.from_pylist(shard.chunks, PASSAGE_CHUNKS)),
                "vectors.npy": _npy(ENCODER.encode(texts) if texts else np.empty((0, DIMENSION), np.float32)),
            },
        )
        refs.append(PartRef(stage="passages", shard=number, key=f"p{number}", config=""))
    _write_catalog(lake, shards)
    ids = sorted(embedded)
    _write_bm25(lake, [embedded[name] for name in ids])
    snapshot = Snapshot(
        id="0" * 32,
        layout="1" * 32,
        collection="default",
        created=dt.datetime(2025, 1, 1, tzinfo=dt.UTC),
        parent=None,
        indexing_digest="",
        config_digests={},
        shards=SHARDS,
        parts={"passages": tuple(refs)},
        catalog="c",
        bm25="b",
        vectors=VectorStoreRef(collection="v", dimension=DIMENSION, model="hash:64", model_identity=""),
        counts=Counts(documents=len(pages), chunks=len(ids), parents=len(pages)),
    )
    lake.write_snapshot(snapshot)
    lake.create_flip(Flip(number=1, snapshot=snapshot.name, author="", reason="", created=snapshot.created))
    return snapshot.name


def _write_catalog(lake: Lake, shards: Sequence[_Shard]) -> None:
    documents = sorted(
        (
            {**document, "acl_id": acl_id(document["groups"]), "tags_id": 0, "shard": number, "row": row, "chunks": 0}
            for number, shard in enumerate(shards)
            for row, document in enumerate(shard.documents)
        ),
        key=lambda document: str(document["doc_id"]),
    )
    places = {(document["shard"], document["row"]): place for place, document in enumerate(documents)}
    chunks = sorted(
        (
            {"chunk_id": chunk["chunk_id"], "document": places[number, chunk["document"]], "shard": number, "row": row}
            for number, shard in enumerate(shards)
            for row, chunk in enumerate(shard.chunks)
        ),
        key=lambda chunk: str(chunk["chunk_id"]),
    )
    rows = [{name: document[name] for name in CATALOG_DOCUMENTS.names} for document in documents]
    lake.write_folder(
        "catalog/c",
        {
            "documents.arrow": ipc_bytes(pa.Table.from_pylist(rows, CATALOG_DOCUMENTS)),
            "chunks.arrow": ipc_bytes(pa.Table.from_pylist(chunks, CATALOG_CHUNKS)),
        },
    )


def _write_bm25(lake: Lake, texts: Sequence[str]) -> None:
    config = Bm25Config()
    analyzer = Analyzer(config)
    terms = [analyzer.terms(text) for text in texts]
    ids: dict[str, int] = {}
    flat = np.array([ids.setdefault(term, len(ids)) for document in terms for term in document], dtype=np.int32)
    offsets = np.cumsum([0, *map(len, terms)])
    lake.write_folder("bm25/b", build_bm25(flat, offsets, list(ids), config))


class ExactIndex:
    """A vector index without approximation, over what it is given: chunk ids and their vectors.

    Attributes:
        asked: ``limit`` of each search.
        acl_ids: of each search; the index leaves them out of account, as rows of one set of groups.
        most: rows that it returns at most, as approximate indexes do.
    """

    def __init__(self, ids: Sequence[str], vectors: npt.NDArray[np.float32], most: int = 10**9) -> None:
        self._ids = ids
        self._vectors = vectors
        self.most = most
        self.asked: list[int] = []
        self.acl_ids: list[Sequence[int] | None] = []

    def search(
        self, vector: npt.NDArray[np.float32], limit: int, ef: int, acl_ids: Sequence[int] | None = None
    ) -> list[tuple[str, float]]:
        assert ef >= limit
        self.asked.append(limit)
        self.acl_ids.append(acl_ids)
        scores = self._vectors @ vector
        order = np.argsort(-scores, kind="stable")[: min(limit, self.most)]
        return [(self._ids[place], float(scores[place])) for place in order]


def index_over(reader: SnapshotReader, invisible: int = 0, most: int = 10**9) -> ExactIndex:
    """Return an index of a snapshot's chunks and of ``invisible`` rows, equal in vectors, of other snapshots."""
    rows = np.arange(reader.size)
    vectors = reader.vectors(rows)
    others = np.resize(vectors, (invisible, DIMENSION)) if invisible else vectors[:0]
    ids = [f"{number:032d}" for number in range(invisible)] + [reader.chunk_id(row) for row in rows]
    return ExactIndex(ids, np.concatenate([others, vectors]), most)


HANDBOOK = (
    Page(
        "leave.md",
        (
            "You have 27 days of paid leave a year, and the public holidays on top.",
            "When someone close to you dies you have ten days of paid leave. For a pet it is one day.",
        ),
        title="Leave policy",
    ),
    Page(
        "errors.md",
        (
            "| Code | Meaning |\n|---|---|\n| E-4021 | The heater draws too little current. |\n"
            "| E-4012 | No water surface was found for 90 seconds. |",
            "Form 4021 is kept by the office for seven years.",
        ),
        title="Error codes",
        kind="table",
    ),
    Page(
        "zh/handbook.md",
        (
            "中秋节前的周五下午博饼，状元的奖品由上一届状元挑选。",
            "出现代码 C-370 表示传感器零点漂移超限，必须停止校准。请换上新的压力芯体。",
        ),
        title="员工手册",
        language="zh",
    ),
    Page("tides.md", tuple(f"Station {number} reports the tide every {number + 2} minutes." for number in range(40))),
    Page("manual.pdf", ("First page about anchors.", "Second page: the zinc anode lasts 30 months."), pages=(0, 27)),
)


@pytest.fixture(scope="session")
def handbook(tmp_path_factory: pytest.TempPathFactory) -> SnapshotReader:
    """The handbook, opened."""
    lake = Lake(tmp_path_factory.mktemp("handbook"), "default")
    return SnapshotReader(lake, write_snapshot(lake, HANDBOOK))


@pytest.fixture
def written(tmp_path: Path) -> tuple[Lake, str]:
    """A handbook of its own, to be damaged."""
    lake = Lake(tmp_path, "default")
    return lake, write_snapshot(lake, HANDBOOK)


@pytest.fixture(scope="session")
def retriever(handbook: SnapshotReader) -> Retriever:
    """A retriever over the handbook."""
    return Retriever(handbook, lambda: index_over(handbook), lambda: ENCODER, HashTokenizer, SearchConfig())


@pytest.fixture(scope="session")
def make_index() -> Callable[..., ExactIndex]:
    """Give ``index_over``."""
    return index_over
