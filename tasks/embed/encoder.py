"""Encoders: texts to unit vectors.

``SentenceEncoder`` runs a sentence-transformers model (Reimers and Gurevych, 2019) in batches of equal token cost;
``HashEncoder`` makes deterministic vectors from a hash, for tests and scale runs of everything but the model.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from schemas.config import EmbedConfig
from tasks.embed.model import ModelFiles
from tasks.embed.tokenizer import open_tokenizer
from tasks.memory import give_back

Vectors = npt.NDArray[np.float32]
MAX_BATCH = 256


class Encoder(Protocol):
    """Texts to vectors."""

    def encode(self, texts: Sequence[str], done: Callable[[int], None] | None = None) -> Vectors:
        """Return float32 [len(texts), dimension], each row of length 1.

        Args:
            texts: passages, at most the model's window long each.
            done: told the number of texts after each batch.
        """
        ...

    def encode_query(self, question: str) -> Vectors:
        """Return float32 [dimension], of length 1. A question beyond the window is cut at its end."""
        ...


class HashEncoder:
    """Deterministic vectors: equal texts give equal vectors, others almost orthogonal ones."""

    def __init__(self, dimension: int) -> None:
        self._dimension = dimension

    def encode(self, texts: Sequence[str], done: Callable[[int], None] | None = None) -> Vectors:
        rows = np.empty((len(texts), self._dimension), np.float32)
        for row, text in zip(rows, texts, strict=True):
            raw = hashlib.shake_128(text.encode("utf-8", "surrogatepass")).digest(self._dimension)
            row[:] = np.frombuffer(raw, np.uint8).astype(np.float32) - 127.5
        if done is not None:
            done(len(texts))
        return _normalised(rows)

    def encode_query(self, question: str) -> Vectors:
        vector: Vectors = self.encode([question])[0]
        return vector


class SentenceEncoder:
    """A sentence-transformers model on the CPU (or CUDA where there is one)."""

    def __init__(self, files: ModelFiles, config: EmbedConfig) -> None:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        import torch
        from sentence_transformers import SentenceTransformer
        from transformers.utils import logging as transformers_logging

        transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]

        self._files = files
        self._config = config
        self._lock = threading.Lock()
        if config.threads:
            torch.set_num_threads(config.threads)
        dtype = torch.bfloat16 if _precision(config.precision) == "bf16" else torch.float32
        self._torch: Any = torch
        self._model: Any = SentenceTransformer(
            str(files.folder), model_kwargs={"dtype": dtype}, local_files_only=True, trust_remote_code=False
        )

    def encode(self, texts: Sequence[str], done: Callable[[int], None] | None = None) -> Vectors:
        rows = np.empty((len(texts), self._files.dimension), np.float32)
        prompted = [self._config.passage_prompt + text for text in texts]
        with self._lock:  # One forward pass already uses every core.
            for batch in self._batches(prompted):
                rows[batch] = self._forward([prompted[index] for index in batch])
                give_back()
                if done is not None:
                    done(len(batch))
        return _normalised(rows)

    def encode_query(self, question: str) -> Vectors:
        with self._lock:
            vector: Vectors = _normalised(self._forward([self._config.query_prompt + question]))[0]
        return vector

    def _batches(self, texts: Sequence[str]) -> Iterator[list[int]]:
        # Longest first: padding is least when neighbours are alike, and a batch too large for memory fails at once.
        tokenizer = open_tokenizer(self._files)
        lengths = [tokenizer.count(text) + tokenizer.special for text in texts]
        batch: list[int] = []
        for index in sorted(range(len(texts)), key=lambda index: (-lengths[index], index)):
            width = lengths[batch[0]] if batch else lengths[index]
            if batch and (width * (len(batch) + 1) > self._config.batch_tokens or len(batch) >= MAX_BATCH):
                yield batch
                batch = []
            batch.append(index)
        if batch:
            yield batch

    def _forward(self, texts: list[str]) -> Vectors:
        with self._torch.inference_mode():
            output = self._model.encode(texts, batch_size=len(texts), convert_to_tensor=True, show_progress_bar=False)
        rows: Vectors = output.float().cpu().numpy()
        return rows


def _normalised(rows: Vectors) -> Vectors:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    normalised: Vectors = (rows / np.maximum(norms, 1e-12)).astype(np.float32)
    return normalised


def _precision(wanted: str) -> str:
    if wanted != "auto":
        return wanted
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return "fp32"
    return "bf16" if "avx512_bf16" in flags or "amx_bf16" in flags else "fp32"


_opening = threading.Lock()


def open_encoder(files: ModelFiles, config: EmbedConfig) -> Encoder:
    """Return the encoder of a model, loaded once per process (4 to 6 seconds for MiniLM).

    One thread at a time: while a model is built, transformers changes torch's default dtype for the whole process.
    """
    with _opening:
        return _cached_encoder(files, config)


@lru_cache(maxsize=2)
def _cached_encoder(files: ModelFiles, config: EmbedConfig) -> Encoder:
    return HashEncoder(files.dimension) if files.folder is None else SentenceEncoder(files, config)
