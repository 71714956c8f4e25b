"""The vector store: Milvus, embedded (Milvus Lite in the lake) or a server.

Rows are versions: a chunk_id is inserted once and never edited, and rows that no snapshot names are invisible.
What filters ask for stands in typed columns; texts stay in the passages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from schemas.config import MilvusConfig
from schemas.errors import GlossatorError, PublishRefused, TransientError
from schemas.snapshot import VectorStoreRef
from tasks.lake.lake import MILVUS_FOLDER, Lake
from tasks.publish import milvus_folder, milvus_server
from tasks.publish.milvus_client import SLOW, connect, shown_uri, told

SCHEMA_VERSION = 1
IDENTITY_LENGTH = 16
OWNER = "glossator.lake"
"""Property of a collection on a server: which lake made it."""
_COLUMN_BYTES = 256
_IDS_PER_QUERY = 1_000


class VectorsGone(GlossatorError):
    """The folder or the collection that a snapshot names is not there."""


def one_server(lake: Lake, config: MilvusConfig) -> AbstractContextManager[None]:
    """Keep our own server from ending and starting again between the steps inside."""
    own = config.shared and not config.uri
    return milvus_server.kept_running(local_milvus(lake)) if own else nullcontext()


def open_milvus(config: MilvusConfig, lake: Lake, ref: VectorStoreRef, *, create: bool = False) -> MilvusStore:
    """Open the Milvus collection of a snapshot: on a server, or embedded in the lake.

    Args:
        create: make the folder of Milvus Lite where there is none; readers write nothing.

    Raises:
        VectorsGone: there is no such folder. TransientError: as for MilvusStore.
    """
    if not config.uri and not create and not local_milvus(lake).exists():
        raise VectorsGone(
            f"the vectors in {local_milvus(lake)} are gone",
            hint="run `glossator doctor --repair`: they are written again",
        )
    return MilvusStore(config, local_milvus(lake), ref, lake.identity)


def local_milvus(lake: Lake) -> Path:
    """Return the folder of Milvus Lite, used when the config names no server."""
    return lake.storage.local(MILVUS_FOLDER)


def collection_name(collection: str, identity: str) -> str:
    """Return the Milvus collection of a collection: its name carries what would change every row."""
    return f"g_{collection}_{identity[:IDENTITY_LENGTH]}"


def collection_exists(config: MilvusConfig, lake: Lake, ref: VectorStoreRef) -> bool:
    """Tell whether the Milvus collection of a snapshot is there.

    Embedded, its folder answers: opening Milvus Lite takes a second, and fails while another process has it open.
    """
    folder = local_milvus(lake)
    if not config.uri and ((folder / "collections").is_dir() or not folder.exists()):
        return milvus_folder.has_collection(folder, ref.collection)
    with closing(open_milvus(config, lake, ref)) as store:
        return store.exists()


def search_width(limit: int) -> int:
    """Return the candidates (``ef``) that an HNSW index looks at for ``limit`` hits.

    At four times 150 it finds 99.8 % of the ten nearest even of random vectors, at twice 97.2 %, for 1 ms more.
    """
    return min(max(4 * limit, 512), 32_768)  # Which is the most that Milvus takes.


class MilvusStore:
    """One Milvus collection."""

    def __init__(self, config: MilvusConfig, local: Path, ref: VectorStoreRef, owner: Callable[[], str]) -> None:
        """Connect.

        Args:
            local: folder of Milvus Lite, used when the config names no server.
            owner: gives the identity of the lake. On a server another lake may use the same collection name.

        Raises:
            TransientError: the server is unreachable, or another process holds the folder.
        """
        self.ref = ref
        self._config = config
        self._folder = local
        self._owner = owner
        self._local = not config.uri
        self._served = self._local and config.shared
        self._limit = config.timeout_seconds
        self._slow_limit = config.timeout_seconds * SLOW
        uri = config.uri or (milvus_server.connect(local) if config.shared else str(local))
        try:
            self._client: Any = connect(uri, local if self._local else None, self._slow_limit)
        except GlossatorError:
            if self._served:
                milvus_server.disconnect(local)
            raise
        self._loaded = False

    def close(self) -> None:
        """Let go of the folder or the connection."""
        try:
            self._client.close()
        finally:
            if self._served:
                milvus_server.disconnect(self._folder)

    def exists(self) -> bool:
        """Tell whether the collection is there."""
        with told("find a collection"):
            return bool(self._client.has_collection(self.ref.collection, timeout=self._limit))

    def is_ours(self) -> bool:
        """Tell whether the collection was made by this lake, so that it may delete from it."""
        return self._local or self._made_by() == self._owner()

    def _made_by(self) -> str:
        with told("describe a collection"):
            found = self._client.describe_collection(self.ref.collection, timeout=self._limit)
        properties = found.get("properties", {})
        return str(properties.get(OWNER, ""))

    def ensure(self) -> None:
        """Create the collection and its index unless they are there.

        Raises:
            PublishRefused: another lake made it, and would sweep our rows.
        """
        if self.exists():
            if not self.is_ours() and self._made_by():
                server = shown_uri(self._config.uri or "")
                raise PublishRefused(
                    f"the Milvus collection {self.ref.collection} on {server} belongs to another lake",
                    hint="choose another name: --collection NAME",
                )
            return
        self._clear_remains()
        from pymilvus import DataType, MilvusClient

        schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("chunk_id", DataType.VARCHAR, is_primary=True, max_length=32)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=self.ref.dimension)
        schema.add_field("doc_id", DataType.VARCHAR, max_length=16)
        schema.add_field("source", DataType.VARCHAR, max_length=64)
        # A server counts bytes here, Milvus Lite characters: four bytes are the most that one takes.
        schema.add_field("uri", DataType.VARCHAR, max_length=4 * 4096)
        schema.add_field("type", DataType.VARCHAR, max_length=16)
        schema.add_field("language", DataType.VARCHAR, max_length=16)
        schema.add_field("date", DataType.INT64)
        schema.add_field("tags_id", DataType.INT64)
        schema.add_field("acl_id", DataType.INT64)
        index = MilvusClient.prepare_index_params()
        parameters = {"M": 16, "efConstruction": 200} if self._config.index == "HNSW" else {}
        index.add_index(field_name="vector", index_type=self._config.index, metric_type="COSINE", params=parameters)
        with told("create a collection"):
            self._client.create_collection(
                self.ref.collection,
                schema=schema,
                index_params=index,
                timeout=self._slow_limit,
                consistency_level="Strong",
                properties={} if self._local else {OWNER: self._owner()},
            )

    def drop(self) -> None:
        """Drop the collection, and what is left of it where a drop was cut off."""
        with told("drop a collection"):
            self._client.drop_collection(self.ref.collection, timeout=self._limit)
        self._clear_remains()

    def _clear_remains(self) -> None:
        if self._local:
            milvus_folder.clear_remains(self._folder, self.ref.collection)

    def remains(self) -> list[str]:
        """Return the names of collections as of ``siblings`` of which no more than a folder of Milvus Lite is left."""
        return list(filter(self._is_sibling, milvus_folder.remains(self._folder))) if self._local else []

    def _is_sibling(self, name: str) -> bool:
        ours = re.escape(self.ref.collection[:-IDENTITY_LENGTH]) + f"[0-9a-f]{{{IDENTITY_LENGTH}}}"
        return re.fullmatch(ours, name) is not None

    def siblings(self) -> list[str]:
        """Return the names of all Milvus collections of the same collection of ours, this one included if it exists."""
        with told("list collections"):
            return sorted(filter(self._is_sibling, self._client.list_collections(timeout=self._limit)))

    def insert(self, rows: Iterable[dict[str, Any]]) -> int:
        """Write rows (columns as in the schema; ``vector`` float32 [dimension]) in calls of bounded bytes.

        An equal id replaces itself, so that a run that was cut off can write again. No more rows than a call takes are
        held at a time.

        Returns:
            How many there were.
        """
        self._load()
        inserted = 0
        for batch in _batches(rows, self._config.batch_bytes):
            with told(f"take {len(batch)} rows"):
                self._client.upsert(self.ref.collection, batch, timeout=self._limit)
            inserted += len(batch)
        return inserted

    def delete(self, ids: Sequence[str]) -> None:
        """Delete rows; an id without a row is no error."""
        with told(f"delete {len(ids)} rows"):
            self._client.delete(self.ref.collection, ids=list(ids), timeout=self._limit)

    def flush(self) -> None:
        """Make what was inserted durable and searchable."""
        with told("write its rows"):
            self._client.flush(self.ref.collection, timeout=self._slow_limit)

    def present(self, ids: Sequence[str]) -> set[str]:
        """Return those of ``ids`` that have a row."""
        return {row["chunk_id"] for row in self.rows(ids, ["chunk_id"])}

    def rows(self, ids: Sequence[str], columns: Sequence[str] = ("*",)) -> Iterator[dict[str, Any]]:
        """Yield those rows of ``ids`` that there are."""
        self._load()
        for start in range(0, len(ids), _IDS_PER_QUERY):
            with told("look up ids"):
                yield from self._client.get(
                    self.ref.collection,
                    ids=list(ids[start : start + _IDS_PER_QUERY]),
                    output_fields=list(columns),
                    timeout=self._limit,
                )

    def vectors(self, ids: Sequence[str]) -> dict[str, npt.NDArray[np.float32]]:
        """Return the vectors [dimension] of those rows of ``ids`` that there are."""
        rows = self.rows(ids, ["chunk_id", "vector"])
        return {row["chunk_id"]: np.asarray(row["vector"], np.float32) for row in rows}

    def count_document(self, doc_id: str) -> int:
        """Return the number of rows of a document, those that no snapshot names included."""
        self._load()
        with told("count its rows"):
            rows = self._client.query(
                self.ref.collection,
                filter=_of_document(doc_id),
                output_fields=["count(*)"],
                consistency_level="Strong",
                timeout=self._limit,
            )
        return int(rows[0]["count(*)"])

    def delete_document(self, doc_id: str) -> None:
        """Delete all rows of a document, those that no snapshot names included."""
        self._load()
        with told("delete rows"):
            self._client.delete(self.ref.collection, filter=_of_document(doc_id), timeout=self._limit)
            self._client.flush(self.ref.collection, timeout=self._slow_limit)

    def count(self) -> int:
        """Return the number of rows, invisible ones included."""
        self._load()
        with told("count its rows"):
            rows = self._client.query(self.ref.collection, filter="", output_fields=["count(*)"], timeout=self._limit)
        return int(rows[0]["count(*)"])

    def ids(self) -> Iterator[str]:
        """Yield all ids (about 12,000 a second on Milvus Lite)."""
        self._load()
        with told("list its rows"):
            cursor = self._client.query_iterator(
                self.ref.collection, batch_size=1_000, output_fields=["chunk_id"], timeout=self._limit
            )
        try:
            while True:
                with told("list its rows"):
                    rows = cursor.next()
                if not rows:
                    return
                for row in rows:
                    yield row["chunk_id"]
        finally:
            cursor.close()

    def search(
        self,
        vector: npt.NDArray[np.float32],
        limit: int,
        ef: int | None = None,
        acl_ids: Sequence[int] | None = None,
    ) -> list[tuple[str, float]]:
        """Return (chunk_id, cosine similarity), best first, invisible rows included.

        Args:
            vector: float32 [dimension], of length 1.
            limit: most hits; the index may return fewer.
            ef: size of HNSW's candidate list, at least ``limit``.
            acl_ids: only rows of these sets of groups; None for all.
        """
        self._load()
        parameters = {"ef": max(ef or 0, limit)} if self._config.index == "HNSW" else {}
        with told("search"):
            hits = self._client.search(
                self.ref.collection,
                data=[vector.tolist()],
                anns_field="vector",
                limit=limit,
                filter="" if acl_ids is None else f"acl_id in [{', '.join(str(int(one)) for one in acl_ids)}]",
                timeout=self._limit,
                search_params={"metric_type": "COSINE", "params": parameters},
            )[0]
        return [(hit["chunk_id"] if "chunk_id" in hit else hit["id"], float(hit["distance"])) for hit in hits]

    def _load(self) -> None:
        if not self._loaded:
            if not self.exists():
                raise VectorsGone(
                    f"the Milvus collection {self.ref.collection} is gone",
                    hint="run `glossator doctor --repair`: its rows are written again",
                )
            try:
                self._load_collection()
            except TransientError as error:
                # A process that was killed leaves half an index file, and nothing else says so than this.
                if not (self._local and milvus_folder.blames_index(error)):
                    raise
                milvus_folder.forget_indexes(self._folder, self.ref.collection)
                self._load_collection()
            self._loaded = True

    def _load_collection(self) -> None:
        with told("load a collection"):
            self._client.load_collection(self.ref.collection, timeout=self._slow_limit)


def _of_document(doc_id: str) -> str:
    """Return the filter for the rows of a document; an id is hexadecimal, so that nothing is to be quoted."""
    if not re.fullmatch(r"[0-9a-f]+", doc_id):
        raise ValueError(f"not a document's id: {doc_id!r}")
    return f'doc_id == "{doc_id}"'


def _batches(rows: Iterable[dict[str, Any]], limit: int) -> Iterator[list[dict[str, Any]]]:
    batch: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        weight = _COLUMN_BYTES + 4 * len(row["vector"]) + 4 * len(row["uri"])
        if batch and size + weight > limit:
            yield batch
            batch, size = [], 0
        batch.append(row)
        size += weight
    if batch:
        yield batch
