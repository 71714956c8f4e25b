"""Building the lexical index: bm25s's scores, computed a block of documents at a time.

bm25s (Lù, 2024) scores eagerly, in Lucene's variant (Kamphuis et al., ECIR 2020): one document after the other in
Python, and then it sorts all (term, document) pairs at once, which took 2 GB for 200,000 chunks of 75 terms. Here its
formulas score a block of documents at once, straight into the arrays of the files. A test compares both, byte by byte:
the formulas are functions that bm25s keeps to itself.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.config import Bm25Config
from tasks.lake.arrays import disk_room
from tasks.lake.lake import ipc_bytes
from tasks.lake.storage import Blob
from tasks.publish.bm25 import (
    BM25_VERSION,
    DATA,
    INDICES,
    INDPTR,
    PARAMS,
    SETTINGS,
    VOCABULARY,
    Bm25Settings,
)
from tasks.tokens.analyzer import ANALYZER_VERSION

BLOCK_TERMS = 500_000
"""Terms that are read at once; a longer document is a block of its own."""


class Terms:
    """The terms of all documents, read a block of documents at a time.

    Attributes:
        words: those that any document has, sorted; their numbers are their places here.
    """

    def __init__(
        self, flat: npt.NDArray[np.integer], offsets: npt.NDArray[np.integer], vocabulary: Sequence[str]
    ) -> None:
        self.documents = len(offsets) - 1
        self.lengths = np.diff(offsets)
        self._flat, self._offsets = flat, offsets
        used = np.zeros(len(vocabulary), np.bool_)
        for first, last in self.blocks():
            used[flat[offsets[first] : offsets[last]]] = True
        words = sorted((vocabulary[term], term) for term in np.flatnonzero(used).tolist())
        self.words = [word for word, _ in words]
        self._rank = np.zeros(len(vocabulary), np.int64)
        self._rank[[term for _, term in words]] = np.arange(len(words))

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Yield (first, last + 1) of documents that are read together."""
        first = 0
        while first < self.documents:
            room = np.searchsorted(self._offsets, self._offsets[first] + BLOCK_TERMS, side="right") - 1
            last = max(first + 1, int(room))
            yield first, last
            first = last

    def counts(self, first: int, last: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
        """Return (term, document, frequency) of each pair in a block, by term, then document."""
        documents = last - first
        pairs = self._rank[self._flat[self._offsets[first] : self._offsets[last]]] * documents
        pairs += np.repeat(np.arange(documents), self.lengths[first:last])
        unique, frequency = np.unique(pairs, return_counts=True)
        term, document = np.divmod(unique, documents)
        return term, document + first, frequency


def build_bm25(
    terms: npt.NDArray[np.integer],
    offsets: npt.NDArray[np.integer],
    vocabulary: Sequence[str],
    config: Bm25Config,
    folder: Path | None = None,
) -> dict[str, Blob]:
    """Build the files of an index, for ``Lake.write_folder``.

    Args:
        terms: ids of the terms of all documents, one document after the other; repetitions count.
        offsets: document i has ``terms[offsets[i]:offsets[i + 1]]``; length documents + 1, so ``[0]`` for none.
        vocabulary: the term of each id; terms that no document has are left out of the index.
        folder: of the file system where the arrays are made.

    Raises:
        TransientError: the disk is full.
    """
    corpus = Terms(terms, offsets, vocabulary)
    data, indices, indptr = _score(corpus, config, folder)
    settings = Bm25Settings(
        bm25_version=BM25_VERSION,
        analyzer_version=ANALYZER_VERSION,
        config=config,
        config_digest=config.result_digest(),
        documents=corpus.documents,
        terms=len(corpus.words),
        entries=len(data.values),
    )
    return {
        DATA: data.file,
        INDICES: indices.file,
        INDPTR: indptr.file,
        PARAMS: _bm25s_params(config, corpus.documents),
        VOCABULARY: ipc_bytes(pa.table({"term": pa.array(corpus.words, pa.large_string())})),
        SETTINGS: settings.model_dump_json(indent=1).encode(),
    }


class _Npy:
    """A file of numpy's format that is being made, and the array in it.

    Attributes:
        values: shape (length,), zeros at first.
    """

    def __init__(self, length: int, kind: type[np.generic], folder: Path | None) -> None:
        header = io.BytesIO()
        fields = {"descr": np.lib.format.dtype_to_descr(np.dtype(kind)), "fortran_order": False, "shape": (length,)}
        np.lib.format.write_array_header_1_0(header, fields)
        self.file = disk_room(header.tell() + length * np.dtype(kind).itemsize, folder)
        self.file[: header.tell()] = header.getvalue()
        self.values: npt.NDArray[Any] = np.frombuffer(self.file, kind, offset=header.tell())


def _score(corpus: Terms, config: Bm25Config, folder: Path | None) -> tuple[_Npy, _Npy, _Npy]:
    """Return bm25s's matrix of scores, terms by documents, as (data, indices, indptr)."""
    from bm25s.scoring import _select_idf_scorer, _select_tfc_scorer

    terms = len(corpus.words)
    indptr = _Npy(terms + 1, np.int64, folder)
    if not corpus.documents:
        return _Npy(0, np.float32, folder), _Npy(0, np.int32, folder), indptr
    holding = np.zeros(terms, np.int64)
    for first, last in corpus.blocks():
        holding += np.bincount(corpus.counts(first, last)[0], minlength=terms)
    np.cumsum(holding, out=indptr.values[1:])
    data, indices = (_Npy(int(indptr.values[-1]), kind, folder) for kind in (np.float32, np.int32))

    idf_of, tf_of = _select_idf_scorer("lucene"), _select_tfc_scorer("lucene")
    idf = np.array([idf_of(df, N=corpus.documents) for df in holding.tolist()], np.float32)
    mean = corpus.lengths.mean()
    # Where the next entry of each term goes: blocks come in the order of their documents.
    free = indptr.values[:-1].copy()
    for first, last in corpus.blocks():
        term, document, frequency = corpus.counts(first, last)
        lengths = corpus.lengths[document]
        saturated = tf_of(frequency.astype(np.float32), l_d=lengths, l_avg=mean, k1=config.k1, b=config.b)
        here = np.bincount(term, minlength=terms)
        places = np.arange(len(term)) + np.repeat(free - np.cumsum(here) + here, here)
        data.values[places] = idf[term] * saturated
        indices.values[places] = document
        free += here
    return data, indices, indptr


def _bm25s_params(config: Bm25Config, documents: int) -> bytes:
    params = {
        "k1": config.k1,
        "b": config.b,
        "delta": 0.5,
        "method": "lucene",
        "idf_method": "lucene",
        "dtype": "float32",
        "int_dtype": "int32",
        "num_docs": documents,
        "version": "0.3.16",
        "backend": "numpy",
    }
    return json.dumps(params, indent=1).encode()
