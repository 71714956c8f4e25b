"""Purge: erase a document for good, wherever it is."""

from __future__ import annotations

import datetime as dt
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from flows.commands.door import CollectionOption, ConfigOption, Door, JsonOption, SetOption, out, print_json
from schemas.errors import UsageError
from schemas.snapshot import SHORT

if TYPE_CHECKING:
    from schemas.config import Config
    from tasks.lake.access import Tombstone
    from tasks.lake.lake import Lake
    from tasks.publish.purge import PurgeReport

REASON = "Why; kept with the tombstone. Required for a new purge."


def purge(
    document: Annotated[str, typer.Argument(metavar="URI", help="The document, as `uri` or `source/uri`.")],
    source: Annotated[str | None, typer.Option(help="Its source, where `uri` alone is not clear.")] = None,
    reason: Annotated[str, typer.Option("--reason", "-r", help=REASON)] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; needed without a terminal.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Let the document in again; what was erased stays so.")] = False,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Erase a document from every snapshot, store and file, and keep it out from now on."""
    from query.layout import literal
    from tasks.lake.access import read_tombstones, unbury
    from tasks.publish.purge import find_document

    door = Door(collection, config, assignments)
    lake = door.lake()
    name, uri, doc_id = find_document(lake, document, source)
    stones = read_tombstones(lake)
    if undo:
        if doc_id not in stones:
            raise UsageError(f"{name}/{uri} is not purged", hint="`glossator status` tells how many documents are")
        unbury(lake, doc_id)
        print_json({"source": name, "uri": uri, "doc_id": doc_id, "purged": False}) if json else out.print(
            f"[green]Let in again[/] {literal(f'{name}/{uri}')}: the next `glossator index` takes it from its source"
        )
        return
    if not reason and doc_id not in stones:
        raise UsageError("a purge needs a reason", hint='say why: --reason "..."')
    if not yes:
        _ask(f"{name}/{uri}")
    report = _erase(door.config, lake, _stone(lake, name, uri, doc_id, reason))
    print_json(report) if json else _show(report)


def _ask(what: str) -> None:
    from query.layout import printable

    if not sys.stdin.isatty():
        raise UsageError(f"{what} would be erased for good", hint="add --yes")
    typer.confirm(f"Erase {printable(what)} for good, from every snapshot?", abort=True)


def _stone(lake: Lake, source: str, uri: str, doc_id: str, reason: str) -> Tombstone:
    from flows.author import author
    from tasks.lake.access import Tombstone, bury

    now = dt.datetime.now(dt.UTC)
    return bury(lake, Tombstone(doc_id=doc_id, source=source, uri=uri, when=now, by=author(), reason=reason))


def _erase(config: Config, lake: Lake, stone: Tombstone) -> PurgeReport:
    from tasks.lake.lease import publishing
    from tasks.publish.purge import purge as erase

    with publishing(lake, f"{stone.by} (purge)", config.run.lease_wait_seconds) as held:
        return erase(lake, config.milvus, stone, held.still_ours)


def _show(report: PurgeReport) -> None:
    from rich.filesize import decimal

    from query.layout import counted, hanging, literal

    out.print(f"[green]Purged[/] {literal(f'{report.source}/{report.uri}')}")
    if report.flip is not None:
        hanging(out, f"{counted(len(report.rebuilt), 'snapshot')} made anew without it (flip {report.flip})", 2)
    for name in report.dropped:
        hanging(out, f"snapshot {name[:SHORT]} could not be made anew and is gone", 2)
    files = f"{counted(report.files, 'file')} ({decimal(report.bytes)})"
    hanging(out, f"erased: {files}, {counted(report.rows, 'row')} of Milvus", 2)
    if report.lines:
        searched = counted(report.searched, "file")
        hanging(out, f"searched {searched} for {counted(report.lines, 'line')} of it: none is there", 2)
    elif report.searched:
        hanging(out, "every line of it stands in other documents too, so that none could be looked for", 2)
    hanging(out, "Its source may still have it; no run takes it in until `glossator purge --undo`.", 2)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(purge)
