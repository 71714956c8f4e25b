"""Commands for the sources of a collection: record one, list them, take one out of the index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from flows.commands.door import CollectionOption, ConfigOption, Door, JsonOption, SetOption, out, print_json
from schemas.errors import UsageError

if TYPE_CHECKING:
    from schemas.report import IndexReport

app = typer.Typer(invoke_without_command=True, rich_markup_mode="rich")


@app.callback()
def usage(context: typer.Context) -> None:
    """Without a command: what there is."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def add(
    folder: Annotated[str, typer.Argument(help="Folder with documents.")],
    source: Annotated[str | None, typer.Option(help="Name of the source; default: the folder's.")] = None,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Record a folder as a source, and index nothing yet: the next `glossator index` does."""
    from query.layout import literal
    from tasks.plan.registry import list_sources, record_source, resolve_source

    lake = Door(collection, config, assignments).lake()
    spec = resolve_source(lake, folder, source)
    known = spec in list_sources(lake)
    if not known:
        record_source(lake, spec)
    if json:
        print_json({**spec.model_dump(), "added": not known})
        return
    verb = "[green]Recorded[/] source" if not known else "Already recorded: source"
    out.print(f"{verb} [bold]{spec.name}[/]: {literal(spec.root)}", soft_wrap=True)
    out.print("  To index it: glossator index")


@app.command(name="list")
def list_all(
    collection: CollectionOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    json: JsonOption = False,
) -> None:
    """List the sources: root, published documents, and documents in quarantine."""
    from flows.source_console import show_sources
    from flows.source_list import read_sources

    lake = Door(collection, config, assignments).lake()
    states = read_sources(lake)
    print_json(states) if json else show_sources(out, lake.collection, states)


@app.command()
def remove(
    name: Annotated[str, typer.Argument(help="The source's name, as `glossator source list` shows it.")],
    allow_deletes: Annotated[int, typer.Option(help="Documents that may go: at least as many as it has.")] = 0,
    migrate: Annotated[bool, typer.Option("--migrate", help="Redo unchanged documents after a config change.")] = False,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Publish an index without a source's documents, then forget the source. Its files are never touched.

    Without `--allow-deletes` it only says how many documents would go. When it was interrupted, run it again.
    """
    from flows.source_console import show_removal
    from flows.source_list import count_documents
    from tasks.plan.listing import forget_hints
    from tasks.plan.quarantine import record_failures
    from tasks.plan.registry import forget_source, list_sources

    door = Door(collection, config, assignments)
    lake = door.lake()
    roots = {spec.name: spec.root for spec in list_sources(lake)}
    documents = count_documents(lake)
    if name not in roots.keys() | documents.keys():
        known = ", ".join(sorted(roots)) or "none"
        raise UsageError(f"collection {lake.collection!r} has no source {name!r}", hint=f"there are: {known}")
    report = _publish_without(door, name, allow_deletes, migrate=migrate, quiet=json) if documents[name] else None
    # The record goes last: while it is there, the same command finishes what was interrupted.
    record_failures(lake, [name], [], {})
    forget_hints(lake, name)
    forget_source(lake, name)
    if json:
        print_json({"source": name, "root": roots.get(name), "documents": documents[name], "report": report})
    else:
        show_removal(out, name, roots.get(name), documents[name], report)


def _publish_without(door: Door, name: str, allow_deletes: int, *, migrate: bool, quiet: bool) -> IndexReport:
    from flows.commands.run import carry_out
    from tasks.plan.planner import PlanOptions, make_plan

    options = PlanOptions(migrate=migrate, allow_deletes=allow_deletes, without=(name,))
    plan = make_plan(door.lake(), door.config, [], options)
    return carry_out(door, plan, options, f"source remove {name}", quiet=quiet)


def register(parent: typer.Typer) -> None:
    """Add the commands."""
    parent.add_typer(app, name="source", help="Record folders as sources, list them, take one out of the index.")
