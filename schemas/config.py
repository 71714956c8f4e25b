"""Configuration: one typed model, read from a TOML file, the environment and the command line.

Later layers win: defaults, ``glossator.toml``, ``GLOSSATOR__SECTION__KEY`` variables, ``--set section.key=value``.
An unknown key is an error that names the layer and the key.

Fields marked with ``operational`` say *how* the work is done (batch sizes, threads, places) or *on which* documents,
and enter no digest; all others say *what* comes out, and a change to one of them changes the keys of the parts and
stores that it touches.
"""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic.fields import FieldInfo

from schemas.access import compile_glob, group_name
from schemas.errors import UsageError, WrongSettings
from schemas.identity import digest
from schemas.invalid import where, why

Setting = str | int | float | bool
ENV_PREFIX = "GLOSSATOR__"
CONFIG_FILE = "glossator.toml"
SMALLEST_CHILD = 16
"""Tokens; what is smaller says nothing that could be found again."""


def operational(default: Any = ..., **field: Any) -> Any:
    """Declare a field that changes what a run costs or which documents it sees, never what comes out of one."""
    return Field(default, json_schema_extra={"operational": True}, **field)


class Section(BaseModel):
    """One table of the configuration file."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def result_digest(self) -> str:
        """Return the digest of the fields that decide what comes out."""
        fields = {
            name: getattr(self, name) for name, info in type(self).model_fields.items() if not _is_operational(info)
        }
        return digest("config", type(self).__name__, json.dumps(fields, sort_keys=True, default=str))[:32]


def _is_operational(info: FieldInfo) -> bool:
    extra = info.json_schema_extra
    return isinstance(extra, dict) and bool(extra.get("operational"))


class LoadConfig(Section):
    """Bytes to one normalised text per document."""

    max_bytes: int = Field(256 * 2**20, gt=0, description="Files above this many bytes are quarantined.")
    max_pages: int = Field(5_000, gt=0, description="PDFs with more pages are quarantined.")
    max_seconds: int = operational(
        120, gt=0, description="A document that takes more processor time to parse is quarantined."
    )
    max_memory_mb: int = operational(
        2_048,
        ge=256,
        description="A document that takes more memory to parse is quarantined; each core parses one.",
    )
    ignore: tuple[str, ...] = operational(
        (".*", "__pycache__", "node_modules", "*.tmp", "*~"),
        description="Glob patterns; a file or folder whose name matches one is not listed.",
    )


class ChunkConfig(Section):
    """Text to parents and children. Sizes are tokens of the embedding model."""

    child_tokens: int = Field(
        180, ge=SMALLEST_CHILD, description="Largest child (chunk); must leave room for the context."
    )
    parent_tokens: int = Field(1_500, ge=64, description="Largest parent (section).")


class ContextConfig(Section):
    """The short text that places a chunk in its document; embedded and indexed with it."""

    mode: Literal["none", "structural"] = Field(
        "structural", description="`structural`: title, headings and defined names; free and deterministic."
    )
    reserve_tokens: int = Field(64, ge=0, description="Room kept for the context in the embedding window.")


class EmbedConfig(Section):
    """Text to vector."""

    model: str = Field(
        "sentence-transformers/all-MiniLM-L6-v2",
        description="A sentence-transformers model (name or folder), or `hash:DIM` for deterministic test vectors.",
    )
    query_prompt: str = operational("", description="Put before a question, where the model was trained with one.")
    passage_prompt: str = Field("", description="Put before a passage, where the model was trained with one.")
    precision: Literal["auto", "bf16", "fp32"] = operational(
        "auto", description="`auto`: bf16 where the processor has it, else fp32. Vectors differ by a rounding."
    )
    batch_tokens: int = operational(8_192, gt=0, description="Padded tokens per forward pass.")
    threads: int = operational(0, ge=0, description="Processor threads for the model; 0: as many as cores.")


class Bm25Config(Section):
    """The lexical side."""

    k1: float = Field(1.2, gt=0, description="Term frequency saturation.")
    b: float = Field(0.5, ge=0, le=1, description="Length normalisation.")
    stem: bool = Field(True, description="Stem words by the Snowball rules of the document's language.")


class MilvusConfig(Section):
    """The vector store."""

    uri: str = operational(
        "",
        description="Milvus server or cluster; its token comes from `MILVUS_TOKEN`. Empty: Milvus Lite in the lake.",
    )
    shared: bool = operational(
        True, description="Milvus Lite runs as a process of its own that serves all; false: this process alone has it."
    )
    index: Literal["HNSW", "FLAT", "IVF_FLAT", "AUTOINDEX"] = Field("HNSW", description="Vector index.")
    timeout_seconds: float = operational(
        60.0,
        gt=0,
        description="How long a call may take, with all tries that its client makes; flushing and loading ten times "
        "that. It fails then, and `run.retries` counts as for any error that may pass.",
    )
    batch_bytes: int = operational(2 * 2**20, gt=0, description="Bytes per insert call; servers cap a message.")


class AccessRule(BaseModel):
    """One ``[[access.rules]]``: documents, and who may see them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    match: str
    groups: tuple[str, ...]

    @field_validator("match")
    @classmethod
    def _glob(cls, match: str) -> str:
        compile_glob(match)
        return match

    @field_validator("groups")
    @classmethod
    def _plain(cls, groups: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted({group_name(name) for name in groups}))


class AccessConfig(Section):
    """Who may see what. The first rule that matches a document wins over its sidecar file and its front matter."""

    rules: tuple[AccessRule, ...] = operational(
        (),
        description='`[[access.rules]]` tables: `match`, a glob over "source/path" (`**` crosses folders), and '
        "`groups`, a list; an empty one means nobody. The first match wins. A change takes rights away at the next "
        "run's plan, and gives them when it publishes.",
    )


class SearchConfig(Section):
    """The online path. Nothing here changes what is indexed."""

    candidates: int = operational(150, gt=0, description="Hits taken from each side before fusion.")
    fusion: Literal["min-max", "rrf"] = operational(
        "min-max", description="`min-max`: scaled scores are added; `rrf`: reciprocal ranks."
    )
    document_weight: float = operational(
        0.4, ge=0, le=1, description="How far a passage is lifted towards the best passage of its document."
    )
    rrf_k: int = operational(60, gt=0, description="Constant of reciprocal rank fusion (Cormack et al., 2009).")
    dense_weight: float = operational(1.0, ge=0, description="Weight of the dense side in fusion.")
    bm25_weight: float = operational(1.0, ge=0, description="Weight of the BM25 side in fusion.")
    unknown_share: float = operational(
        0.2, ge=0, le=1, description="A question with a larger share of tokens unknown to the model is BM25 only."
    )
    brute_force_rows: int = operational(
        20_000, ge=0, description="Filtered sets up to this size are scored exactly instead of by the index."
    )


class RunConfig(Section):
    """How a run is carried out."""

    runner: Literal["prefect", "plain"] = operational("prefect", description="Prefect, or plainly in this process.")
    workers: int = operational(4, gt=0, description="Tasks at a time.")
    tasks_per_stage: int = operational(200, gt=0, description="Shards are grouped so that a stage has no more tasks.")
    lease_wait_seconds: float = operational(
        60.0, ge=0, description="How long to wait while somebody else publishes to the collection."
    )
    retries: int = operational(2, ge=0, description="Times that a task is run again after a transient error.")
    retry_delay_seconds: float = operational(2.0, ge=0, description="Pause before the first retry; doubles.")


class Config(Section):
    """All of it."""

    collection: str = operational(
        "default", pattern=r"^[a-z][a-z0-9_]{0,47}$", description="What is published and rolled back together."
    )
    load: LoadConfig = LoadConfig()
    chunk: ChunkConfig = ChunkConfig()
    context: ContextConfig = ContextConfig()
    embed: EmbedConfig = EmbedConfig()
    bm25: Bm25Config = Bm25Config()
    milvus: MilvusConfig = MilvusConfig()
    access: AccessConfig = AccessConfig()
    search: SearchConfig = SearchConfig()
    run: RunConfig = RunConfig()

    def result_settings(self) -> dict[str, Setting]:
        """Return all fields that decide what comes out, by ``section.key``."""
        return {
            f"{name}.{key}": getattr(section, key)
            for name in type(self).model_fields
            if isinstance(section := getattr(self, name), Section)
            for key, info in type(section).model_fields.items()
            if not _is_operational(info)
        }


class Layer(BaseModel):
    """One place where settings come from: its name for messages, and its values."""

    name: str
    values: dict[str, Any]


def file_layer(path: Path) -> Layer:
    """Read a TOML file."""
    try:
        return Layer(name=str(path), values=tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        raise UsageError(f"no configuration file {path}", hint="check --config") from error
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", hint="check --config") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from error


def environment_layer(environ: Mapping[str, str]) -> Layer:
    """Read ``GLOSSATOR__SECTION__KEY`` variables."""
    values: dict[str, Any] = {}
    for name, value in environ.items():
        if name.startswith(ENV_PREFIX):
            _assign(values, name.removeprefix(ENV_PREFIX).lower().split("__"), value, name)
    return Layer(name="environment", values=values)


def command_layer(assignments: Sequence[str]) -> Layer:
    """Read ``section.key=value`` words of the command line."""
    values: dict[str, Any] = {}
    for assignment in assignments:
        key, separator, value = assignment.partition("=")
        if not separator or not key:
            raise UsageError(f"--set {assignment!r} is not KEY=VALUE", hint="for example --set chunk.child_tokens=120")
        _assign(values, key.split("."), value, f"--set {key}")
    return Layer(name="--set", values=values)


def _assign(values: dict[str, Any], path: Sequence[str], value: str, where: str) -> None:
    for key in path[:-1]:
        values = values.setdefault(key, {})
        if not isinstance(values, dict):
            raise UsageError(f"{where}: {key} is set both as a value and as a section")
    if isinstance(values.get(path[-1]), dict):
        raise UsageError(f"{where}: {path[-1]} is set both as a value and as a section")
    try:
        values[path[-1]] = json.loads(value)
    except (ValueError, RecursionError):  # Not JSON, or too long or deep for Python's reader: the model judges it.
        values[path[-1]] = value


def read_config(
    *, file: Path | None = None, environ: Mapping[str, str] | None = None, assignments: Sequence[str] = ()
) -> Config:
    """Merge all layers into one validated configuration.

    Raises:
        UsageError: one line per wrong field, each with the layer, the key, what is allowed and what was given.
    """
    layers = [environment_layer(os.environ if environ is None else environ), command_layer(assignments)]
    if file is not None:
        layers.insert(0, file_layer(file))
    merged: dict[str, Any] = {}
    for layer in layers:
        _merge(merged, layer.values)
    try:
        return Config.model_validate(merged)
    except ValidationError as error:
        raise WrongSettings("\n".join(_describe(layers, problem) for problem in error.errors())) from error


def _merge(into: dict[str, Any], values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = dict(value) if isinstance(value, Mapping) else value


def _describe(layers: Sequence[Layer], problem: Any) -> str:
    key, path = where(problem), [str(part) for part in problem["loc"]]
    origin = next((layer.name for layer in reversed(layers) if _has(layer.values, path)), "configuration")
    origin = origin.replace("\n", "\ufffd")  # It may be a path.
    what = f"unknown key{_near(key)}" if problem["type"] == "extra_forbidden" else why(problem)
    return f"{origin}: {key}: {what}"


def _near(key: str) -> str:
    """Return what may be meant by an unknown key, in words; "" where nothing is like it."""
    keys: list[str] = []
    for name, value in Config().model_dump().items():
        keys += [f"{name}.{field}" for field in value] if isinstance(value, dict) else [name]
    near = difflib.get_close_matches(key, keys, n=2)
    return f" -> did you mean {' or '.join(near)}?" if near else ""


def _has(values: Any, path: Sequence[str]) -> bool:
    for key in path:
        if not isinstance(values, Mapping):
            return True  # The rest of the path lies within this value: an item of a list.
        if key not in values:
            return False
        values = values[key]
    return True
