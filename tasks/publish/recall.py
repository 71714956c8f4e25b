"""Recall of the vector index: does it find the chunks that a comparison with every vector finds?

Asked with vectors that no chunk has: halfway between two chunks of the snapshot, spread evenly over it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from schemas.snapshot import Snapshot
from tasks.lake.arrays import map_array
from tasks.lake.lake import Lake, passages_folder
from tasks.publish.catalog import read_arrow

Vectors = npt.NDArray[np.float32]
Search = Callable[[Vectors], list[tuple[str, float]]]

QUESTIONS = 50
NEIGHBOURS = 10
_WRONG = 2e-5
"""Similarities further from those of the vectors than this are wrong: an index computes in float32."""
_TIE = 1e-5
"""Similarities closer than this are one: equal texts have equal vectors, and none of them is the better find."""


def index_recall(lake: Lake, snapshot: Snapshot, search: Search) -> float:
    """Return recall@10 of the vector index among the chunks of a snapshot, in [0, 1]; 1 for one without chunks.

    Args:
        search: vector [dimension] -> (chunk_id, cosine similarity) as the index finds them, best first.
    """
    questions = _questions(lake, snapshot)
    if not len(questions):
        return 1.0
    least = _least_similar(lake, snapshot, questions)
    vectors = _by_id(lake, snapshot)
    wanted = min(NEIGHBOURS, len(vectors))
    found = 0
    for question, limit in zip(questions, least, strict=True):
        hits = [hit for hit in search(question) if hit[0] in vectors]
        true = (float(question @ vectors[chunk_id]) for chunk_id, _ in hits)
        if any(abs(one - similarity) > _WRONG for one, (_, similarity) in zip(true, hits, strict=True)):
            continue  # A byte of the index has changed: nothing that it says of this question counts.
        found += sum(similarity >= limit - _TIE for _, similarity in hits[:wanted])
    return found / (wanted * len(questions))


def _by_id(lake: Lake, snapshot: Snapshot) -> dict[str, npt.NDArray[np.float32]]:
    """Return the (mapped) vector of each chunk."""
    refs = snapshot.parts["passages"]
    folders = [lake.open_folder(passages_folder(ref.key)) for ref in refs]
    ids = [read_arrow(folder / "chunks.arrow", ["chunk_id"])["chunk_id"].to_list() for folder in folders]
    return {
        chunk_id: vector
        for names, vectors in zip(ids, _parts(lake, snapshot), strict=True)
        for chunk_id, vector in zip(names, vectors, strict=True)
    }


def _parts(lake: Lake, snapshot: Snapshot) -> list[Vectors]:
    return [map_array(lake.open_folder(passages_folder(ref.key)) / "vectors.npy") for ref in snapshot.parts["passages"]]


def _questions(lake: Lake, snapshot: Snapshot) -> Vectors:
    """Return unit vectors, float32 [questions, dimension]."""
    parts = [part for part in _parts(lake, snapshot) if len(part)]
    sizes = np.cumsum([0, *(len(part) for part in parts)])
    total = int(sizes[-1])
    rows = np.unique(np.linspace(0, total - 1, 2 * QUESTIONS, dtype=np.int64)) if total else np.zeros(0, np.int64)
    shards = np.searchsorted(sizes, rows, side="right") - 1
    sample = np.array([parts[shard][row - sizes[shard]] for row, shard in zip(rows, shards, strict=True)], np.float32)
    if len(sample) < 2:
        return sample
    half = len(sample) // 2
    middle = sample[:half] + sample[half : 2 * half]
    lengths = np.linalg.norm(middle, axis=1, keepdims=True)
    unit: Vectors = (middle / np.maximum(lengths, 1e-9))[lengths[:, 0] > 1e-6].astype(np.float32)
    return unit


def _least_similar(lake: Lake, snapshot: Snapshot, questions: Vectors) -> npt.NDArray[np.float32]:
    """Return, per question, the similarity of its tenth nearest chunk (the last, where there are fewer)."""
    best = np.full((len(questions), 0), -np.inf, np.float32)
    for part in _parts(lake, snapshot):
        best = np.concatenate([best, questions @ np.asarray(part, np.float32).T], axis=1)
        best = -np.sort(-best, axis=1)[:, :NEIGHBOURS]
    least: npt.NDArray[np.float32] = best[:, -1]
    return least
