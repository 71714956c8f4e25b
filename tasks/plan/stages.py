"""What the config and the code versions mean: one digest per stage, part of every part key, and one for the stores.

A stage's digest covers the version of its code, the config that it reads, and what it takes from the model. When
a stage's output changes, its version must change: a golden-output test holds us to that.
"""

from __future__ import annotations

from collections.abc import Mapping

from schemas.config import SMALLEST_CHILD, Config
from schemas.errors import UsageError
from schemas.identity import digest
from schemas.snapshot import STAGES, Stage
from schemas.work import ModelStamp
from tasks.chunk.chunker import CHUNKER_VERSION
from tasks.contextualize.structural import STRUCTURAL_VERSION
from tasks.embed.model import fingerprint, locate_model, model_identity
from tasks.embed.tokenizer import open_tokenizer
from tasks.lake.lake import Lake
from tasks.lake.storage import NotFound
from tasks.load.loader import LOADER_VERSION
from tasks.publish.bm25 import BM25_VERSION
from tasks.publish.catalog import CATALOG_VERSION
from tasks.publish.milvus import SCHEMA_VERSION
from tasks.tokens.analyzer import ANALYZER_VERSION

EMBED_VERSION = 1
PASSAGES_VERSION = 3


def stage_digests(config: Config, model: ModelStamp) -> dict[Stage, str]:
    """Return the digest of code version, config and model per stage."""
    return {
        "load": _digest(LOADER_VERSION, config.load.result_digest()),
        "chunk": _digest(CHUNKER_VERSION, config.chunk.result_digest(), model.tokenizer),
        "contextualize": _digest(
            STRUCTURAL_VERSION,
            config.context.result_digest(),
            model.tokenizer,
            model.window,
        ),
        "embed": _digest(EMBED_VERSION, model.identity),
        "tokens": _digest(ANALYZER_VERSION, "stem" if config.bm25.stem else "whole words"),
        "passages": _digest(PASSAGES_VERSION),
    }


def stores_digest(config: Config) -> str:
    """Return the digest of what decides catalog, BM25 index and vector store beside the parts that they hold."""
    return _digest(
        CATALOG_VERSION,
        BM25_VERSION,
        SCHEMA_VERSION,
        config.bm25.result_digest(),
        config.milvus.result_digest(),
        digest("place", config.milvus.uri),  # Another server has none of the rows.
    )


def indexing_digest(config: Config, stages: Mapping[Stage, str]) -> str:
    """Return the digest of all that decides, beside the documents, what a reader finds: the config in a snapshot's id.

    Analyzer and encoder are in it by their versions too: no chunk's id tells which terms and vector it has.
    """
    contents = [stages[stage] for stage in STAGES if stage != "passages"]  # How passages lie is no content.
    return digest("indexing", BM25_VERSION, config.bm25.result_digest(), *contents)[:32]


def _digest(*fields: str | int) -> str:
    return digest("stage", *fields)[:32]


def stamp_model(lake: Lake, config: Config, *, remember: bool = True) -> ModelStamp:
    """Return the identity of the configured model; the weights are hashed once and remembered by size and time.

    Args:
        remember: False for readers, which may have no permission to write.

    Raises:
        UsageError: the chunks and contexts of this config would not fit the model's window.
    """
    files = locate_model(config.embed.model)
    key = f"state/models/{digest(fingerprint(files), config.embed.result_digest())[:32]}.json"
    stamp = _remembered(lake, key)
    if stamp is None:
        tokenizer = open_tokenizer(files)
        stamp = ModelStamp(
            name=files.name,
            identity=model_identity(files, config.embed),
            tokenizer=tokenizer.identity,
            dimension=files.dimension,
            window=files.window - tokenizer.special - tokenizer.count(config.embed.passage_prompt),
        )
        if remember:
            lake.write_json(key, stamp.model_dump())
    needed = config.chunk.child_tokens + config.context.reserve_tokens
    if needed > stamp.window:
        raise UsageError(
            f"chunk.child_tokens + context.reserve_tokens is {needed}, but {stamp.name} takes {stamp.window} tokens",
            hint=_smaller(stamp.window - config.context.reserve_tokens),
        )
    return stamp


def _smaller(room: int) -> str:
    if room >= SMALLEST_CHILD:
        return f"set chunk.child_tokens to at most {room}"
    return "lower context.reserve_tokens, or shorten embed.passage_prompt: they leave no room for a chunk"


def _remembered(lake: Lake, key: str) -> ModelStamp | None:
    try:
        return ModelStamp.model_validate_json(lake.storage.read(key))
    except (NotFound, ValueError):  # Disposable: a damaged one is written anew.
        return None
