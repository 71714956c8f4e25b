"""The current retriever: for whoever serves searches for longer than a snapshot lasts.

It re-reads the pointer every few seconds. A new snapshot is opened, with all that the old one had open (model and
stores included), *before* anybody is handed it; the old one is let go of when the last search on it has ended. A search
uses the snapshot that it began with from start to end, so that no answer ever mixes two.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Lock

import numpy as np
import numpy.typing as npt

from query.opening import newest_flip, open_retriever
from query.retriever import Mode, Retriever, SearchResult
from query.snapshot_reader import Swept
from schemas.config import Config
from schemas.errors import GlossatorError
from schemas.snapshot import Flip
from tasks.lake.lake import Lake

EVERY_SECONDS = 30.0
_TRIES = 3

Mask = Callable[[Retriever], npt.NDArray[np.bool_] | None]


@dataclass(slots=True)
class _Opened:
    """A retriever, how many use it, and whether it is to be closed by the last of them."""

    retriever: Retriever
    users: int = 0
    replaced: bool = False


class CurrentRetriever:
    """Hands out a retriever for the newest flip. Safe for several threads.

    Attributes:
        flip: the pointer that is followed at the moment.
        problem: why the newest flip could not be opened, so that an older snapshot serves on; "" when all is well.
    """

    def __init__(
        self,
        lake: Lake,
        config: Config,
        *,
        every: float = EVERY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Open what is published.

        Args:
            every: seconds between two looks at the pointer.

        Raises:
            UsageError: nothing was published yet, or its model is not there.
        """
        self._lake = lake
        self._config = config
        self._every = every
        self._clock = clock
        self._refreshing = Lock()
        self._lock = Lock()
        self.problem = ""
        self._looked = clock()
        self.flip, self._opened = self._open_newest(None)

    @contextmanager
    def borrow(self) -> Iterator[Retriever]:
        """Lend a retriever of one snapshot, open until it is given back."""
        if self._clock() - self._looked >= self._every:
            self.refresh(wait=False)
        with self._lock:
            opened = self._opened
            opened.users += 1
        try:
            yield opened.retriever
        finally:
            with self._lock:
                opened.users -= 1
                last = opened.replaced and opened.users == 0
            if last:
                opened.retriever.close()

    def search(
        self,
        question: str,
        k: int = 10,
        mode: Mode = "hybrid",
        *,
        groups: Iterable[str] | None,
        allowed: Mask | None = None,
    ) -> SearchResult:
        """Search one snapshot, see ``Retriever.search``. When it was swept meanwhile, search the newest instead.

        Args:
            groups: of the person who asks; None for the operator. To be said by every caller: here others ask.
            allowed: works out which chunks may be found, for the snapshot that is searched.
        """
        members = None if groups is None else tuple(groups)
        for _ in range(_TRIES - 1):
            try:
                return self._search(question, k, mode, members, allowed)
            except Swept:
                self.refresh()
        return self._search(question, k, mode, members, allowed)

    def _search(
        self, question: str, k: int, mode: Mode, groups: tuple[str, ...] | None, allowed: Mask | None
    ) -> SearchResult:
        with self.borrow() as retriever:
            mask = allowed(retriever) if allowed else None
            return retriever.search(question, k, mode, allowed=mask, groups=groups)

    def refresh(self, *, wait: bool = True) -> None:
        """Look at the pointer, and follow it if it moved.

        What goes wrong is kept in ``problem`` while the old snapshot serves on.

        Args:
            wait: for another thread that is doing it already; else go on with what is open.
        """
        if not self._refreshing.acquire(blocking=wait):
            return
        try:
            self._looked = self._clock()
            flip = newest_flip(self._lake)
            if flip.number != self.flip.number:
                self._follow(flip)
            self.problem = ""
        except GlossatorError as error:
            self.problem = str(error)
        finally:
            self._refreshing.release()

    def close(self) -> None:
        """Let go of everything once the searches under way have ended."""
        self._replace(self._opened)

    def _follow(self, flip: Flip) -> None:
        old = self._opened
        if flip.snapshot == self.flip.snapshot:
            self.flip = flip
            return
        newest, opened = self._open_newest(old.retriever)
        with self._lock:
            self.flip, self._opened = newest, opened
        self._replace(old)

    def _replace(self, opened: _Opened) -> None:
        with self._lock:
            opened.replaced = True
            unused = opened.users == 0
        if unused:
            opened.retriever.close()

    def _open_newest(self, like: Retriever | None) -> tuple[Flip, _Opened]:
        for _ in range(_TRIES - 1):
            with suppress(Swept):  # The pointer moved on, twice, while this was opened.
                return self._open(newest_flip(self._lake), like)
        return self._open(newest_flip(self._lake), like)

    def _open(self, flip: Flip, like: Retriever | None) -> tuple[Flip, _Opened]:
        retriever = open_retriever(self._lake, self._config, flip.snapshot)
        if like is not None:
            retriever.warm_like(like)
        return flip, _Opened(retriever)
