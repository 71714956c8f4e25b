"""Faults: what happens to a command at one of the points that it passes.

A fault is watched for at points of one kind (changes, reads, or calls of Milvus), strikes once, and may go on at each
later point of the same process. The next process finds the world in order again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.crash.points import Points, Strike, nothing
from tests.crash.room import Room

if TYPE_CHECKING:
    from tests.crash.operations import Operation
    from tests.crash.outcome import Reference
    from tests.crash.trial import Trial

CHANGES = "changes"


def watch_changes(points: Points, room: Room) -> None:
    """Count the changes of the disk and of the vector store."""
    points.install()


@dataclass(frozen=True)
class Fault:
    """Something that happens to a command.

    Attributes:
        name: on the command line.
        title: heading of its table.
        promise: what was checked, in sentences.
        operations: names of those that it is tried on.
        strike: what happens at the point, in the process.
        later: what happens at each point after it.
        fits: tells which points it is tried at.
        border: name of the kind of points; equal names have equal points.
        watch: begins to count them.
        settings: variables of the configuration, for the command and all that follows.
        most: points of each operation that ``make crash-full`` tries; 0 is all.
        dies: the process ends at the point, and says nothing.
        attempt: makes a trial of it, where one process is not enough.
        later_days: how far the clock of the last ``maintain`` is moved on.
    """

    name: str
    title: str
    promise: str
    operations: tuple[str, ...]
    strike: Callable[[Room], Strike]
    later: Strike = nothing
    fits: Callable[[str], bool] = lambda point: True
    border: str = CHANGES
    watch: Callable[[Points, Room], None] = watch_changes
    settings: Mapping[str, str] = field(default_factory=dict)
    most: int = 0
    dies: bool = False
    later_days: int = 40
    attempt: Callable[[Room, Operation, Reference, Fault, int], Trial] | None = None
