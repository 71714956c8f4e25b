"""The command line: the one door for a person.

Each command is a few lines: resolve places and config, call the code that does it, show the result. Imports are
inside the commands, so that ``--help`` and "nothing to do" need neither Prefect nor torch.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from io import TextIOWrapper
from pathlib import Path
from types import FrameType
from typing import Annotated, Literal

import typer

from flows.commands import history, maintenance, purge, quarantined, sources
from flows.commands.door import (
    AsOption,
    CollectionOption,
    ConfigOption,
    Door,
    JsonOption,
    ModeOption,
    SetOption,
    asked,
    err,
    groups_of,
    out,
    print_json,
)
from schemas.errors import ExitCode, GlossatorError, UsageError
from tasks.progress import stop

app = typer.Typer(
    name="glossator",
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Index documents for retrieval, and ask them. Vectors, BM25 and passages are published by one pointer.",
)
INTERRUPTED = 128 + signal.SIGINT
ENDS = {int(signal.SIGTERM): "terminated"}
"""Signals that end a command as Ctrl-C does, and what is said then. Ignored ones (``nohup``) stay ignored."""
if hasattr(signal, "SIGHUP"):  # Not on Windows.
    ENDS[int(signal.SIGHUP)] = "its terminal has closed"
ALLOW_DELETES = "Documents that this run may delete in all; asked for when many are gone."


def show_version(asked: bool) -> None:
    """Print what is installed, and end."""
    if not asked:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        typer.echo(f"glossator {version('glossator')}")
    except PackageNotFoundError:
        from tomllib import loads

        project = loads(Path(__file__).with_name("pyproject.toml").read_text(encoding="utf-8"))["project"]
        typer.echo(f"glossator {project['version']} (not installed: from its source tree)")
    raise typer.Exit


Version = Annotated[bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version.")]


@app.callback()
def glossator(context: typer.Context, version: Version = False) -> None:
    """Without a command: what there is."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def index(
    src: Annotated[str | None, typer.Argument(help="Folder to index; default: all recorded sources.")] = None,
    source: Annotated[str | None, typer.Option(help="Name of the source; default: the folder's.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, and publish nothing.")] = False,
    migrate: Annotated[bool, typer.Option("--migrate", help="Redo unchanged documents after a config change.")] = False,
    allow_deletes: Annotated[int, typer.Option(metavar="N", help=ALLOW_DELETES)] = 0,
    runner: Annotated[Literal["prefect", "plain"] | None, typer.Option(help="Who runs the tasks.")] = None,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Index a folder: what is new or changed is embedded, and all of it published at once."""
    begun = time.perf_counter()
    from flows.commands.run import carry_out
    from flows.reconcile import reconcile, recorded_sources
    from tasks.plan.planner import PlanOptions, make_plan
    from tasks.plan.registry import resolve_source

    sets = [*(assignments or []), *([f"run.runner={runner}"] if runner else [])]
    door = Door(collection, config, sets)
    lake = door.lake()
    specs = [resolve_source(lake, src, source)] if src is not None else recorded_sources(lake)
    options = PlanOptions(migrate=migrate, allow_deletes=allow_deletes, dry_run=dry_run)
    if dry_run:
        from flows.console import show_plan
        from flows.report import told_before
        from tasks.plan.quarantine import read_quarantine

        plan = make_plan(lake, door.config, specs, options)
        known = told_before(read_quarantine(lake), plan.failures)
        print_json(plan.summary()) if json else show_plan(out, plan, known)
        raise typer.Exit(ExitCode.REFUSED if plan.refused else ExitCode.DONE)
    reason = f"index {', '.join(spec.name for spec in specs)}"
    report = reconcile(
        lake, door.config, specs, options, lambda plan: carry_out(door, plan, options, reason, quiet=json)
    )
    report = report.model_copy(update={"seconds": {**report.seconds, "total": round(time.perf_counter() - begun, 3)}})
    from flows.console import show_report

    print_json(report) if json else show_report(out, report)
    if report.failed:
        raise typer.Exit(ExitCode.QUARANTINED)


@app.command()
def search(
    question: Annotated[str, typer.Argument(help="What to look for, in words.")],
    k: Annotated[int, typer.Option("-k", min=1, help="Passages to return.")] = 5,
    mode: ModeOption = "hybrid",
    member: AsOption = None,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Find the passages that fit a question best."""
    from query.opening import open_retriever

    door = Door(collection, config, assignments)
    retriever = open_retriever(door.lake(), door.config)
    result = retriever.search(asked(question, "search"), k, mode, groups=groups_of(member))
    if json:
        print_json(result)
    else:
        from query.console import show_hits

        show_hits(out, result)


@app.command()
def ask(
    question: Annotated[str, typer.Argument(help="A question, English or Chinese.")],
    k: Annotated[int, typer.Option("-k", min=1, help="Passages to answer from.")] = 8,
    member: AsOption = None,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Answer a question with quotes from the documents, each with its source."""
    from query.extractive import answer
    from query.opening import open_retriever

    door = Door(collection, config, assignments)
    retriever = open_retriever(door.lake(), door.config)
    result = retriever.search(asked(question, "ask"), k, groups=groups_of(member))
    found = answer(result, retriever.lexical)
    if json:
        print_json({"answer": found, "notes": result.notes})
    else:
        from query.console import show_answer

        show_answer(out, found, result)


@app.command()
def show(
    chunk_id: Annotated[str, typer.Argument(help="A chunk's id, as search prints it; its beginning is enough.")],
    member: AsOption = None,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Show a chunk in its document: text, span, page, heading path, context."""
    from query.opening import open_reader

    door = Door(collection, config, assignments)
    passage = open_reader(door.lake()).find(chunk_id, groups_of(member))
    if json:
        print_json(passage)
    else:
        from query.console import show_passage

        show_passage(out, passage)


@app.command()
def status(
    collection: CollectionOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Show what is published, from which sources, and what is quarantined."""
    from flows.console import show_status
    from flows.status import read_status

    door = Door(collection, config, assignments)
    report = read_status(door.lake())
    print_json(report) if json else show_status(out, report)


@app.command()
def doctor(
    repair: Annotated[bool, typer.Option("--repair", help="Build again what is damaged, and look once more.")] = False,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Check every invariant of the published snapshot, and that all others that are kept are whole.

    Exit code 1 when one does not hold. A repair makes lost passages, catalogs, BM25 indexes and vectors of the parts.

    It puts the newest flip and today's access back from their copies, embeds nothing, and reads no source.

    It publishes no other snapshot, and a rollback's hold stays.
    """
    from flows.console import show_findings
    from tasks.plan.planner import workspace
    from tasks.publish.doctor import examine, examine_lake

    door = Door(collection, config, assignments)
    if repair:
        from flows.commands.repair import mend

        raise typer.Exit(mend(door, json=json))
    lake = door.lake()
    snapshot = lake.current_snapshot()
    if snapshot is None:
        raise UsageError(f"collection {lake.collection!r} is empty", hint="run `glossator index FOLDER` first")
    examined = examine(workspace(lake, door.config), lake, snapshot)
    findings = [*examined, *examine_lake(door.config, lake, snapshot)]
    print_json(findings) if json else show_findings(out, snapshot, findings)
    if not all(finding.ok for finding in findings):
        raise typer.Exit(ExitCode.FAILED)


@app.command()
def evaluate(
    golden: Annotated[Path, typer.Argument(help="Golden questions: JSON lines with question, source and quote.")],
    k: Annotated[int, typer.Option("-k", min=1, help="Passages per question.")] = 5,
    collection: CollectionOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Score the published index with golden questions: recall of hybrid, dense and BM25 search.

    Questions whose document is not in the index are not judged; it is an error when that is so of all.
    """
    from query.console import describe_absent, show_scores
    from query.golden import evaluate as score
    from query.golden import read_golden
    from query.opening import open_retriever

    door = Door(collection, config, assignments)
    scores = score(open_retriever(door.lake(), door.config), read_golden(golden), k=k)
    if not scores.judged:
        what = describe_absent(scores) if scores.expired else "it holds no question"
        hint = "index the folder that these documents are in, or name its --collection; `source` is a URI in it"
        raise UsageError(f"nothing of {golden} can be judged: {what}", hint=hint)
    print_json(scores) if json else show_scores(out, scores)


sources.register(app)
quarantined.register(app)
history.register(app)
maintenance.register(app)
purge.register(app)


def main() -> None:
    """Run the command line; translate errors into one line and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # A terminal that cannot show a character shows its number.
            stream.reconfigure(errors="backslashreplace")
    told = int(signal.SIGINT)

    def end(signum: int, frame: FrameType | None) -> None:
        nonlocal told
        told = signum
        stop()
        raise KeyboardInterrupt  # Leases are given back, and temporary files deleted, as after Ctrl-C.

    before = {one: signal.signal(one, end) for one in ENDS if signal.getsignal(one) != signal.SIG_IGN}
    try:
        code = app(prog_name="glossator", standalone_mode=False)
        if code == INTERRUPTED:  # Typer makes it of KeyboardInterrupt.
            code = 128 + told
            _complain(
                f"{ENDS.get(told, 'interrupted')}; what is done so far is kept -> run the same command again to go on"
            )
    except typer.TyperException as error:  # Of the command line itself: an unknown option, a value of the wrong type.
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "glossator"
        _complain(f"{' '.join(error.format_message().split())} -> `{command} --help` shows how")
        code = ExitCode.USAGE
    except typer.Abort:
        _complain("nothing was done")
        code = ExitCode.FAILED
    except GlossatorError as error:
        for line in error.lines:
            _complain(line)
        code = error.exit_code
    except SystemExit:  # What Rich and Typer make of a closed pipe: `glossator search … | head`
        code = ExitCode.DONE
    except Exception as error:
        if os.environ.get("GLOSSATOR_DEBUG"):
            raise
        if isinstance(error, OSError):
            what = f"{error.filename or 'input and output'}: {error.strerror or error}"
            remedy = "run the same command again; `glossator doctor` checks the index"
        else:
            what = f"unexpected {type(error).__name__}: {error}"
            remedy = "`glossator doctor` checks the index; GLOSSATOR_DEBUG=1 shows where it failed"
        _complain(f"{' '.join(what.split())} -> {remedy}")
        code = ExitCode.FAILED
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    raise SystemExit(code or ExitCode.DONE)


def _complain(line: str) -> None:
    from query.layout import printable

    err.print(f"glossator: {printable(line)}", markup=False, soft_wrap=True)


if __name__ == "__main__":
    main()
