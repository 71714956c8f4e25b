"""The results table: what was done to the product while it worked, what readers saw, and what the next run did.

``docs/reliability.json`` keeps it, ``docs/generate.py`` makes a page of it. A row is an operation under one kind of
fault; whoever tests another kind records its rows under a name of their own, and leaves the others alone.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

RESULTS = Path(__file__).parents[2] / "docs" / "reliability.json"


@dataclass(frozen=True)
class Row:
    """An operation under one kind of fault.

    Attributes:
        operation: as people say it.
        points: how many faults were tried, by what the operation was about to change.
        reader: what a reader saw right after the fault -> in how many trials.
        again: what the same command did when it was run again -> in how many trials.
        ended: how the command ended -> in how many trials; none where it was killed.
        violations: of the promises, in words; none is what is promised.
    """

    operation: str
    points: Mapping[str, int]
    reader: Mapping[str, int]
    again: Mapping[str, int]
    violations: Sequence[str] = ()
    ended: Mapping[str, int] = field(default_factory=dict)


def count(words: Iterable[str]) -> dict[str, int]:
    """Return how often each word comes, the most frequent first."""
    return dict(sorted(Counter(words).items(), key=lambda item: (-item[1], item[0])))


def record(fault: str, promise: str, rows: Sequence[Row], path: Path = RESULTS) -> None:
    """Replace the rows of some operations under a kind of fault; those of other operations stay.

    Args:
        fault: heading of its table.
        promise: what was checked after each fault, in sentences.
    """
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    old = {row["operation"]: row for row in known.get(fault, {"rows": []})["rows"]}
    known[fault] = {"promise": promise, "rows": list((old | {row.operation: asdict(row) for row in rows}).values())}
    path.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
