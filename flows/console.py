"""What runs look like on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flows.status import Status
from schemas.plan import ChangeCounts, Plan
from schemas.report import IndexReport
from schemas.snapshot import Failure, Snapshot
from tasks.publish.doctor import Finding

MOST_FAILURES = 20


def show_plan(console: Console, plan: Plan) -> None:
    """Show what a run would do."""
    console.print(f"[bold]Plan[/] for collection [bold]{plan.workspace.collection}[/]: nothing was changed.")
    for source in plan.sources:
        console.print(f"  source [bold]{source.name}[/]: {source.listed} documents, {source.hashed} read to compare")
        _skipped(console, source.skipped)
        for name, reason in source.unusable:
            console.print(f"  [yellow]left out[/] {escape(name)}: {reason}", soft_wrap=True)
    _counts(console, plan.counts)
    if plan.nothing_to_do:
        console.print("  Nothing to do.")
    else:
        console.print(f"  {plan.bytes / 1e6:,.1f} MB to load, {len(plan.jobs)} of {plan.shards} shards to build")
    if plan.held:
        console.print(f"  [yellow]held:[/] {escape(plan.held)} -> glossator resume", soft_wrap=True)
    if plan.migrates:
        console.print(f"  redone because config or code changed: {', '.join(plan.migrates)}")
    _failures(console, plan.failures)


def show_report(console: Console, report: IndexReport) -> None:
    """Show what a run did."""
    if report.published:
        console.print(
            f"[green]Published[/] snapshot [bold]{report.snapshot[:12]}[/] (flip {report.flip}) of collection "
            f"[bold]{report.collection}[/] in {report.seconds['total']:.1f} s"
        )
    else:
        console.print(f"[green]Nothing to do[/]: snapshot [bold]{report.snapshot[:12]}[/] is up to date")
    _counts(console, report.documents)
    console.print(
        f"  {report.chunks:,} chunks: {report.chunks_embedded:,} embedded, {report.chunks_reused:,} reused"
        + (f"; {report.llm_calls} calls, ${report.usd:.2f}" if report.llm_calls else "")
    )
    _skipped(console, report.skipped)
    _failures(console, report.failed)


def _counts(console: Console, counts: ChangeCounts) -> None:
    words = ", ".join(f"{count:,} {name}" for name, count in counts.model_dump().items() if count)
    console.print(f"  documents: {words or 'none'}")


def _skipped(console: Console, skipped: dict[str, int]) -> None:
    if skipped:
        kinds = ", ".join(f"{count} {'.' if kind[0] != '(' else ''}{kind}" for kind, count in skipped.items())
        console.print(f"  [dim]not indexed, type not supported: {escape(kinds)}[/]")


def _failures(console: Console, failures: Sequence[Failure]) -> None:
    for failure in failures[:MOST_FAILURES]:
        where = escape(f"{failure.source}/{failure.uri}")
        console.print(f"  [red]quarantined[/] {where}: {escape(failure.message)}", soft_wrap=True)
    if len(failures) > MOST_FAILURES:
        console.print(f"  … and {len(failures) - MOST_FAILURES} more: glossator status --json")


def show_status(console: Console, status: Status) -> None:
    """Show the state of a collection."""
    console.print(f"[bold]{status.collection}[/] in {escape(status.lake)}", soft_wrap=True)
    table = Table.grid(padding=(0, 2))
    if status.snapshot is None or status.published is None or status.counts is None:
        console.print("  nothing is published yet: glossator index FOLDER")
    else:
        counts = status.counts
        table.add_row("  snapshot", f"{status.snapshot} (flip {status.flip})")
        table.add_row("  published", f"{status.published:%Y-%m-%d %H:%M} UTC by {status.author}: {status.reason}")
        table.add_row(
            "  holds", f"{counts.documents:,} documents, {counts.chunks:,} chunks in {status.shards} shard(s)"
        )
        table.add_row("  model", str(status.model))
        if status.hold:
            table.add_row("  [yellow]held[/]", "nothing is published until: glossator resume")
    for source in status.sources:
        table.add_row("  source", escape(f"{source.name}: {source.root}"))
    console.print(table)
    _failures(console, [item.failure for item in status.quarantine])


def show_findings(console: Console, snapshot: Snapshot, findings: Iterable[Finding]) -> None:
    """Show what the doctor found."""
    console.print(f"Snapshot [bold]{snapshot.id[:12]}[/] of collection [bold]{snapshot.collection}[/]")
    for finding in findings:
        mark = "[green]✓[/]" if finding.ok else "[red]✗[/]"
        console.print(f"  {mark} {finding.check:<9} {escape(finding.message)}", soft_wrap=True)
        if finding.remedy:
            console.print(f"    [yellow]→ {escape(finding.remedy)}[/]", soft_wrap=True)
