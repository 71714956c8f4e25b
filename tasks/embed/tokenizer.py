"""Counting tokens as the embedding model does, without the model.

Chunk sizes are in tokens of the model's own tokenizer (the ``tokenizers`` library, no torch), so that no text is
ever cut silently by the window. A ``hash:`` model counts words, punctuation marks and CJK characters.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

from schemas.errors import UsageError
from schemas.identity import digest
from tasks.embed.model import ModelFiles, file_sha256

_WORDS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\W\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+|[^\w\s]")


class Tokenizer(Protocol):
    """Token counts of one model.

    Attributes:
        identity: changes when counts may change.
        special: tokens that the model adds to each text.
    """

    identity: str
    special: int

    def starts(self, text: str) -> npt.NDArray[np.int64]:
        """Return the offset (code points) at which each token begins, ascending, special tokens left out."""
        ...

    def count(self, text: str) -> int:
        """Return the number of tokens, special ones left out."""
        ...

    def unknown_share(self, text: str) -> float:
        """Return the share of tokens that the model does not know, 0.0 for an empty text."""
        ...


class HashTokenizer:
    """Words, punctuation marks and single CJK characters; knows everything."""

    identity = "words-1"
    special = 0

    def starts(self, text: str) -> npt.NDArray[np.int64]:
        return np.fromiter((match.start() for match in _WORDS.finditer(text)), dtype=np.int64)

    def count(self, text: str) -> int:
        return sum(1 for _ in _WORDS.finditer(text))

    def unknown_share(self, text: str) -> float:
        return 0.0


class ModelTokenizer:
    """The model's ``tokenizer.json``, with truncation and padding off."""

    def __init__(self, files: ModelFiles) -> None:
        from tokenizers import Tokenizer as RustTokenizer

        assert files.folder is not None
        path = files.folder / "tokenizer.json"
        if not path.is_file():
            raise UsageError(f"embed.model: {files.folder} has no tokenizer.json", hint="use a fast-tokenizer model")
        self._tokenizer = RustTokenizer.from_file(str(path))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.identity = digest("tokenizer", file_sha256(path))[:32]
        self.special = self._tokenizer.num_special_tokens_to_add(is_pair=False)
        unknown = getattr(self._tokenizer.model, "unk_token", None)
        self._unknown = self._tokenizer.token_to_id(unknown) if isinstance(unknown, str) else None

    def starts(self, text: str) -> npt.NDArray[np.int64]:
        offsets = self._tokenizer.encode(text, add_special_tokens=False).offsets
        return np.fromiter((start for start, _ in offsets), dtype=np.int64, count=len(offsets))

    def count(self, text: str) -> int:
        return len(self._tokenizer.encode(text, add_special_tokens=False))

    def unknown_share(self, text: str) -> float:
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        if not ids or self._unknown is None:
            return 0.0
        return ids.count(self._unknown) / len(ids)


@lru_cache(maxsize=4)
def open_tokenizer(files: ModelFiles) -> Tokenizer:
    """Return the tokenizer of a model (cached: reading it takes ~20 ms)."""
    return HashTokenizer() if files.folder is None else ModelTokenizer(files)
