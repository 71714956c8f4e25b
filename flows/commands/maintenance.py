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


def maintain(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would go, and delete nothing.")] = False,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Delete what no retained snapshot needs, after comparing all rows of Milvus with those that are needed."""
    from flows.author import author
    from flows.commands.history_console import show_sweep
    from tasks.lake.lease import publishing
    from tasks.publish.pointer import fence
    from tasks.publish.sweep import sweep

    door = Door(collection, config, assignments)
    lake = door.lake()
    if dry_run:
        report = sweep(lake, door.config.milvus, lambda: True, full=True, dry_run=True)
    else:
        with publishing(lake, f"{author()} (maintain)", door.config.run.lease_wait_seconds) as held:
            fence(lake, author(), "maintain")
            report = sweep(lake, door.config.milvus, held.still_ours, full=True)
    print_json(report) if json else show_sweep(out, report)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(maintain)
