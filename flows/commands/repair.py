"""``doctor --repair``: build again what the snapshots that are kept have lost, under the lease."""

from __future__ import annotations

from flows.author import author
from flows.commands.door import Door, out, print_json
from flows.console import show_findings
from query.layout import hanging
from schemas.errors import ExitCode, UsageError
from schemas.snapshot import SHORT, Snapshot
from tasks.lake import flip_copy
from tasks.lake.access import put_back_access
from tasks.lake.lake import Lake
from tasks.lake.lease import publishing
from tasks.publish.doctor import examine_lake
from tasks.publish.pointer import available, fence
from tasks.publish.repair import RepairReport, repair


def mend(door: Door, *, json: bool) -> ExitCode:
    """Repair the current snapshot and the others, say what was found and done, and return the exit code."""
    lake = door.lake()
    if not lake.flip_numbers() and not lake.storage.exists(flip_copy.KEY):
        raise UsageError(f"collection {lake.collection!r} is empty", hint="run `glossator index FOLDER` first")
    with publishing(lake, f"{author()} (doctor --repair)", door.config.run.lease_wait_seconds):
        back = lake.put_back_flip() + put_back_access(lake)
        reports = repair(lake, door.config, lambda: fence(lake, author(), "doctor --repair"))
        snapshot = lake.read_snapshot(reports[0].snapshot)
        ailing = [finding for finding in examine_lake(door.config, lake, snapshot) if not finding.ok]
    # What was put back is of the whole lake, and told with the current snapshot.
    first = reports[0]
    reports[0] = first.model_copy(
        update={"rebuilt": (*back, *first.rebuilt), "after": (*first.after, *ailing) if ailing else first.after}
    )
    print_json(reports) if json else _show(snapshot, lake, reports)
    return ExitCode.DONE if all(report.healthy for report in reports) else ExitCode.FAILED


def _show(snapshot: Snapshot, lake: Lake, reports: list[RepairReport]) -> None:
    current, *others = reports
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
