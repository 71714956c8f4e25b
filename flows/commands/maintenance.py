"""Commands that keep a lake tidy."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.commands.door import (
    CollectionOption,
    ConfigOption,
    Door,
    JsonOption,
    SetOption,
    out,
    print_json,
)

TRUSTED_DAYS = 7
"""How long size and times of a file stand for its bytes: a disk that rots, or a mount that makes them up, shows."""


def maintain(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would go, and delete nothing.")] = False,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Delete what no kept snapshot needs, after comparing all rows of Milvus with those that are needed.

    What was read last more than seven days ago is read again by the next index, whatever its size and times say.
    """
    import datetime as dt

    from flows.author import author
    from flows.commands.history_console import show_sweep
    from tasks.lake.lease import publishing
    from tasks.plan.listing import forget_old_hints
    from tasks.publish.pointer import fence
    from tasks.publish.sweep import Tally, sweep

    door = Door(collection, config, assignments)
    lake = door.lake()
    if dry_run:
        report = sweep(lake, door.config.milvus, lambda: True, full=True, dry_run=True)
    else:
        with publishing(lake, f"{author()} (maintain)", door.config.run.lease_wait_seconds) as held:
            fence(lake, author(), "maintain")
            report = sweep(lake, door.config.milvus, held.still_ours, full=True)
    week_ago = dt.datetime.now(dt.UTC) - dt.timedelta(days=TRUSTED_DAYS)
    hints = forget_old_hints(lake, round(week_ago.timestamp() * 1e9), dry_run=dry_run)
    report = report.model_copy(update={"hints": Tally(count=hints)})
    print_json(report) if json else show_sweep(out, report)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(maintain)
