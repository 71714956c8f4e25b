"""A snapshot as readers see it: which chunks exist, and what each says.

The *catalog* lists every document and chunk of the snapshot, sorted by id; a chunk's place in it (its **row**) is
what the lexical index, filters and fusion speak of. *Passages* hold texts, spans and vectors per shard and are opened
when first needed. All files are memory-mapped: opening takes milliseconds, and ten passages a few more.
"""

from __future__ import annotations

import datetime as dt
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from threading import Lock

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from query.visibility import Visibility
from schemas.errors import UsageError
from schemas.snapshot import Snapshot
from schemas.tables import CATALOG_CHUNKS, CATALOG_DOCUMENTS, PASSAGE_CHUNKS, PASSAGE_DOCUMENTS, PASSAGE_PARENTS
from tasks.lake.lake import Corrupt, Lake, rebuild_hint
from tasks.publish.bm25 import Bm25Index

_TEXTS_KEPT = 32


@dataclass(frozen=True, slots=True)
class Document:
    """What a snapshot knows of a document, without its text.

    Attributes:
        row: its row in the catalog.
        pages: offset (code points) at which each page begins; empty for a type without pages.
    """

    row: int
    doc_id: str
    source: str
    uri: str
    title: str | None
    type: str
    language: str
    tags: tuple[str, ...]
    date: dt.date | None
    pages: tuple[int, ...]
    flags: tuple[str, ...]

    @property
    def name(self) -> str:
        """Its title, or its URI where it states none."""
        return self.title or self.uri


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk with its words.

    Attributes:
        row: its row in the catalog.
        text: ``text[start:end]`` of the document, exactly.
        breadcrumb: titles of the headings above it, outermost first.
        page_from, page_to: None in a document without pages.
        context: what was embedded and indexed before the text.
        index, total: its place among the chunks of the document.
    """

    row: int
    chunk_id: str
    text: str
    start: int
    end: int
    breadcrumb: tuple[str, ...]
    page_from: int | None
    page_to: int | None
    kind: str
    context: str
    index: int
    total: int
    document: Document


@dataclass(frozen=True, slots=True)
class Parent:
    """The section that contains a passage."""

    text: str
    start: int
    end: int
    breadcrumb: tuple[str, ...]


class _Shard:
    """The passages of one shard."""

    def __init__(self, folder: Path) -> None:
        self.documents = _mapped(folder / "documents.arrow", PASSAGE_DOCUMENTS)
        self.parents = _mapped(folder / "parents.arrow", PASSAGE_PARENTS)
        self.chunks = _mapped(folder / "chunks.arrow", PASSAGE_CHUNKS)
        self.vectors = _mapped_vectors(folder / "vectors.npy", len(self.chunks))


class SnapshotReader:
    """One snapshot, opened. Safe for several threads.

    Raises (from any method): Corrupt where files are damaged or do not belong together.
    """

    def __init__(self, lake: Lake, name: str) -> None:
        self.snapshot: Snapshot = lake.read_snapshot(name)
        self._lake = lake
        folder = lake.open_folder(f"catalog/{self.snapshot.catalog}")
        self._documents = _mapped(folder / "documents.arrow", CATALOG_DOCUMENTS)
        self._chunks = _mapped(folder / "chunks.arrow", CATALOG_CHUNKS)
        counts = self.snapshot.counts
        if (len(self._documents), len(self._chunks)) != (counts.documents, counts.chunks):
            raise Corrupt(f"the catalog {folder} is not that of snapshot {name}", hint=rebuild_hint(folder))
        self._ids = self._chunks.column("chunk_id")
        self._document_of, self._shard_of, self._row_of = (
            self._chunks.column(column).to_numpy() for column in ("document", "shard", "row")
        )
        self._keys = {ref.shard: ref.key for ref in self.snapshot.parts.get("passages", ())}
        self._shards: dict[int, _Shard] = {}
        self._lock = Lock()
        self.visibility = Visibility(self, lake)
        self._text = lru_cache(_TEXTS_KEPT)(self._read_text)

    @property
    def size(self) -> int:
        """Number of chunks."""
        return len(self._chunks)

    @cached_property
    def bm25(self) -> Bm25Index:
        """The lexical index; its document i is the chunk of row i."""
        folder = self._lake.open_folder(f"bm25/{self.snapshot.bm25}")
        index = Bm25Index.open(folder)
        if index.size != self.size:
            raise Corrupt(
                f"the BM25 index {folder} holds {index.size} chunks, the catalog {self.size}",
                hint=rebuild_hint(folder),
            )
        return index

    # --- catalog ---------------------------------------------------------------------------------------------------

    def row(self, chunk_id: str) -> int | None:
        """Return the row of a chunk, None where the snapshot does not hold it."""
        low, high = 0, len(self._ids)
        while low < high:
            middle = (low + high) // 2
            if self._ids[middle].as_py() < chunk_id:
                low = middle + 1
            else:
                high = middle
        return low if low < len(self._ids) and self._ids[low].as_py() == chunk_id else None

    def find(self, prefix: str, groups: Iterable[str] | None = None) -> Passage:
        """Return the passage whose id begins with ``prefix``.

        Args:
            groups: of the person who asks; None for the operator, who sees all that was not purged.

        Raises:
            UsageError: none does that may be seen, or several do.
        """
        seen = self.visibility.of(groups).chunks
        row = bisect_left(range(self.size), prefix, key=self.chunk_id)
        matches: list[int] = []
        while row < self.size and len(matches) < 2 and self.chunk_id(row).startswith(prefix):
            if seen[row]:
                matches.append(row)
            row += 1
        if not prefix or not matches:
            raise UsageError(
                f"no chunk {prefix!r} in snapshot {self.snapshot.id[:12]}", hint="`glossator search` prints ids"
            )
        if len(matches) > 1:
            raise UsageError(f"several chunks begin with {prefix!r}", hint="give more of the id")
        return self.passage(matches[0])

    def chunk_id(self, row: int) -> str:
        """Return the id of the chunk of a row."""
        return str(self._ids[row].as_py())

    def documents(self) -> pa.Table:
        """Return the catalog of documents (CATALOG_DOCUMENTS), mapped."""
        return self._documents

    def document_rows(self) -> npt.NDArray[np.int32]:
        """Return the document (a row of ``documents()``) of each chunk, shape (size,)."""
        rows: npt.NDArray[np.int32] = self._document_of
        return rows

    def document(self, row: int) -> Document:
        """Return what is known of the document of a catalog row."""
        values = self._documents.slice(row, 1).to_pylist()[0]
        shard = self._shard(values["shard"])
        if shard.documents.column("doc_id")[values["row"]].as_py() != values["doc_id"]:
            raise self._foreign(values["shard"])
        return Document(
            row=row,
            doc_id=values["doc_id"],
            source=values["source"],
            uri=values["uri"],
            title=values["title"],
            type=values["type"],
            language=values["language"],
            tags=tuple(values["tags"] or ()),
            date=values["date"],
            pages=tuple(shard.documents.column("pages")[values["row"]].as_py() or ()),
            flags=tuple(values["flags"] or ()),
        )

    def document_text(self, row: int) -> str:
        """Return the text of the document of a catalog row."""
        return self._text(row)

    def _read_text(self, row: int) -> str:
        shard = self._shard(self._documents.column("shard")[row].as_py())
        return str(shard.documents.column("text")[self._documents.column("row")[row].as_py()].as_py())

    # --- passages --------------------------------------------------------------------------------------------------

    def passage(self, row: int) -> Passage:
        """Return the chunk of a catalog row with its words."""
        number = int(self._shard_of[row])
        values = self._shard(number).chunks.slice(int(self._row_of[row]), 1).to_pylist()
        if not values or values[0]["chunk_id"] != self.chunk_id(row):
            raise self._foreign(number)
        chunk = values[0]
        document = self.document(int(self._document_of[row]))
        return Passage(
            row=row,
            chunk_id=chunk["chunk_id"],
            text=self._text(document.row)[chunk["start"] : chunk["end"]],
            start=chunk["start"],
            end=chunk["end"],
            breadcrumb=tuple(chunk["breadcrumb"] or ()),
            page_from=chunk["page_from"],
            page_to=chunk["page_to"],
            kind=chunk["kind"],
            context=chunk["context"] or "",
            index=chunk["index"],
            total=chunk["total"],
            document=document,
        )

    def parent(self, passage: Passage) -> Parent:
        """Return the section that contains a passage."""
        shard = self._shard(int(self._shard_of[passage.row]))
        chunk_row = int(self._row_of[passage.row])
        values = shard.parents.slice(shard.chunks.column("parent")[chunk_row].as_py(), 1).to_pylist()[0]
        return Parent(
            text=self._text(passage.document.row)[values["start"] : values["end"]],
            start=values["start"],
            end=values["end"],
            breadcrumb=tuple(values["breadcrumb"] or ()),
        )

    # --- vectors ---------------------------------------------------------------------------------------------------

    def vectors(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Return the vectors of chunks, shape (len(rows), dimension)."""
        vectors = np.empty((len(rows), self.snapshot.vectors.dimension), dtype=np.float32)
        for shard, places, inside in self._by_shard(rows):
            vectors[places] = shard.vectors[inside]
        return vectors

    def similarities(self, vector: npt.NDArray[np.float32], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Return the inner product of ``vector`` with the vector of each chunk, shape (len(rows),)."""
        similarities = np.empty(len(rows), dtype=np.float32)
        for shard, places, inside in self._by_shard(rows):
            if 2 * len(inside) > len(shard.vectors):  # Reading all in order is quicker than picking most.
                similarities[places] = (shard.vectors @ vector)[inside]
            else:
                similarities[places] = shard.vectors[inside] @ vector
        return similarities

    def _by_shard(
        self, rows: npt.NDArray[np.int64]
    ) -> list[tuple[_Shard, npt.NDArray[np.int64], npt.NDArray[np.int32]]]:
        """Return shard, places in ``rows`` and rows inside the shard, for each shard that ``rows`` touch."""
        shards = self._shard_of[rows]
        order = np.argsort(shards, kind="stable")
        numbers, begins = np.unique(shards[order], return_index=True)
        return [
            (self._shard(int(number)), places, self._row_of[rows[places]])
            for number, places in zip(numbers, np.split(order, begins[1:]), strict=True)
        ]

    def _shard(self, number: int) -> _Shard:
        shard = self._shards.get(number)
        if shard is None:
            with self._lock:
                if number not in self._keys:
                    raise self._foreign(number)
                folder = self._lake.open_folder(f"passages/{self._keys[number]}")
                shard = self._shards.setdefault(number, _Shard(folder))
        return shard

    def _foreign(self, shard: int) -> Corrupt:
        folder = self._lake.storage.local(f"passages/{self._keys.get(shard, '')}")
        return Corrupt(
            f"the passages of shard {shard} do not belong to the catalog of snapshot {self.snapshot.name}",
            hint=rebuild_hint(folder),
        )


def _mapped(path: Path, schema: pa.Schema) -> pa.Table:
    try:
        with pa.memory_map(str(path)) as file:
            table = pa.ipc.open_file(file).read_all()
    except (OSError, pa.ArrowInvalid) as error:
        raise Corrupt(f"{path} is damaged ({error})", hint=rebuild_hint(path.parent)) from error
    if not table.schema.equals(schema):
        raise Corrupt(f"{path} has other columns than this version reads", hint=rebuild_hint(path.parent))
    return table


def _mapped_vectors(path: Path, rows: int) -> npt.NDArray[np.float32]:
    try:
        vectors = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise Corrupt(f"{path} is damaged ({error})", hint=rebuild_hint(path.parent)) from error
    if vectors.ndim != 2 or len(vectors) != rows or vectors.dtype != np.float32:
        raise Corrupt(
            f"{path} holds {vectors.shape} {vectors.dtype}, not a vector for each of {rows} chunks",
            hint=rebuild_hint(path.parent),
        )
    plain: npt.NDArray[np.float32] = vectors.view(np.ndarray)
    return plain
