"""Documents by what happens to them, on a terminal: the first few of each kind by name."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from query.layout import hanging
from schemas.plan import CHANGES, NamedChange

MOST_NAMES = 5
_MARKS = {"added": "+", "changed": "~", "renamed": ">", "deleted": "-"}


def show_changes(console: Console, changes: Sequence[NamedChange]) -> None:
    """Show the first names of each kind, then how many more there are."""
    for kind in CHANGES:
        names = [change for change in changes if change.change == kind]
        for change in names[:MOST_NAMES]:
            old = f"{change.was} → " if change.was else ""
            hanging(console, Text(f"{change.source}/{old}{change.uri}"), 6, f"    {_MARKS[kind]}")
        if len(names) > MOST_NAMES:
            console.print(f"      and {len(names) - MOST_NAMES:,} more {kind}", style="dim")
    if any(sum(change.change == kind for change in changes) > MOST_NAMES for kind in CHANGES):
        console.print("      all of them: glossator index --dry-run --json", style="dim")
