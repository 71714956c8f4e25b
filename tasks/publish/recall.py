"""Recall of the vector index: does it find the chunks that a comparison with every vector finds?

Asked with vectors that no chunk has: halfway between two chunks of the snapshot, spread evenly over it. What is nearest
is computed of the rows that the store holds: those of a text that was embedded twice are a little different.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from schemas.snapshot import Snapshot
from tasks.lake.arrays import map_array
from tasks.lake.lake import Lake, passages_folder
from tasks.publish.catalog import read_arrow

Vectors = npt.NDArray[np.float32]
Search = Callable[[Vectors], list[tuple[str, float]]]
Stored = Callable[[Sequence[str]], Mapping[str, Vectors]]

QUESTIONS = 50
NEIGHBOURS = 10
_NEAR = 50
"""So many chunks that are nearest by the passages have the ten nearest by the store's rows among them."""
_WRONG = 2e-5
"""Similarities further from those of the vectors than this are wrong: an index computes in float32."""
_TIE = 1e-5
"""Similarities closer than this are one: equal texts have equal vectors, and none of them is the better find."""


def index_recall(lake: Lake, snapshot: Snapshot, search: Search, stored: Stored) -> float:
    """Return recall@10 of the vector index among the chunks of a snapshot, in [0, 1]; 1 for one without chunks.

    Args:
        search: vector [dimension] -> (chunk_id, cosine similarity) as the index finds them, best first.
        stored: chunk_ids -> the vectors of their rows in the store.
    """
    questions = _questions(lake, snapshot)
    if not len(questions):
        return 1.0
    ids = _ids(lake, snapshot)
    ours = set(ids)
    near = [[ids[row] for row in rows] for rows in _nearest(lake, snapshot, questions)]
    hits = [[hit for hit in search(question) if hit[0] in ours] for question in questions]
    rows = stored(sorted({one for few in near for one in few} | {one for few in hits for one, _ in few}))
    wanted = min(NEIGHBOURS, len(ids))
    found = 0
    for question, nearest, few in zip(questions, near, hits, strict=True):
        true = {one: float(question @ rows[one]) for one in (*nearest, *(hit[0] for hit in few)) if one in rows}
        if len(true) < wanted or any(abs(true.get(one, np.inf) - similarity) > _WRONG for one, similarity in few):
            continue  # A byte of the index has changed: nothing that it says of this question counts.
        limit = sorted(true.values(), reverse=True)[wanted - 1]
        found += sum(similarity >= limit - _TIE for _, similarity in few[:wanted])
    return found / (wanted * len(questions))


def _ids(lake: Lake, snapshot: Snapshot) -> list[str]:
    """Return the chunk_ids in the order of ``_parts``."""
    folders = [lake.open_folder(passages_folder(ref.key)) for ref in snapshot.parts["passages"]]
    return [
        chunk for folder in folders for chunk in read_arrow(folder / "chunks.arrow", ["chunk_id"])["chunk_id"].to_list()
    ]


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


def _nearest(lake: Lake, snapshot: Snapshot, questions: Vectors) -> list[list[int]]:
    """Return, per question, the places of the chunks that are nearest by the passages."""
    best, places = np.zeros((len(questions), 0), np.float32), np.zeros((len(questions), 0), np.int64)
    start = 0
    for part in _parts(lake, snapshot):
        best = np.concatenate([best, questions @ np.asarray(part, np.float32).T], axis=1)
        own = np.broadcast_to(np.arange(start, start + len(part)), (len(questions), len(part)))
        places = np.concatenate([places, own], axis=1)
        first = np.argsort(-best, axis=1, kind="stable")[:, :_NEAR]
        best, places = np.take_along_axis(best, first, axis=1), np.take_along_axis(places, first, axis=1)
        start += len(part)
    nearest: list[list[int]] = places.tolist()
    return nearest
