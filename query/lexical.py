"""The lexical side: BM25 over the same terms that the documents were cut into."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from query.ranking import Ranking
from tasks.publish.bm25 import Bm25Index
from tasks.tokens.analyzer import Analyzer


class LexicalSearch:
    """A BM25 index with the analyzer that it was built by, whatever today's configuration says."""

    def __init__(self, index: Bm25Index) -> None:
        self.index = index

    @cached_property
    def analyzer(self) -> Analyzer:
        """The analyzer of the index's own settings."""
        return Analyzer(self.index.settings.config)

    def search(self, question: str, k: int, *, allowed: npt.NDArray[np.bool_] | None = None) -> Ranking:
        """Return at most ``k`` chunks that share a term with the question, ties by smaller row."""
        return Ranking(*self.index.top(self.analyzer.terms(question), k, allowed))
