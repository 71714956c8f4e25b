"""All faults, in the order in which ``make crash-full`` has them."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

from tests.crash.calls import BORDER as CALLS
from tests.crash.calls import is_gone, kill_server, watch_calls
from tests.crash.clock import jump
from tests.crash.faults import Fault
from tests.crash.full_disk import is_full, needs_space, stays_full, watch_disk
from tests.crash.interleaved import attempt_pause, attempt_twice, pause
from tests.crash.operations import OPERATIONS, SHARED
from tests.crash.points import Strike, die, nothing
from tests.crash.reads import BORDER as READS
from tests.crash.reads import cannot_be_read, watch_reads

_ALL = tuple(OPERATIONS)
_AFTER = (
    "The command must end by itself, with an exit code and, where it is not done, one line that says what happened and "
    "what to do; then a reader, the doctor, a second run and a `maintain` are held to what they are held to after a "
    "kill -9."
)


def _signal(number: signal.Signals) -> Strike:
    def strike(point: str) -> None:
        os.kill(os.getpid(), number)

    return strike


KILL = Fault(
    name="kill",
    title="kill -9",
    promise=(
        "The operation runs on eight documents in two shards, with the plain runner and Milvus Lite in the same "
        "process. It is killed before each single change that it makes on the disk or in the vector store, half-way "
        "through each write, and after the last. Then a reader asks a question whose answer is the whole snapshot, the "
        "doctor examines what is published, and the same command runs again. It must end with the snapshot, rows and "
        "BM25 index of a run that was not killed; no finished part is written or computed again and no text embedded "
        "twice; and after a `maintain` with the clock moved on forty days no file and no row may be left that such a "
        "run would not leave."
    ),
    operations=_ALL,
    strike=lambda room: die,
    dies=True,
)
FULL = Fault(
    name="full",
    title="Disk full",
    promise=(
        "A write, link or rename fails with ENOSPC, some of them with half of the file written, and so does every "
        "later write of the process. " + _AFTER
    ),
    operations=tuple(name for name in _ALL if name not in {"shared", "renew"}),
    strike=lambda room: is_full,
    later=stays_full,
    fits=needs_space,
    border="disk",
    watch=watch_disk,
    most=16,
)
TERMINATED = Fault(
    name="sigterm",
    title="SIGTERM",
    promise="The process is sent SIGTERM before a change. " + _AFTER,
    operations=("first", "edit", "chunks", "maintain", "purge", "repair", "remove"),
    strike=lambda room: _signal(signal.SIGTERM),
    fits=lambda point: not point.startswith("end: "),  # By then the command has ended.
    most=24,
)
FAULTS = {
    fault.name: fault
    for fault in (
        KILL,
        FULL,
        replace(
            FULL,
            name="full-once",
            title="Disk full for one write",
            promise=(
                "One write, link or rename fails with ENOSPC, some of them with half of the file written; the next "
                "finds space again. " + _AFTER
            ),
            later=nothing,
        ),
        Fault(
            name="unreachable",
            title="Milvus unreachable",
            promise=(
                "A call of Milvus's client, a look-up or a change, and all later ones of the process fail as they do "
                "when the server is gone. " + _AFTER
            ),
            operations=("first", "edit", "delete", "chunks", "maintain", "purge", "remove", "repair"),
            strike=lambda room: is_gone,
            later=is_gone,
            border=CALLS,
            watch=watch_calls,
        ),
        Fault(
            name="server-killed",
            title="Milvus server killed",
            promise=("Milvus Lite is a process of its own, and is sent SIGKILL right before a call. " + _AFTER),
            operations=("edit", "chunks", "maintain", "purge", "repair"),
            strike=kill_server,
            border=CALLS,
            watch=watch_calls,
            settings=SHARED,
            most=12,
        ),
        TERMINATED,
        replace(
            TERMINATED,
            name="sigint",
            title="SIGINT",
            promise="The process is sent SIGINT, as by Ctrl-C, before a change. " + _AFTER,
            strike=lambda room: _signal(signal.SIGINT),
            most=12,
        ),
        Fault(
            name="unreadable",
            title="Read error",
            promise=(
                "A file of the lake, of Milvus Lite or of the source cannot be read: it is opened or mapped, and that "
                "fails with EIO once. " + _AFTER
            ),
            operations=("first", "edit", "rollback", "maintain", "purge", "repair"),
            strike=lambda room: cannot_be_read,
            border=READS,
            watch=watch_reads,
            most=40,
        ),
        Fault(
            name="paused",
            title="Paused for longer than its lease",
            promise=(
                "The process is stopped before a change, its lease expires, and another command of the same lake runs "
                "to its end: an index of another edit, in one trial of four a `maintain` with the clock moved on forty "
                "days. Then the first goes on. What the other published must be there, the doctor find nothing, and a "
                "last index end with the contents of a clean build. Milvus Lite is a process of its own; while one is "
                "paused that holds the lock of that, the other says so in one line, and ends."
            ),
            operations=("edit", "chunks", "maintain", "purge"),
            strike=lambda room: pause,
            settings=SHARED,
            most=16,
            attempt=attempt_pause,
        ),
        *(
            Fault(
                name=f"clock-{name}",
                title=f"Clock {name} by forty days",
                promise=(
                    f"Before a change the clock jumps {name} by forty days, for the rest of the process; files are "
                    "dated by it. " + _AFTER
                ),
                operations=("edit", "chunks", "rollback", "maintain", "purge", "remove", "repair"),
                strike=lambda room, days=days: jump(days, str(room.root)),  # type: ignore[misc]
                most=12,
                later_days=90,
            )
            for name, days in (("forward", 40), ("back", -40))
        ),
        Fault(
            name="twice",
            title="Two runs at once",
            promise=(
                "The same command is started twice, up to a second apart; each must end as above, one of them done. "
                "Milvus Lite is a process of its own. " + _AFTER
            ),
            operations=("first", "edit", "chunks", "maintain", "purge"),
            strike=lambda room: nothing,
            settings=SHARED,
            most=4,
            attempt=attempt_twice,
        ),
    )
}
