"""Open a retriever on what is published: the snapshot that the newest flip names, with its own model."""

from __future__ import annotations

from functools import partial

from query.retriever import Retriever
from query.snapshot_reader import SnapshotReader
from schemas.config import Config
from schemas.errors import UsageError
from schemas.snapshot import Flip, Snapshot
from tasks.embed.encoder import open_encoder
from tasks.embed.model import locate_model
from tasks.embed.tokenizer import open_tokenizer
from tasks.lake.lake import Lake
from tasks.plan.stages import stamp_model
from tasks.publish.milvus import MilvusStore, open_milvus


def newest_flip(lake: Lake) -> Flip:
    """Return the pointer.

    Raises:
        UsageError: nothing was published yet.
    """
    flip = lake.current_flip()
    if flip is None:
        raise UsageError(
            f"collection {lake.collection!r} in {lake.root} is empty", hint="run `glossator index FOLDER` first"
        )
    return flip


def open_reader(lake: Lake) -> SnapshotReader:
    """Open the published snapshot.

    Raises:
        UsageError: nothing was published yet.
    """
    return SnapshotReader(lake, newest_flip(lake).snapshot)


def open_retriever(lake: Lake, config: Config, name: str | None = None) -> Retriever:
    """Open a retriever; model and vector store are opened when a search first needs them.

    Args:
        name: of a snapshot; None is what is published.

    Raises:
        UsageError: nothing was published yet, or the model is not the one that the snapshot was made with.
        Swept: the snapshot is gone.
    """
    reader = open_reader(lake) if name is None else SnapshotReader(lake, name)
    snapshot = reader.snapshot
    config = _with_model_of(lake, config, snapshot)
    files = locate_model(config.embed.model)
    return Retriever(
        reader,
        partial(_store, lake, config, snapshot),
        partial(open_encoder, files, config.embed),
        partial(open_tokenizer, files),
        config.search,
    )


def _store(lake: Lake, config: Config, snapshot: Snapshot) -> MilvusStore:
    return open_milvus(config.milvus, lake, snapshot.vectors)


def _with_model_of(lake: Lake, config: Config, snapshot: Snapshot) -> Config:
    """Return the config with the snapshot's model: vectors of another one cannot be compared with its own."""
    embed = config.embed.model_copy(update={"model": snapshot.vectors.model})
    config = config.model_copy(update={"embed": embed})
    if stamp_model(lake, config, remember=False).identity != snapshot.vectors.model_identity:
        raise UsageError(
            f"the model {snapshot.vectors.model} or embed.passage_prompt is not that that the index was made with",
            hint="set embed.passage_prompt back, or run `glossator index --migrate`",
        )
    return config
