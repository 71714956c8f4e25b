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
    from flows.commands.history_console import show_sweep
    from tasks.publish.sweep import sweep

    door = Door(collection, config, assignments)
    report = sweep(door.lake(), door.config.milvus, _still_ours, full=True, dry_run=dry_run)
    print_json(report) if json else show_sweep(out, report)


def _still_ours() -> bool:
    # Embedded, Milvus Lite lets one process in, which is as good as a lease while rows are deleted.
    return True


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(maintain)
