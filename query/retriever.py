"""Retriever: a question to passages, by vectors, by words, or by both.

A side that is not needed is not loaded: in ``bm25`` mode, or when the model does not know the question's language,
neither the model nor the vector store is opened.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Any, Generic, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from query.dense import VectorSearch, Way, search_dense
from query.encoder import QueryEncoder, encode_question
from query.fusion import Fused, Place, Points, fuse, knows, lift, min_max, reciprocal_ranks
from query.lexical import LexicalSearch
from query.ranking import NOTHING, Ranking
from query.snapshot_reader import Passage, SnapshotReader
from schemas.config import SearchConfig
from schemas.errors import UsageError
from tasks.embed.tokenizer import Tokenizer

Mode = Literal["hybrid", "dense", "bm25"]
MODES: tuple[Mode, ...] = ("hybrid", "dense", "bm25")

_Opened = TypeVar("_Opened")


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage that was found.

    Attributes:
        rank: from 1.
        score: fused; comparable within one result only.
        dense, bm25: where each side put it.
    """

    rank: int
    score: float
    dense: Place | None
    bm25: Place | None
    passage: Passage


@dataclass(frozen=True, slots=True)
class Step:
    """How long a step took."""

    name: str
    milliseconds: float


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What was found, and how.

    Attributes:
        dense_way: how the vector side was searched; None where it was not.
        notes: what a reader should know, in sentences ("dense side off: ...").
        snapshot: name of the one snapshot that all of it is from.
    """

    question: str
    mode: Mode
    hits: tuple[Hit, ...]
    dense_way: Way | None
    notes: tuple[str, ...]
    steps: tuple[Step, ...]
    snapshot: str = ""


class _Once(Generic[_Opened]):
    """Opens something when first asked for, once, whichever thread asks."""

    def __init__(self, opens: Callable[[], _Opened]) -> None:
        self._opens = opens
        self._opened: list[_Opened] = []
        self._lock = Lock()

    def __call__(self) -> _Opened:
        with self._lock:
            if not self._opened:
                self._opened.append(self._opens())
            return self._opened[0]

    def take(self) -> _Opened | None:
        """Return what was opened, if it was, and forget it."""
        with self._lock:
            return self._opened.pop() if self._opened else None

    @property
    def is_open(self) -> bool:
        """Tell whether it was opened."""
        return bool(self._opened)


@dataclass(slots=True)
class _Trace:
    """What happens during one search."""

    notes: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    way: Way | None = None

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.steps.append(Step(name, (time.perf_counter() - started) * 1000))


class Retriever:
    """Searches one snapshot. Safe for several threads as far as the encoder and the index are.

    Args:
        reader: the snapshot.
        vector_search, encoder, tokenizer: called once, when a question first needs them. The tokenizer is the
            embedding model's own.
    """

    def __init__(
        self,
        reader: SnapshotReader,
        vector_search: Callable[[], VectorSearch],
        encoder: Callable[[], QueryEncoder],
        tokenizer: Callable[[], Tokenizer],
        config: SearchConfig,
    ) -> None:
        self.reader = reader
        self.config = config
        self._vector_search = _Once(vector_search)
        self._encoder = _Once(encoder)
        self._tokenizer = _Once(tokenizer)
        self._lexical = _Once(lambda: LexicalSearch(reader.bm25))
        self._sides: tuple[_Once[Any], ...] = (self._lexical, self._tokenizer, self._encoder, self._vector_search)

    @property
    def lexical(self) -> LexicalSearch:
        """The lexical side, opened when first asked for."""
        return self._lexical()

    def warm_like(self, other: Retriever) -> None:
        """Open what another retriever has open, so that nobody waits for it later."""
        for mine, theirs in zip(self._sides, other._sides, strict=True):
            if theirs.is_open:
                mine()

    def close(self) -> None:
        """Let go of the vector store; a later search would open it again."""
        store = self._vector_search.take()
        if store is not None:
            store.close()

    def search(
        self,
        question: str,
        k: int = 10,
        mode: Mode = "hybrid",
        *,
        allowed: npt.NDArray[np.bool_] | None = None,
        groups: Iterable[str] | None = None,
    ) -> SearchResult:
        """Return the best ``k`` passages, fewer where fewer match.

        Args:
            allowed: which chunks may be found, shape (reader.size,); None allows all.
            groups: of the person who asks, who finds nothing that they may not see; None for the operator, who finds
                all that was not purged.

        Raises:
            UsageError: no such mode, or ``k`` below 1.
            Swept: the snapshot was swept meanwhile.
            Corrupt: nobody knows who may see what.
        """
        if mode not in MODES:
            raise UsageError(f"no search mode {mode!r}", hint=f"one of {', '.join(MODES)}")
        if k < 1:
            raise UsageError(f"cannot return {k} passages", hint="ask for 1 or more")
        trace = _Trace()
        seen = self.reader.visibility.of(groups)
        if not seen.everything:
            allowed = seen.chunks if allowed is None else allowed & seen.chunks
        candidates = max(self.config.candidates, k)
        dense = bm25 = NOTHING
        if not question.strip():
            trace.notes.append("the question is empty")
        else:
            if mode != "dense":
                with trace.step("bm25"):
                    bm25 = self.lexical.search(question, candidates, allowed=allowed)
            if mode != "bm25" and self._dense_makes_sense(question, mode, trace):
                dense = self._search_dense(question, candidates, allowed, seen.acl_ids, trace)
        fused = self._fuse(dense, bm25, mode)[:k]
        with trace.step("passages"):
            hits = tuple(
                Hit(rank, hit.score, hit.dense, hit.bm25, self.reader.passage(hit.row))
                for rank, hit in enumerate(fused, start=1)
            )
        if trace.way is not None:
            self.reader.require()
        return SearchResult(
            question, mode, hits, trace.way, tuple(trace.notes), tuple(trace.steps), self.reader.snapshot.name
        )

    def _dense_makes_sense(self, question: str, mode: Mode, trace: _Trace) -> bool:
        with trace.step("tokenize"):
            unknown = self._tokenizer().unknown_share(question)
        if knows(unknown, self.config.unknown_share):
            return True
        what = f"{unknown:.0%} of the question's tokens are unknown to the model".replace("%", " %")
        if mode == "dense":
            trace.notes.append(f"{what}: its vectors mean little here")
            return True
        trace.notes.append(f"dense side off: {what}")
        return False

    def _search_dense(
        self,
        question: str,
        candidates: int,
        allowed: npt.NDArray[np.bool_] | None,
        acl_ids: Sequence[int] | None,
        trace: _Trace,
    ) -> Ranking:
        with trace.step("encode"):
            vector = encode_question(self._encoder(), question, self.reader.snapshot.vectors.dimension)
        with trace.step("dense"), self.reader.unless_swept():
            found = search_dense(
                self.reader,
                self._vector_search,
                vector,
                candidates,
                brute_force_rows=self.config.brute_force_rows,
                allowed=allowed,
                acl_ids=acl_ids,
            )
        trace.way = found.way
        if found.note:
            trace.notes.append(found.note)
        return found.ranking

    def _fuse(self, dense: Ranking, bm25: Ranking, mode: Mode) -> list[Fused]:
        config = self.config
        points: Points = min_max if config.fusion == "min-max" else partial(reciprocal_ranks, k=config.rrf_k)
        if mode != "hybrid":  # One side alone, as it is: what the other is compared with.
            return fuse(dense, bm25, points)
        fused = fuse(dense, bm25, points, dense_weight=config.dense_weight, bm25_weight=config.bm25_weight)
        return lift(fused, self.reader.document_rows(), config.document_weight)
