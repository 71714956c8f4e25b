"""The vector store: Milvus, embedded (Milvus Lite in the lake) or a server.

Rows are versions: a chunk_id is inserted once and never edited, and rows that no snapshot names are invisible.
What filters ask for stands in typed columns; texts stay in the passages.
"""

from __future__ import annotations

import logging
import logging.config
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from schemas.config import MilvusConfig
from schemas.errors import GlossatorError, PublishRefused, TransientError
from schemas.snapshot import VectorStoreRef
from tasks.lake.lake import Lake

SCHEMA_VERSION = 1
IDENTITY_LENGTH = 16
OWNER = "glossator.lake"
"""Property of a collection on a server: which lake made it."""
_COLUMN_BYTES = 256
_IDS_PER_QUERY = 1_000


def open_milvus(config: MilvusConfig, lake: Lake, ref: VectorStoreRef) -> MilvusStore:
    """Open the Milvus collection of a snapshot: on a server, or embedded in the lake."""
    return MilvusStore(config, lake.storage.local("milvus.db"), ref, lake.identity)


def collection_name(collection: str, identity: str) -> str:
    """Return the Milvus collection of a collection: its name carries what would change every row."""
    return f"g_{collection}_{identity[:IDENTITY_LENGTH]}"


def collection_exists(config: MilvusConfig, lake: Lake, ref: VectorStoreRef) -> bool:
    """Tell whether the Milvus collection of a snapshot is there.

    Embedded, its folder answers: opening Milvus Lite takes a second, and fails while another process has it open.
    """
    folders = lake.storage.local("milvus.db") / "collections"
    if not config.uri and (folders.is_dir() or not folders.parent.exists()):
        return (folders / ref.collection).is_dir()
    store = open_milvus(config, lake, ref)
    try:
        return store.exists()
    finally:
        store.close()


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
        _import_pymilvus()
        _quiet()
        from pymilvus import MilvusClient
        from pymilvus.exceptions import MilvusException

        self.ref = ref
        self._config = config
        self._owner = owner
        self._local = not config.uri
        uri = config.uri or str(local)
        try:
            if self._local:
                local.parent.mkdir(parents=True, exist_ok=True)
            self._client: Any = MilvusClient(uri=uri, token=os.environ.get("MILVUS_TOKEN", ""))
        except (MilvusException, OSError, RuntimeError) as error:
            raise _unreachable(uri, self._local, error) from error
        self._loaded = False

    def close(self) -> None:
        """Let go of the folder or the connection."""
        self._client.close()

    def exists(self) -> bool:
        """Tell whether the collection is there."""
        return bool(self._client.has_collection(self.ref.collection))

    def is_ours(self) -> bool:
        """Tell whether the collection was made by this lake, so that it may delete from it."""
        return self._local or self._made_by() == self._owner()

    def _made_by(self) -> str:
        properties = self._client.describe_collection(self.ref.collection).get("properties", {})
        return str(properties.get(OWNER, ""))

    def ensure(self) -> None:
        """Create the collection and its index unless they are there.

        Raises:
            PublishRefused: another lake made it, and would sweep our rows.
        """
        if self.exists():
            if not self.is_ours() and self._made_by():
                raise PublishRefused(
                    f"the Milvus collection {self.ref.collection} on {self._config.uri} belongs to another lake",
                    hint="choose another name: --collection NAME",
                )
            return
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
        self._client.create_collection(
            self.ref.collection,
            schema=schema,
            index_params=index,
            consistency_level="Strong",
            properties={} if self._local else {OWNER: self._owner()},
        )

    def drop(self) -> None:
        """Drop the collection."""
        self._client.drop_collection(self.ref.collection)

    def siblings(self) -> list[str]:
        """Return the names of all Milvus collections of the same collection of ours, this one included if it exists."""
        ours = re.compile(re.escape(self.ref.collection[:-IDENTITY_LENGTH]) + f"[0-9a-f]{{{IDENTITY_LENGTH}}}")
        return sorted(name for name in self._client.list_collections() if ours.fullmatch(name))

    def insert(self, rows: Sequence[dict[str, Any]]) -> None:
        """Write rows (columns as in the schema; ``vector`` float32 [dimension]) in calls of bounded bytes.

        An equal id replaces itself, so that a run that was cut off can write again.
        """
        from pymilvus.exceptions import MilvusException

        for batch in _batches(rows, self._config.batch_bytes):
            try:
                self._client.upsert(self.ref.collection, batch)
            except MilvusException as error:
                raise TransientError(
                    f"Milvus did not take {len(batch)} rows: {error.message}",
                    hint="run the same command again: what is done so far is kept",
                ) from error

    def delete(self, ids: Sequence[str]) -> None:
        """Delete rows; an id without a row is no error."""
        from pymilvus.exceptions import MilvusException

        try:
            self._client.delete(self.ref.collection, ids=list(ids))
        except MilvusException as error:
            raise TransientError(
                f"Milvus did not delete {len(ids)} rows: {error.message}", hint="run `glossator maintain` again"
            ) from error

    def flush(self) -> None:
        """Make what was inserted durable and searchable."""
        self._client.flush(self.ref.collection)

    def present(self, ids: Sequence[str]) -> set[str]:
        """Return those of ``ids`` that have a row."""
        self._load()
        found: set[str] = set()
        for start in range(0, len(ids), _IDS_PER_QUERY):
            rows = self._client.get(
                self.ref.collection, ids=list(ids[start : start + _IDS_PER_QUERY]), output_fields=["chunk_id"]
            )
            found.update(row["chunk_id"] for row in rows)
        return found

    def count(self) -> int:
        """Return the number of rows, invisible ones included."""
        self._load()
        rows = self._client.query(self.ref.collection, filter="", output_fields=["count(*)"])
        return int(rows[0]["count(*)"])

    def ids(self) -> Iterator[str]:
        """Yield all ids (about 12,000 a second on Milvus Lite)."""
        self._load()
        cursor = self._client.query_iterator(self.ref.collection, batch_size=1_000, output_fields=["chunk_id"])
        try:
            while rows := cursor.next():
                for row in rows:
                    yield row["chunk_id"]
        finally:
            cursor.close()

    def search(self, vector: npt.NDArray[np.float32], limit: int, ef: int | None = None) -> list[tuple[str, float]]:
        """Return (chunk_id, cosine similarity), best first, invisible rows included.

        Args:
            vector: float32 [dimension], of length 1.
            limit: most hits; the index may return fewer.
            ef: size of HNSW's candidate list, at least ``limit``.
        """
        from pymilvus.exceptions import MilvusException

        self._load()
        parameters = {"ef": max(ef or 0, limit)} if self._config.index == "HNSW" else {}
        try:
            hits = self._client.search(
                self.ref.collection,
                data=[vector.tolist()],
                anns_field="vector",
                limit=limit,
                search_params={"metric_type": "COSINE", "params": parameters},
            )[0]
        except MilvusException as error:
            raise TransientError(f"Milvus did not search: {error.message}", hint="run it again") from error
        return [(hit["chunk_id"] if "chunk_id" in hit else hit["id"], float(hit["distance"])) for hit in hits]

    def _load(self) -> None:
        if not self._loaded:
            if not self.exists():
                raise GlossatorError(
                    f"the Milvus collection {self.ref.collection} is gone", hint="run `glossator index` again"
                )
            self._client.load_collection(self.ref.collection)
            self._loaded = True


def _batches(rows: Sequence[dict[str, Any]], limit: int) -> Iterator[list[dict[str, Any]]]:
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


def _unreachable(uri: str, local: bool, error: Exception) -> TransientError:
    if local:
        return TransientError(
            f"cannot open Milvus Lite in {uri} ({error}): another process holds it, or it is damaged",
            hint="wait for the other glossator command to end, then try again",
        )
    return TransientError(f"cannot reach Milvus at {uri}: {error}", hint="check milvus.uri and that the server runs")


def _import_pymilvus() -> None:
    """Import pymilvus without letting it reconfigure the logging of the whole process.

    On import it calls ``logging.config.dictConfig``, which closes everybody's handlers: Prefect's then waits five
    seconds for its queue and never logs again.
    """
    configure = logging.config.dictConfig
    logging.config.dictConfig = lambda config: None
    try:
        import pymilvus  # noqa: F401
    finally:
        logging.config.dictConfig = configure


def _quiet() -> None:
    # Milvus Lite logs a traceback for each optional call that it lacks; errors reach us as exceptions anyway.
    for name in ("pymilvus", "milvus_lite", "faiss", "grpc", "grpc._server"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
