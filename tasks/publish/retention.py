"""Retention: which snapshots stay, decided anew at each flip and recorded in it.

Kept are the current snapshot, the last two that were current, of the last seven days (UTC, today included) the
snapshot *created* on each that was current last, and whatever is pinned. Three rules make it safe to work with:

- Only a publish drops a snapshot. A rollback and the resume after it drop none: whoever rolled back too far can go
  forward again.
- A rollback to last week's snapshot does not make it today's: its day is that of its creation.
- What was dropped once never comes back by itself, since a sweep may have begun to delete it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping, Sequence

from schemas.snapshot import Flip

NEWEST = 2
DAYS = 7


def retained(
    flips: Sequence[Flip], pins: Collection[str], now: dt.datetime, created: Mapping[str, dt.datetime]
) -> tuple[str, ...]:
    """Return the names of the snapshots to retain once the newest of ``flips`` is there, the current one first.

    Args:
        flips: in any order; of the older ones, at least those of the last eight days.
        pins: names of pinned snapshots.
        created: creation date of each snapshot that is still there; others cannot be retained.
    """
    newest_first = sorted(flips, key=lambda flip: flip.number, reverse=True)
    if not newest_first:
        return ()
    current = newest_first[0].snapshot
    before = _before(newest_first, created)
    # What a purge made anew no flip ever named: it stands by its creation, which is that of the one it replaced.
    made_anew = sorted(before, key=lambda name: (created[name], name), reverse=True)
    by_last_use = list(dict.fromkeys((*(flip.snapshot for flip in newest_first), *made_anew)))
    candidates = [name for name in by_last_use if name == current or (name in before and name in created)]
    kept = {current, *candidates[:NEWEST], *(name for name in pins if name in created)}
    if not publishes(newest_first):
        kept |= before
    days = set()
    for name in candidates:
        day = created[name].astimezone(dt.UTC).date() if name in created else None
        if day is not None and (now.astimezone(dt.UTC).date() - day).days < DAYS and day not in days:
            days.add(day)
            kept.add(name)
    return (*(name for name in by_last_use if name in kept), *sorted(kept - set(by_last_use)))


def publishes(newest_first: Sequence[Flip]) -> bool:
    """Tell whether the first flip published something, rather than going back or resuming."""
    flip, *older = newest_first
    return not flip.hold and not (older and older[0].hold and older[0].snapshot == flip.snapshot)


def _before(newest_first: Sequence[Flip], created: Mapping[str, dt.datetime]) -> set[str]:
    """Return what was retained until now; all that is there where the flip before does not say."""
    if len(newest_first) < 2:
        return set()
    previous = newest_first[1]
    return {name for name in previous.retained if name in created} if previous.retained else set(created)
