"""Commands for the history of a collection: list, compare, go back, go on, keep."""

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
from schemas.snapshot import SHORT

WHICH = "The beginning of its name, '#12' or @12 (what flip 12 published), current, or previous."
Which = Annotated[str, typer.Argument(help=WHICH)]


def snapshots(
    collection: CollectionOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    json: JsonOption = False,
) -> None:
    """List the snapshots that are there: current, kept, pinned, and dropped ones that are not deleted yet."""
    from flows.commands.history_console import show_snapshots
    from tasks.publish.history import list_snapshots

    lake = Door(collection, config, assignments).lake()
    entries = list_snapshots(lake)
    print_json(entries) if json else show_snapshots(out, lake.collection, entries, lake.current_flip())


def diff(
    a: Annotated[str, typer.Argument(help=f"The earlier snapshot. {WHICH}")] = "previous",
    b: Annotated[str, typer.Argument(help="The later one.")] = "current",
    collection: CollectionOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Show which documents, and how many chunks of each, differ between two snapshots."""
    from flows.commands.history_console import show_diff
    from tasks.publish.diff import diff as compare
    from tasks.publish.history import resolve

    lake = Door(collection, config, assignments).lake()
    result = compare(lake, resolve(lake, a), resolve(lake, b))
    print_json(result) if json else show_diff(out, result)


def rollback(
    reason: Annotated[str, typer.Option("--reason", "-r", help="Why; everybody who is held up will read it.")],
    snapshot: Annotated[str, typer.Argument(help=WHICH)] = "previous",
    collection: CollectionOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Go back to a kept snapshot at once, and hold all publishing until `resume`."""
    from flows.author import author
    from flows.commands.history_console import show_rollback
    from tasks.publish.history import rollback as go_back

    door = Door(collection, config, assignments)
    lake = door.lake()
    before = lake.current_flip()
    flip = go_back(lake, snapshot, author=author(), reason=reason, milvus=door.config.milvus)
    print_json(flip) if json else show_rollback(out, before, flip)


def resume(
    reason: Annotated[str, typer.Option("--reason", "-r", help="What was done about it.")] = "resumed",
    collection: CollectionOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    json: JsonOption = False,
) -> None:
    """End the hold of a rollback: publishing may go on, from the snapshot that is current."""
    from flows.author import author
    from flows.commands.history_console import show_resume
    from tasks.publish.history import resume as go_on

    flip = go_on(Door(collection, config, assignments).lake(), author=author(), reason=reason)
    print_json(flip) if json else show_resume(out, flip)


def pin(
    snapshot: Which,
    reason: Annotated[str, typer.Option("--reason", "-r", help="Why it shall stay.")] = "",
    collection: CollectionOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Keep a snapshot until it is unpinned, however old it gets."""
    from flows.author import author
    from tasks.publish.history import resolve
    from tasks.publish.pins import create_pin

    lake = Door(collection, config, assignments).lake()
    made = create_pin(lake, resolve(lake, snapshot), author=author(), reason=reason)
    print_json(made) if json else out.print(f"[green]Pinned[/] {made.snapshot[:SHORT]}")


def unpin(
    snapshot: Which,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Take a pin away; the next publish may drop the snapshot."""
    from tasks.publish.history import resolve
    from tasks.publish.pins import remove_pin

    lake = Door(collection, config, assignments).lake()
    name = resolve(lake, snapshot)
    remove_pin(lake, name)
    print_json({"unpinned": name}) if json else out.print(f"[green]Unpinned[/] {name[:SHORT]}")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (snapshots, diff, rollback, resume, pin, unpin):
        app.command()(command)
