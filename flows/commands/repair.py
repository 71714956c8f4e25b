"""``doctor --repair``: build again what the snapshots that are kept have lost, under the lease."""

from __future__ import annotations

from flows.author import author
from flows.commands.door import Door, out, print_json
from flows.console import show_findings
from query.layout import hanging
from schemas.errors import ExitCode
from schemas.snapshot import SHORT
from tasks.lake.lake import Lake
from tasks.lake.lease import publishing
from tasks.publish.pointer import available, fence
from tasks.publish.repair import RepairReport, repair


def mend(door: Door, *, json: bool) -> ExitCode:
    """Repair the current snapshot and the others, say what was found and done, and return the exit code."""
    lake = door.lake()
    with publishing(lake, f"{author()} (doctor --repair)", door.config.run.lease_wait_seconds):
        reports = repair(lake, door.config, lambda: fence(lake, author(), "doctor --repair"))
    print_json(reports) if json else _show(lake, reports)
    return ExitCode.DONE if all(report.healthy for report in reports) else ExitCode.FAILED


def _show(lake: Lake, reports: list[RepairReport]) -> None:
    current, *others = reports
    snapshot = lake.read_snapshot(current.snapshot)
    show_findings(out, snapshot, current.before)
    _show_work(current)
    if current.after != current.before:
        show_findings(out, snapshot, current.after)
    kept = set(available(lake))
    for report in others:
        if not all(finding.ok for finding in report.before):
            state = "mended" if report.healthy else "[red]not mended[/]"
            which = "Kept" if report.snapshot in kept else "Dropped"
            out.print(f"{which} snapshot [bold]{report.snapshot[:SHORT]}[/]: {state}")
            _show_work(report)
    if not any(report.rebuilt or report.problems for report in reports):
        out.print("Nothing to repair." if all(report.healthy for report in reports) else "Nothing could be repaired.")
    elif all(report.healthy for report in reports):
        out.print("[green]Repaired[/]: the same snapshots, and nothing was embedded.")


def _show_work(report: RepairReport) -> None:
    for name in report.rebuilt:
        hanging(out, name, 12, "  rebuilt")
    for problem in report.problems:
        hanging(out, problem, 12, "  failed")
