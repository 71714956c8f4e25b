"""Damage: what the published snapshot names and the lake no longer holds in full.

Found by names and sizes alone, at every plan, so that the next run mends it whether or not a document has changed.
Bytes that changed in place are the doctor's to find. What is derived from parts it repairs itself
(tasks/publish/repair.py); damaged parts it deletes, and then they are missing here.
"""

from __future__ import annotations

from dataclasses import dataclass

from schemas.config import Config
from schemas.snapshot import Snapshot
from tasks.lake.lake import MILVUS_FOLDER, Lake, bm25_folder, catalog_folder, part_path, passages_folder


@dataclass(frozen=True, slots=True)
class Damage:
    """What is missing or cut short.

    Attributes:
        shards: those with a damaged part or passages.
        keys: storage keys of all damaged parts and folders, sorted.
    """

    shards: frozenset[int]
    keys: tuple[str, ...]


NO_DAMAGE = Damage(frozenset(), ())


def find_damage(lake: Lake, config: Config, snapshot: Snapshot) -> Damage:
    """Look for everything that a snapshot names."""
    shards: set[int] = set()
    keys: set[str] = set()
    for stage, refs in snapshot.parts.items():
        for ref in refs:
            key = passages_folder(ref.key) if stage == "passages" else part_path(stage, ref.key)
            if not (lake.has_folder(key) if stage == "passages" else lake.storage.exists(key)):
                shards.add(ref.shard)
                keys.add(key)
    keys |= {key for key in (catalog_folder(snapshot.catalog), bm25_folder(snapshot.bm25)) if not lake.has_folder(key)}
    if not config.milvus.uri and not lake.storage.exists(MILVUS_FOLDER):
        keys.add(MILVUS_FOLDER)
    return Damage(frozenset(shards), tuple(sorted(keys)))
