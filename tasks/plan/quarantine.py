"""Quarantine: documents that could not be indexed, and why. They are tried again when their bytes change, or the code
or config of a stage up to the one that failed; unreadable ones at every run, and any when somebody asks for it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Mapping

from pydantic import TypeAdapter

from schemas.identity import digest
from schemas.snapshot import STAGES, Failure, Record, Stage
from tasks.lake.lake import Corrupt, Lake, first_line

KEY = "state/failures.json"


class Quarantined(Record):
    """A failure, and what decides when it is tried again.

    Attributes:
        stage_digest: of the stages under which it happened; "" when somebody asked to try again.
        attempts: how often some version of the document was tried in vain, since it last worked.
        since: when it began to fail, and ``tried`` when it failed last; None for records of earlier versions.
    """

    failure: Failure
    stage_digest: str
    attempts: int = 1
    since: dt.datetime | None = None
    tried: dt.datetime | None = None

    @property
    def waits(self) -> bool:
        """True when the next run does not try again, unless the bytes, or the code or config of a stage, changed."""
        return bool(self.stage_digest and self.failure.content_digest) and not self.failure.transient


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
    rows = [
        item.model_dump(mode="json") for item in sorted(items, key=lambda item: (item.failure.source, item.failure.uri))
    ]
    lake.write_json(KEY, rows)


def _conditions(failure: Failure, stages: Mapping[Stage, str]) -> str:
    return digest("conditions", *(stages[stage] for stage in STAGES[: STAGES.index(failure.stage) + 1]))[:32]


def still_failing(item: Quarantined, content_digest: str, stages: Mapping[Stage, str]) -> bool:
    """Tell whether trying this version again would give the same failure.

    Args:
        stages: digest of code version and config per stage (plan.stages.stage_digests).
    """
    failure = item.failure
    return item.waits and failure.content_digest == content_digest and item.stage_digest == _conditions(failure, stages)


def release(lake: Lake, doc_ids: Collection[str]) -> None:
    """Have the next run try documents again. They stay in quarantine until it has."""
    items = read_quarantine(lake)
    freed = {doc_id: items[doc_id].model_copy(update={"stage_digest": ""}) for doc_id in doc_ids}
    write_quarantine(lake, (items | freed).values())


def record_failures(
    lake: Lake,
    listed: Iterable[str],
    failing: Iterable[Failure],
    stages: Mapping[Stage, str],
    now: dt.datetime | None = None,
) -> None:
    """Replace the quarantine of the sources that were listed; that of the others stays.

    Args:
        listed: names of the sources that this run listed.
        failing: all failures of their documents, known and new.
        stages: digest per stage, under which they happened.
    """
    before = read_quarantine(lake)
    names = set(listed)
    kept = {doc_id: item for doc_id, item in before.items() if item.failure.source not in names}
    now = now or dt.datetime.now(dt.UTC)
    for failure in failing:
        known = before.get(failure.doc_id)
        item = Quarantined(
            failure=failure,
            stage_digest=_conditions(failure, stages),
            attempts=known.attempts + 1 if known is not None else 1,
            since=known.since if known is not None else now,
            tried=now,
        )
        # What is as it was and waits was not tried. What could not be read was: each plan reads it again.
        if known is not None and item.waits and (known.failure, known.stage_digest) == (failure, item.stage_digest):
            item = known
        kept[failure.doc_id] = item
    if kept != before:
        write_quarantine(lake, kept.values())
