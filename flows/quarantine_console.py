"""What the quarantine looks like on a terminal, at 80 columns too."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.console import Console
from rich.text import Text

from flows.quarantine_list import QuarantineEntry
from query.layout import counted, hanging, printable
from schemas.snapshot import Failure

MOST_FAILURES = 20


def show_failures(console: Console, failures: Sequence[Failure], before: Collection[str] = ()) -> None:
    """Show what failed, and of that which was told before no more than the number.

    Args:
        before: doc_ids of failures that an earlier run told of.
    """
    new = [failure for failure in failures if failure.doc_id not in before]
    for failure in new[:MOST_FAILURES]:
        line = Text("quarantined ", style="red").append(
            f"{failure.source}/{failure.uri}: {failure.message}", style="default"
        )
        hanging(console, line, 4, "  *")
    if len(new) > MOST_FAILURES:
        console.print(f"  … and {len(new) - MOST_FAILURES:,} more: glossator quarantine list")
    if len(new) < len(failures):
        since = f"{counted(len(failures) - len(new), 'document')} in quarantine since earlier runs"
        hanging(console, f"{since}: glossator quarantine list", 4, "  *")


def show_quarantine(console: Console, entries: Sequence[QuarantineEntry], *, traceback: bool = False) -> None:
    """Show a paragraph per document: what happened, and what becomes of it."""
    if not entries:
        console.print("Nothing is in quarantine.")
        return
    console.print(f"[red]{counted(len(entries), 'document')}[/] in quarantine")
    for entry in entries:
        console.print(Text(f"\n  {printable(f'{entry.source}/{entry.uri}')}", style="bold"), soft_wrap=True)
        hanging(console, f"{entry.kind} in stage {entry.stage}: {entry.message}", 4)
        since = f"since {entry.since:%Y-%m-%d %H:%M} UTC, " if entry.since else ""
        again = "by the next index" if entry.retry == "next index" else entry.retry
        tries = "1 try" if entry.attempts == 1 else f"{entry.attempts:,} tries"
        hanging(console, f"{since}{tries}; tried again {again}", 4)
        hanging(console, "its last good version serves on" if entry.stale else "no version of it is published", 4)
        if traceback:
            *calls, error = (entry.traceback or "(no traceback was recorded)").splitlines()
            for line in calls:
                console.print(Text(f"    {printable(line)}", style="dim"), soft_wrap=True)
            hanging(console, Text(error, style="dim"), 4)
    console.print()
    if any(entry.retry != "next index" for entry in entries):
        hanging(console, "To have the next index try them all the same: glossator quarantine retry", 2)


def show_retry(console: Console, entries: Sequence[QuarantineEntry]) -> None:
    """Show what will be tried again, and by what."""
    if not entries:
        console.print("Nothing is in quarantine.")
        return
    console.print(f"[green]Released[/] {counted(len(entries), 'document')} for another try")
    console.print("  To try them now: glossator index")
