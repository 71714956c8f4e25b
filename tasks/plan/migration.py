"""The migration: what a change of config, code or model has done anew of documents whose bytes stay, and its cause.

Which stages changed is told by their digests. Which *settings* did, by the values that the snapshot records beside
them: a digest says that something changed, a person wants to know what.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from schemas.config import Config, Setting
from schemas.errors import PlanRefused
from schemas.plan import Redone
from schemas.snapshot import STAGES, Snapshot, Stage

_REDOES: dict[Stage, tuple[Stage, ...]] = {
    "load": STAGES,
    "chunk": STAGES[1:],
    "contextualize": STAGES[2:],
    "embed": ("embed", "passages"),
    "tokens": ("tokens",),
    "passages": ("passages",),
}
"""A stage, and those that read what it makes."""

_DECIDED_BY: dict[Stage, tuple[str, ...]] = {
    "load": ("load.",),
    "chunk": ("chunk.", "embed.model"),
    "contextualize": ("context.", "embed.model", "embed.passage_prompt"),
    "embed": ("embed.",),
    "tokens": ("bm25.stem",),
    "passages": (),
}
"""How the settings begin that enter the digest of a stage (stages.stage_digests)."""


@dataclass(frozen=True, slots=True)
class Migration:
    """What a change of config, code or model does.

    Attributes:
        stages: those that changed.
        redone: what is done anew for that; None where nothing is.
        refusal: why nobody may do it yet; None where it was allowed, or no document stays as it is.
    """

    stages: tuple[Stage, ...] = ()
    redone: Redone | None = None
    refusal: PlanRefused | None = None


def find_migration(
    snapshot: Snapshot | None,
    config: Config,
    stages: Mapping[Stage, str],
    target: pl.DataFrame,
    *,
    allowed: bool,
) -> Migration:
    """Compare what made the published snapshot with what would make the next.

    Args:
        stages: digest per stage now.
        target: column action of the documents as they shall be.
        allowed: somebody said ``--migrate``.
    """
    if snapshot is None:
        return Migration()
    changed = tuple(stage for stage in STAGES if snapshot.config_digests.get(stage) != stages[stage])
    published = target.filter(~pl.col("action").is_in(["added", "copied"])).height
    if not changed or not published:
        return Migration(changed)
    redone = {stage for first in changed for stage in _REDOES[first]}
    settings = _changed_settings(snapshot.settings, config.result_settings(), changed)
    found = Redone(
        documents=published,
        stages=tuple(stage for stage in STAGES if stage in redone),
        settings=tuple(settings.values()),
    )
    kept = target.filter(pl.col("action").is_in(["unchanged", "carried", "stale"])).height
    if allowed or not kept:
        return Migration(changed, found)
    refusal = PlanRefused(
        f"{_cause(snapshot, settings, changed)}: {kept} unchanged documents would be redone",
        hint="run again with --migrate, or set the configuration back",
    )
    return Migration(changed, found, refusal)


def _changed_settings(
    before: Mapping[str, Setting], now: Mapping[str, Setting], stages: Sequence[Stage]
) -> dict[str, str]:
    """Return the settings that differ and enter one of the stages, each in words, by key."""
    wanted = tuple(prefix for stage in stages for prefix in _DECIDED_BY[stage])
    return {
        key: f"{key} {_shown(before[key])} → {_shown(value)}"
        for key, value in now.items()
        if key.startswith(wanted) and key in before and before[key] != value
    }


def _shown(value: Setting) -> str:
    """Return a value as ``--set`` takes it."""
    plain = isinstance(value, str) and value.split() == [value]
    return str(value) if plain else json.dumps(value, ensure_ascii=False)


def _cause(snapshot: Snapshot, settings: Mapping[str, str], stages: Sequence[Stage]) -> str:
    if not snapshot.settings:  # Of an earlier version, which recorded none.
        return f"config, code or model changed for {', '.join(stages)}"
    others = [stage for stage in stages if not any(key.startswith(_DECIDED_BY[stage]) for key in settings)]
    causes = [f"settings changed ({', '.join(settings.values())})"] if settings else []
    causes += [f"code or model changed for {', '.join(others)}"] if others else []
    return ", ".join(causes)
