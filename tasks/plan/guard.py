"""The guard against mass deletion: a folder that is half mounted looks like one whose documents were deleted.

More than ten documents and more than a tenth, of one source or of all of them, go only when somebody has named their
number. That number counts all deletions of the run. Taking a source out of the index always needs it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import polars as pl

from schemas.errors import PlanRefused

GUARD_DOCUMENTS = 10
GUARD_SHARE = 0.1


def refuse_deletions(
    deleted: pl.DataFrame, published: pl.DataFrame, allowed: int, without: Sequence[str] = ()
) -> PlanRefused | None:
    """Return why deletions that nobody asked for are refused, None where they may pass.

    Args:
        deleted: column source, a row for each document that goes.
        published: column source, a row for each document of the snapshot.
        allowed: deletions that somebody has named.
        without: sources that are to go as a whole.
    """
    going, total = Counter(deleted["source"].to_list()), deleted.height
    if total <= allowed:
        return None
    there = Counter(published["source"].to_list())
    again = f"if that is right, run again with --allow-deletes {total}"
    removed = sorted(going.keys() & set(without))
    if removed:
        what = ", ".join(f"the {going[name]} document(s) of source {name!r}" for name in removed)
        return PlanRefused(f"{what} would go from the index", hint=again)
    many = sorted(name for name, count in going.items() if too_many(count, there[name]))
    if many:
        what = "; ".join(f"{going[name]} of {there[name]} documents of source {name!r} are gone" for name in many)
    elif too_many(total, published.height):
        what = f"{total} of {published.height} documents are gone from their sources"
    else:
        return None
    return PlanRefused(what, hint=f"{again}; --dry-run names them")


def too_many(gone: int, of: int) -> bool:
    """Tell whether so many documents at once are rather the fault of their folder."""
    return gone > GUARD_DOCUMENTS and gone > GUARD_SHARE * of
