"""Quarantine: documents that could not be indexed, and why. They are tried again when their bytes change, or the code
or config of a stage up to the one that failed; unreadable ones at every run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pydantic import TypeAdapter

from schemas.identity import digest
from schemas.snapshot import STAGES, Failure, Record, Stage
from tasks.lake.lake import Corrupt, Lake, first_line

KEY = "state/failures.json"


class Quarantined(Record):
    """A failure, the digest of the stages under which it happened, and how often it was tried."""

    failure: Failure
    stage_digest: str
    attempts: int = 1


_ITEMS = TypeAdapter(list[Quarantined])


def read_quarantine(lake: Lake) -> dict[str, Quarantined]:
    """Return what is quarantined, by doc_id."""
    if not lake.storage.exists(KEY):
        return {}
    try:
        items = _ITEMS.validate_json(lake.storage.read(KEY))
    except ValueError as error:
        raise Corrupt(
            f"{lake.storage.local(KEY)} is damaged ({first_line(error)})",
            hint="delete that file and run `glossator index` again: what fails is found again",
        ) from error
    return {item.failure.doc_id: item for item in items}


def write_quarantine(lake: Lake, items: Iterable[Quarantined]) -> None:
    """Replace the quarantine."""
    rows = [item.model_dump() for item in sorted(items, key=lambda item: (item.failure.source, item.failure.uri))]
    lake.write_json(KEY, rows)


def _conditions(failure: Failure, stages: Mapping[Stage, str]) -> str:
    return digest("conditions", *(stages[stage] for stage in STAGES[: STAGES.index(failure.stage) + 1]))[:32]


def still_failing(item: Quarantined, content_digest: str, stages: Mapping[Stage, str]) -> bool:
    """Tell whether trying this version again would give the same failure.

    Args:
        stages: digest of code version and config per stage (plan.stages.stage_digests).
    """
    failure = item.failure
    return (
        not failure.transient
        and failure.content_digest == content_digest
        and content_digest != ""
        and item.stage_digest == _conditions(failure, stages)
    )


def record_failures(lake: Lake, listed: Iterable[str], failing: Iterable[Failure], stages: Mapping[Stage, str]) -> None:
    """Replace the quarantine of the sources that were listed; that of the others stays.

    Args:
        listed: names of the sources that this run listed.
        failing: all failures of their documents, known and new.
        stages: digest per stage, under which they happened.
    """
    before = read_quarantine(lake)
    names = set(listed)
    kept = {doc_id: item for doc_id, item in before.items() if item.failure.source not in names}
    for failure in failing:
        known = before.get(failure.doc_id)
        item = Quarantined(
            failure=failure,
            stage_digest=_conditions(failure, stages),
            attempts=known.attempts + 1 if known is not None else 1,
        )
        if known is not None and (known.failure, known.stage_digest) == (failure, item.stage_digest):
            item = known
        kept[failure.doc_id] = item
    if kept != before:
        write_quarantine(lake, kept.values())
