"""The lexical index: BM25 scores of all (term, document) pairs, computed once and memory-mapped.

``bm25_build.py`` has bm25s compute them; the arrays lie in bm25s's own file format. Searching is a few lines of numpy
over the mapped arrays:

- a term's documents are distinct, so ``scores[documents] += values`` is right and as quick as compiled code, and a
  search from the shell imports neither bm25s nor numba;
- the vocabulary is sorted and looked up in the mapped file, instead of parsed into a dictionary at each start.

Terms are numbered in sorted order and a question's terms are added up in that order: equal corpora give equal bytes
and equal scores, however their terms were numbered before.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, ValidationError

from schemas.config import Bm25Config
from schemas.errors import GlossatorError
from tasks.lake.arrays import map_array
from tasks.lake.lake import Corrupt, first_line, rebuild_hint
from tasks.lake.storage import reading
from tasks.tokens.analyzer import ANALYZER_VERSION

BM25_VERSION = 1

DATA, INDICES, INDPTR = "data.csc.index.npy", "indices.csc.index.npy", "indptr.csc.index.npy"
PARAMS, VOCABULARY, SETTINGS = "params.index.json", "vocabulary.arrow", "settings.json"

Number = TypeVar("Number", np.float32, np.int32, np.int64)


class Bm25Settings(BaseModel):
    """What a question must share with the index: without it both would speak of different terms.

    Attributes:
        documents, terms, entries: sizes; arrays that do not have them are damaged.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    bm25_version: int
    analyzer_version: int
    config: Bm25Config
    config_digest: str
    documents: int
    terms: int
    entries: int


class Bm25Index:
    """An opened index. Safe for several threads: nothing changes after ``open``.

    Attributes:
        size: number of documents.
        vocabulary: its terms, sorted.
        settings: as built; analyse questions with ``settings.config``.
    """

    def __init__(
        self,
        folder: Path,
        settings: Bm25Settings,
        vocabulary: pa.LargeStringArray,
        data: npt.NDArray[np.float32],
        indices: npt.NDArray[np.int32],
        indptr: npt.NDArray[np.int64],
    ) -> None:
        self._folder = folder
        self.settings = settings
        self.size = settings.documents
        self.vocabulary = vocabulary
        self._data = data
        self._indices = indices
        self._indptr = indptr

    @classmethod
    def open(cls, folder: Path) -> Bm25Index:
        """Map the files of a folder; ~5 ms whatever their size.

        Raises:
            Corrupt: a file is missing, cut short or not what it should be. (Changed bytes inside arrays are found by
                ``Lake.open_folder(verify=True)`` alone.)
            GlossatorError: the index was built by another version of the analyzer.
        """
        try:
            with reading(folder / SETTINGS):
                settings = Bm25Settings.model_validate_json((folder / SETTINGS).read_bytes())
            with reading(folder / VOCABULARY), pa.memory_map(str(folder / VOCABULARY)) as file:
                column = pa.ipc.open_file(file).read_all().column("term")
            data = _mapped(folder / DATA, np.float32)
            indices = _mapped(folder / INDICES, np.int32)
            indptr = _mapped(folder / INDPTR, np.int64)
        except (OSError, ValueError, KeyError, EOFError, ValidationError, pa.ArrowException) as error:
            raise _damaged(folder, error) from error
        built_by = (settings.bm25_version, settings.analyzer_version, settings.config_digest)
        if built_by != (BM25_VERSION, ANALYZER_VERSION, settings.config.result_digest()):
            raise GlossatorError(
                f"{folder} was built by another version of the analyzer ({settings.analyzer_version}, "
                f"now {ANALYZER_VERSION}): questions would be cut into other terms than its documents were",
                hint="run `glossator index --migrate`",
            )
        vocabulary = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        index = cls(folder, settings, vocabulary, data, indices, indptr)
        if not index._is_whole():
            raise _damaged(folder, "its arrays do not fit together")
        return index

    def _is_whole(self) -> bool:
        sizes = (len(self.vocabulary), len(self._indptr) - 1, len(self._data), len(self._indices))
        terms, entries = self.settings.terms, self.settings.entries
        holding = np.diff(self._indptr)
        return (
            sizes == (terms, terms, entries, entries)
            and (int(self._indptr[0]), int(self._indptr[-1])) == (0, entries)
            and (terms == 0 or 0 < holding.min() <= holding.max() <= self.size)
        )

    def _term(self, number: int) -> str:
        one = self.vocabulary.slice(number, 1)
        try:
            one.validate(full=True)  # Arrow follows any offset, to whatever lies there.
        except pa.ArrowException as error:
            raise _damaged(self._folder, error) from error
        return str(one[0].as_py())

    def _column(self, term: str) -> tuple[int, int]:
        """Return begin and end of a term's entries; equal where no document has it."""
        number = bisect_left(range(len(self.vocabulary)), term, key=self._term)
        if number == len(self.vocabulary) or self._term(number) != term:
            return 0, 0
        return int(self._indptr[number]), int(self._indptr[number + 1])

    def holds(self, term: str) -> bool:
        """Tell whether any document has a term."""
        begin, end = self._column(term)
        return begin < end

    def idf(self, term: str) -> float:
        """Return the inverse document frequency of a term; the largest for one that no document has."""
        begin, end = self._column(term)
        holding = end - begin
        return math.log1p((self.size - holding + 0.5) / (holding + 0.5))

    def term_sums(self, weights: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        """Return the sum (mod 2^64) of the weights of each document's distinct terms, shape (size,).

        Args:
            weights: one for each term of ``vocabulary``, in its order.
        """
        sums = np.zeros(self.size, dtype=np.uint64)
        np.add.at(sums, self._indices, np.repeat(weights, np.diff(self._indptr)))
        return sums

    def scores(self, terms: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return the score of each document, shape (size,); 0 where it shares no term with the question."""
        scores = np.zeros(self.size, dtype=np.float32)
        for term, count in sorted(Counter(terms).items()):
            begin, end = self._column(term)
            try:
                scores[self._indices[begin:end]] += self._data[begin:end] * np.float32(count)
            except IndexError as error:
                raise _damaged(self._folder, error) from error
        return scores

    def top(
        self, terms: Sequence[str], k: int, allowed: npt.NDArray[np.bool_] | None = None
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Return the ids and scores of the best documents, best first, ties by smaller id.

        Args:
            terms: of the question; repetitions count.
            k: at most so many; fewer where fewer share a term with the question.
            allowed: shape (size,); others are left out.
        """
        scores = self.scores(terms)
        ids = np.flatnonzero(scores if allowed is None else (scores > 0) & allowed)
        found = scores[ids]
        if 0 < k < len(ids):
            # Keep all ties at the border, so that the smaller ids among them win.
            ids = ids[found >= np.partition(found, len(found) - k)[len(found) - k]]
            found = scores[ids]
        order = np.lexsort((ids, -found))[: max(k, 0)]
        return ids[order].astype(np.int64), found[order]


def _mapped(path: Path, kind: type[Number]) -> npt.NDArray[Number]:
    array = map_array(path)
    if array.ndim != 1 or array.dtype != np.dtype(kind):
        raise ValueError(f"{path.name} holds {array.ndim} dimensions of {array.dtype}")
    # A plain view: numpy.memmap's own indexing costs microseconds a slice.
    plain: npt.NDArray[Number] = array.view(np.ndarray)
    return plain


def _damaged(folder: Path, why: object) -> Corrupt:
    return Corrupt(f"the BM25 index {folder} is damaged ({first_line(why)})", hint=rebuild_hint(folder))
