"""What runs look like on a terminal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from rich.console import Console
from rich.filesize import decimal
from rich.text import Text

from flows.change_list import show_changes
from flows.quarantine_console import MOST_FAILURES, show_failures
from flows.status import Status
from query.layout import counted, hanging, literal
from schemas.plan import ChangeCounts, Plan, Redone
from schemas.report import IndexReport
from schemas.snapshot import Snapshot, Stage
from tasks.publish.doctor import Finding

_MADE: dict[Stage, str] = {
    "load": "texts",
    "chunk": "chunks",
    "contextualize": "contexts",
    "embed": "embeddings",
    "tokens": "BM25 terms",
    "passages": "passages",
}


def show_plan(console: Console, plan: Plan, failed_before: Collection[str] = ()) -> None:
    """Show what a run would do; failures that an earlier run told of are counted, no more."""
    nothing = "nothing to do" if plan.nothing_to_do else "nothing was changed"
    console.print(f"[bold]Plan[/] for collection [bold]{plan.workspace.collection}[/]: {nothing}")
    for source in plan.sources:
        listed = counted(source.listed, "document")
        console.print(f"  source [bold]{source.name}[/]: {listed}, {source.hashed} read to compare")
        _skipped(console, source.skipped, [f"{source.name}/{uri}" for uri in source.skipped_first])
        _left_out(console, [(f"{source.name}/{name}", reason) for name, reason in source.unusable])
        _denied(console, [(f"{source.name}/{uri}", reason) for uri, reason in source.denied])
    _counts(console, plan.counts)
    if plan.restricted:
        least = "at least " if plan.unread else ""
        console.print(f"  access: {least}{counted(plan.restricted, 'document')} for some groups only")
    show_changes(console, plan.changes)
    if not plan.nothing_to_do:
        shards = counted(plan.shards, "shard")
        console.print(f"  {decimal(plan.bytes)} to load, {len(plan.jobs)} of {shards} to build")
    _mended(console, plan.damaged)
    if plan.rebuilds_stores:
        hanging(console, "catalog, BM25 and vectors are built anew where their config or code changed", 4, "  *")
    _redone(console, plan.redone)
    for reason in plan.refused.splitlines():
        hanging(console, Text("refused: ", style="red").append(reason, style="default"), 4, "  *")
    if plan.held:
        hanging(console, Text("held: ", style="yellow").append(f"{plan.held} -> glossator resume", "default"), 4, "  *")
    show_failures(console, plan.failures, failed_before)


def show_report(console: Console, report: IndexReport) -> None:
    """Show what a run did."""
    snapshot = f"snapshot [bold]{report.snapshot[:12]}[/]"
    seconds = f"{report.seconds.get('total', 0):.1f} s"
    if report.published:
        console.print(
            f"[green]Published[/] {snapshot} (flip {report.flip}) of collection [bold]{report.collection}[/] "
            f"in {seconds}"
        )
    elif report.mended:
        console.print(f"[green]Mended[/] {snapshot} in {seconds}; nothing else is published")
    elif len(report.failed_before) < len(report.failed):
        console.print(f"[yellow]Nothing published[/]: {snapshot} stays as it was ({seconds})")
    else:
        console.print(f"[green]Nothing to do[/]: {snapshot} is up to date ({seconds})")
    _counts(console, report.documents)
    _mended(console, report.mended)
    _redone(console, report.redone)
    console.print(
        f"  {counted(report.chunks, 'chunk')}: {report.chunks_embedded:,} embedded, {report.chunks_reused:,} reused"
        + (f"; {report.llm_calls} calls, ${report.usd:.2f}" if report.llm_calls else "")
    )
    _skipped(console, report.skipped, report.skipped_first)
    _left_out(console, report.left_out)
    for warning in report.warnings:
        console.print(f"  [yellow]![/] {literal(warning)}", soft_wrap=True)
    _denied(console, report.denied)
    show_failures(console, report.failed, report.failed_before)


def _mended(console: Console, keys: Sequence[str]) -> None:
    if keys:
        hanging(console, f"built anew, since missing or damaged: {', '.join(keys)}", 4, "  *")


def _counts(console: Console, counts: ChangeCounts) -> None:
    words = ", ".join(f"{count:,} {name}" for name, count in counts.model_dump().items() if count)
    console.print(f"  documents: {words or 'none'}")


def _redone(console: Console, redone: Redone | None) -> None:
    if redone is not None:
        made = ", ".join(_MADE[stage] for stage in redone.stages)
        since = f", since {', '.join(redone.settings)}" if redone.settings else ", since config, code or model changed"
        documents = counted(redone.documents, "document")
        hanging(console, f"{documents} redone from {redone.stages[0]} on ({made}){since}", 4, "  *")


def _skipped(console: Console, skipped: dict[str, int], first: Sequence[str]) -> None:
    if skipped:
        kinds = ", ".join(f"{count:,} {'.' if kind[0] != '(' else ''}{kind}" for kind, count in skipped.items())
        names = ", ".join([*first, "…"] if sum(skipped.values()) > len(first) else first)
        hanging(console, Text(f"not indexed, type not supported: {kinds}: {names}", style="dim"), 4, "  *")


def _left_out(console: Console, unusable: Sequence[tuple[str, str]]) -> None:
    for name, reason in unusable[:MOST_FAILURES]:
        hanging(console, f"left out {name}: {reason}", 4, "  *")
    if len(unusable) > MOST_FAILURES:
        console.print(f"  … and {len(unusable) - MOST_FAILURES} more left out")


def _denied(console: Console, denied: Sequence[tuple[str, str]]) -> None:
    for name, reason in denied[:MOST_FAILURES]:
        line = Text("shown to nobody ", style="red").append(f"{name}: {reason}", style="default")
        hanging(console, line, 4, "  *")
    if len(denied) > MOST_FAILURES:
        console.print(f"  … and {len(denied) - MOST_FAILURES} more shown to nobody")


def show_status(console: Console, status: Status) -> None:
    """Show the state of a collection."""
    console.print(f"[bold]{status.collection}[/] in {literal(status.lake)}", soft_wrap=True)
    if status.snapshot is None or status.published is None or status.counts is None:
        console.print("  nothing is published yet: glossator index FOLDER")
    else:
        counts, when = status.counts, f"{status.published:%Y-%m-%d %H:%M} UTC"
        holds = (
            f"{counted(counts.documents, 'document')}, {counted(counts.chunks, 'chunk')} "
            f"in {counted(status.shards or 0, 'shard')}"
        )
        _row(console, "snapshot", f"{status.snapshot} (flip {status.flip})")
        _row(console, "published", f"{when} by {status.author}: {status.reason}")
        _row(console, "holds", holds)
        _row(console, "model", str(status.model))
        if status.hold:
            _row(console, "held", "nothing is published until: glossator resume")
        if status.restricted:
            _row(console, "access", f"{counted(status.restricted, 'document')} for some groups only")
    if status.purged:
        _row(console, "purged", counted(status.purged, "document"))
    for source in status.sources:
        console.print(f"  {'source':<11}{source.name}: {literal(source.root)}", soft_wrap=True)
    for name in status.returned:
        _row(console, "source", f"{name}: removed, and published again: glossator source remove {name}")
    show_failures(console, [item.failure for item in status.quarantine])


def _row(console: Console, name: str, value: str) -> None:
    hanging(console, value, 13, f"  {name}")


def show_findings(console: Console, snapshot: Snapshot, findings: Iterable[Finding]) -> None:
    """Show what the doctor found."""
    console.print(f"Snapshot [bold]{snapshot.id[:12]}[/] of collection [bold]{snapshot.collection}[/]")
    for finding in findings:
        mark = "[green]✓[/]" if finding.ok else "[red]✗[/]"
        hanging(console, finding.message, 14, Text.from_markup(f"  {mark} {finding.check}"))
        if finding.remedy:
            hanging(console, Text(finding.remedy, style="yellow"), 14, "            →")
