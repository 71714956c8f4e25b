"""Question to vector."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from schemas.errors import GlossatorError


class QueryEncoder(Protocol):
    """The part of an embedding model (``tasks.embed.encoder.Encoder``) that a search needs."""

    def encode_query(self, question: str) -> npt.NDArray[np.float32]:
        """Return a unit vector, float32, shape (dimension,)."""
        ...


def encode_question(encoder: QueryEncoder, question: str, dimension: int) -> npt.NDArray[np.float32]:
    """Return the vector of a question.

    Raises:
        GlossatorError: the model is not the one that the snapshot was built with.
    """
    vector = np.asarray(encoder.encode_query(question), dtype=np.float32)
    if vector.shape != (dimension,):
        raise GlossatorError(
            f"the model gives vectors of shape {vector.shape}, the snapshot holds vectors of {dimension} numbers",
            hint="search with the model that the snapshot was built with, or run `glossator index --migrate`",
        )
    return vector
