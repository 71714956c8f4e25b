"""Commands for the quarantine: what could not be indexed and why, and another try."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.commands.door import CollectionOption, ConfigOption, Door, JsonOption, SetOption, out, print_json

app = typer.Typer(invoke_without_command=True, rich_markup_mode="rich")

Uris = Annotated[
    list[str] | None, typer.Argument(metavar="[URI]...", help="Documents, as `uri` or `source/uri`; default: all.")
]


@app.callback()
def usage(context: typer.Context) -> None:
    """Without a command: what there is."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command(name="list")
def list_some(
    uris: Uris = None,
    traceback: Annotated[bool, typer.Option("--traceback", help="Show where in the code it failed, too.")] = False,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    json: JsonOption = False,
) -> None:
    """List what could not be indexed: error, since when, tries, next try, and what serves meanwhile."""
    from flows.quarantine_console import show_quarantine
    from flows.quarantine_list import read_entries, select

    entries = select(read_entries(Door(collection, config, assignments).lake()), uris or [])
    print_json(entries) if json else show_quarantine(out, entries, traceback=traceback)


@app.command()
def retry(
    uris: Uris = None,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Have the next `glossator index` try documents again, though their files have not changed.

    Nothing is indexed or published by this command. They stay listed until that run; those that work then leave.
    """
    from flows.quarantine_console import show_retry
    from flows.quarantine_list import read_entries, select
    from tasks.plan.quarantine import release

    lake = Door(collection, config, assignments).lake()
    entries = select(read_entries(lake), uris or [])
    if entries:
        release(lake, [entry.doc_id for entry in entries])
    if json:
        print_json([entry.model_copy(update={"retry": "next index"}) for entry in entries])
    else:
        show_retry(out, entries)


def register(parent: typer.Typer) -> None:
    """Add the commands."""
    parent.add_typer(app, name="quarantine", help="List what could not be indexed, and have it tried again.")
