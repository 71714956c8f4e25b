"""The zombie automation: a run whose process is gone becomes Crashed, so that its concurrency slot is free.

A killed process tells nobody. Its run stays Running, and a deployment that allows one run at a time never runs again.
So the Prefect server watches for signs of life: after a state or a heartbeat of a run it expects another one within a
time. Heartbeats come every 30 seconds, the least that Prefect allows; three of them may be missed.

The automation looks at runs with our tag alone: those of others may give a sign of life every three minutes, which is
Prefect's default, or none.
"""

from __future__ import annotations

import datetime as dt
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import StateType
from prefect.events import AutomationCore, EventTrigger, Posture, ResourceSpecification
from prefect.events.actions import ChangeFlowRunState

from flows.prefect_home import HEARTBEAT_SECONDS, TAG

NAME = "glossator: a run whose process is gone is crashed"
WITHIN_SECONDS = 100.0
"""Of 75 seconds, healthy runs on a busy machine were called crashed; of 100 they were not."""


def zombie_automation(within: float = WITHIN_SECONDS) -> AutomationCore:
    """Return the automation.

    Args:
        within: seconds without a sign of life; at least 10 (Prefect), and more than three heartbeats to be of use.
    """
    return AutomationCore(
        name=NAME,
        description=f"No sign of life for {within:.0f} s, of which there is one every {HEARTBEAT_SECONDS} s: its "
        "process was killed. The next run goes on from the parts in the lake.",
        trigger=EventTrigger(
            match=ResourceSpecification({"prefect.resource.id": "prefect.flow-run.*"}),
            match_related=ResourceSpecification(
                {"prefect.resource.id": f"prefect.tag.{TAG}", "prefect.resource.role": "tag"}
            ),
            for_each={"prefect.resource.id"},
            # A process may be killed before its first heartbeat.
            after={"prefect.flow-run.Pending", "prefect.flow-run.Running", "prefect.flow-run.heartbeat"},
            expect={"prefect.flow-run.*"},
            posture=Posture.Proactive,
            threshold=1,
            within=dt.timedelta(seconds=within),
        ),
        actions=[
            ChangeFlowRunState(
                state=StateType.CRASHED,
                message=f"No sign of life for {within:.0f} s: the process was killed. What it finished is kept.",
            )
        ],
    )


def ensure_zombie_automation(client: SyncPrefectClient, within: float = WITHIN_SECONDS) -> UUID:
    """Create the automation on a server, or update the one that is there when it differs; return its id.

    One that was switched off stays so. Of several, which two processes made at the same time, one is left.
    """
    wanted = zombie_automation(within)
    found = sorted(client.read_automations_by_name(NAME), key=lambda one: str(one.id))
    if not found:
        return client.create_automation(wanted)
    for extra in found[1:]:
        client.delete_automation(extra.id)
    there = found[0]
    wanted.enabled = there.enabled
    if _contents(there) != _contents(wanted):
        client.update_automation(there.id, wanted)
    return there.id


def _contents(one: AutomationCore) -> tuple[object, ...]:
    return one.name, one.description, one.enabled, one.trigger, one.actions
