"""A snapshot as readers see it: which chunks exist, and what each says.

The *catalog* lists every document and chunk of the snapshot, sorted by id; a chunk's place in it (its **row**) is
what the lexical index, filters and fusion speak of. *Passages* hold texts, spans and vectors per shard and are opened
when first needed. All files are memory-mapped: opening takes milliseconds, and ten passages a few more.

Sizes are checked when a file is opened, and checksums of the catalog, the BM25 index and what chunks say of themselves,
as far as a file is small: 1 ms per MiB. More is not read; instead whatever is shown of a chunk and its document is
compared with their digests, so that damage may hide a passage but never misquotes one. What may lead to another
ranking until the doctor has looked are the vectors, the rows of Milvus, and larger files.
"""

from __future__ import annotations

import datetime as dt
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from query.mapped import damaged, mapped_table, mapped_vectors, row_of, value_of
from query.visibility import Visibility
from schemas.errors import GlossatorError, UsageError
from schemas.identity import document_id, embedded_digest, embedded_text, metadata_digest
from schemas.rows import metadata_of
from schemas.snapshot import Snapshot
from schemas.tables import CATALOG_CHUNKS, CATALOG_DOCUMENTS, PASSAGE_CHUNKS, PASSAGE_DOCUMENTS, PASSAGE_PARENTS
from tasks.lake.lake import SMALL_BYTES, Corrupt, Lake, bm25_folder, catalog_folder, passages_folder, rebuild_hint
from tasks.publish.bm25 import Bm25Index
from tasks.publish.pins import is_pinned

_TEXTS_KEPT = 32
_OF_CHUNKS = ("chunks.arrow", "parents.arrow")


class Swept(GlossatorError):
    """The snapshot was swept while this reader held on to it: it cannot be read any more, and its rows may be gone."""


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
        self.folder = folder
        self.documents = mapped_table(folder / "documents.arrow", PASSAGE_DOCUMENTS)
        self.parents = mapped_table(folder / "parents.arrow", PASSAGE_PARENTS)
        self.chunks = mapped_table(folder / "chunks.arrow", PASSAGE_CHUNKS)
        self.vectors = mapped_vectors(folder / "vectors.npy", len(self.chunks))

    def of_document(self, column: str, row: int) -> Any:
        """Return one value of a document of the shard."""
        return value_of(self.documents.column(column), row, self.folder / "documents.arrow")


class SnapshotReader:
    """One snapshot, opened. Safe for several threads.

    What is mapped stays readable when the snapshot is swept; what is not opened yet, and the rows of Milvus, do not.

    Raises (from any method): Corrupt where files are damaged or do not belong together, Swept where they are gone.
    """

    def __init__(self, lake: Lake, name: str) -> None:
        self._lake = lake
        self._name = name
        with self.unless_swept():
            self.snapshot: Snapshot = lake.read_snapshot(name)
            folder = lake.open_folder(catalog_folder(self.snapshot.catalog), verify=True, up_to=SMALL_BYTES)
            self._documents = mapped_table(folder / "documents.arrow", CATALOG_DOCUMENTS)
            self._chunks = mapped_table(folder / "chunks.arrow", CATALOG_CHUNKS)
        counts = self.snapshot.counts
        if (len(self._documents), len(self._chunks)) != (counts.documents, counts.chunks):
            raise Corrupt(f"the catalog {folder} is not that of snapshot {name}", hint=rebuild_hint(folder))
        self._folder = folder
        self._ids = self._chunks.column("chunk_id")
        self._document_of, self._shard_of, self._row_of = (
            self._chunks.column(column).to_numpy() for column in ("document", "shard", "row")
        )
        # Numpy and Arrow would take a negative or too large row for another one's.
        if counts.chunks and not (
            0 <= self._document_of.min() <= self._document_of.max() < counts.documents and self._row_of.min() >= 0
        ):
            raise damaged(folder / "chunks.arrow", "it points outside the catalog")
        self._keys = {ref.shard: ref.key for ref in self.snapshot.parts.get("passages", ())}
        self._shards: dict[int, _Shard] = {}
        self._lock = Lock()
        self.visibility = Visibility(self, lake)
        self._text = lru_cache(_TEXTS_KEPT)(self._read_text)

    def require(self) -> None:
        """Make sure that the snapshot was not swept; whoever asked Milvus asks this afterwards.

        Raises:
            Swept: a sweep withdraws a snapshot before it deletes the first row, so that rows may have been missing.
        """
        if not self._lake.has_snapshot(self._name):
            flip = self._lake.current_flip()
            kept = {flip.snapshot, *flip.retained} if flip is not None else set()
            if self._name in kept or is_pinned(self._lake, self._name):
                self._lake.read_snapshot(self._name)  # No sweep takes what is to stay: its file was lost.
            raise Swept(
                f"snapshot {self._name} was swept: it had been dropped",
                hint="open what is published now: run the command again",
            )

    @contextmanager
    def unless_swept(self) -> Iterator[None]:
        """Within it, what fails because the snapshot was swept says so."""
        try:
            yield
        except GlossatorError:
            self.require()
            raise

    @property
    def size(self) -> int:
        """Number of chunks."""
        return len(self._chunks)

    @cached_property
    def bm25(self) -> Bm25Index:
        """The lexical index; its document i is the chunk of row i."""
        folder = self._lake.storage.local(bm25_folder(self.snapshot.bm25))
        with self.unless_swept():
            index = Bm25Index.open(
                self._lake.open_folder(bm25_folder(self.snapshot.bm25), verify=True, up_to=SMALL_BYTES)
            )
        if index.size != self.size:
            raise Corrupt(
                f"the BM25 index {folder} holds {index.size} chunks, the catalog {self.size}",
                hint=rebuild_hint(folder),
            )
        return index

    # --- catalog ---------------------------------------------------------------------------------------------------

    def row(self, chunk_id: str) -> int | None:
        """Return the row of a chunk, None where the snapshot does not hold it."""
        row = bisect_left(range(self.size), chunk_id, key=self.chunk_id)
        return row if row < self.size and self.chunk_id(row) == chunk_id else None

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
        return str(value_of(self._ids, row, self._folder / "chunks.arrow"))

    def documents(self) -> pa.Table:
        """Return the catalog of documents (CATALOG_DOCUMENTS), mapped."""
        return self._documents

    def document_rows(self) -> npt.NDArray[np.int32]:
        """Return the document (a row of ``documents()``) of each chunk, shape (size,)."""
        rows: npt.NDArray[np.int32] = self._document_of
        return rows

    def document(self, row: int) -> Document:
        """Return what is known of the document of a catalog row."""
        values = row_of(self._documents, row, self._folder / "documents.arrow")
        shard = self._shard(values["shard"])
        if shard.of_document("doc_id", values["row"]) != values["doc_id"]:
            raise self._foreign(values["shard"])
        pages = tuple(shard.of_document("pages", values["row"]) or ())
        if (
            document_id(values["source"], values["uri"]) != values["doc_id"]
            or metadata_digest(metadata_of(values), pages) != values["metadata_digest"]
        ):
            raise damaged(self._folder / "documents.arrow", "a document is not what its digests say")
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
            pages=pages,
            flags=tuple(values["flags"] or ()),
        )

    def document_text(self, row: int) -> str:
        """Return the text of the document of a catalog row."""
        return self._text(row)

    def _read_text(self, row: int) -> str:
        shard = self._shard(self._documents.column("shard")[row].as_py())
        return str(shard.of_document("text", self._documents.column("row")[row].as_py()))

    # --- passages --------------------------------------------------------------------------------------------------

    def passage(self, row: int) -> Passage:
        """Return the chunk of a catalog row with its words."""
        number = int(self._shard_of[row])
        shard = self._shard(number)
        if self._row_of[row] >= len(shard.chunks):
            raise self._foreign(number)
        chunk = row_of(shard.chunks, int(self._row_of[row]), shard.folder / "chunks.arrow")
        if chunk["chunk_id"] != self.chunk_id(row):
            raise self._foreign(number)
        document = self.document(int(self._document_of[row]))
        context = chunk["context"] or ""
        text = self._text(document.row)[chunk["start"] : chunk["end"]]
        if embedded_digest(embedded_text(context, text)) != chunk["embedded_digest"]:
            raise damaged(shard.folder, "the words of a chunk are not what their digest says")
        return Passage(
            row=row,
            chunk_id=chunk["chunk_id"],
            text=text,
            start=chunk["start"],
            end=chunk["end"],
            breadcrumb=tuple(chunk["breadcrumb"] or ()),
            page_from=chunk["page_from"],
            page_to=chunk["page_to"],
            kind=chunk["kind"],
            context=context,
            index=chunk["index"],
            total=chunk["total"],
            document=document,
        )

    def parent(self, passage: Passage) -> Parent:
        """Return the section that contains a passage."""
        shard = self._shard(int(self._shard_of[passage.row]))
        number = shard.chunks.column("parent")[int(self._row_of[passage.row])].as_py()
        values = row_of(shard.parents, number, shard.folder / "parents.arrow")
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
                with self.unless_swept():
                    key = passages_folder(self._keys[number])
                    opened = _Shard(self._lake.open_folder(key, verify=_OF_CHUNKS, up_to=SMALL_BYTES))
                shard = self._shards.setdefault(number, opened)
        return shard

    def _foreign(self, shard: int) -> Corrupt:
        folder = self._lake.storage.local(passages_folder(self._keys.get(shard, "")))
        return Corrupt(
            f"the passages of shard {shard} do not belong to the catalog of snapshot {self.snapshot.name}",
            hint=rebuild_hint(folder),
        )
