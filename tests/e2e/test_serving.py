"""A Prefect server starts the nightly run by itself; killed with the process that serves it, it is found to be dead.

One run is killed for the module, and the server takes its time to miss it; meanwhile other tests go on.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from prefect.client.orchestration import get_client
from prefect.flows import load_flow_from_entrypoint
from prefect.settings import PREFECT_API_URL, temporary_settings

from deployments.serve import deployment_of
from deployments.zombies import NAME, WITHIN_SECONDS, ensure_zombie_automation, zombie_automation
from flows.nightly import nightly
from flows.prefect_home import HEARTBEAT_SECONDS, TAG
from schemas.work import SourceSpec
from tasks.lake.lake import Lake
from tasks.plan.registry import record_source
from tests.e2e.home import ROOT, Home
from tests.e2e.prefect_server import Server
from tests.e2e.serving import (
    beating,
    deployment,
    final_state,
    freeze,
    kill_all,
    serving,
    slots_taken,
    start_run,
    state_of,
    until,
)
from tests.publish.test_milvus_lost import unused_port

pytestmark = pytest.mark.xdist_group("prefect")

WITHIN = 12.0
"""Seconds without a sign of life; too few for real heartbeats, of which there is one every 30 seconds."""
DOCUMENTS = 300
HASH = {"GLOSSATOR__EMBED__MODEL": "hash:384"}


@dataclass(frozen=True)
class Killed:
    """A run that was killed at work.

    Attributes:
        plain: where a plain run indexed the same documents.
        second: a run that the server was told to start meanwhile.
        slots: taken when it was dead.
        parts: file -> inode of the embed parts that were finished, and ``embedded`` their rows.
    """

    home: Home
    plain: Home
    run: str
    second: str
    when: float
    slots: int
    parts: dict[Path, int]
    embedded: int


def embed_parts(home: Home) -> dict[Path, int]:
    return {path: path.stat().st_ino for path in home.lake.glob("parts/embed/*.parquet")}


@pytest.fixture(scope="module")
def killed(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Killed:
    folder = tmp_path_factory.mktemp("served")
    docs = folder / "docs"
    docs.mkdir()
    for number in range(DOCUMENTS):
        text = "\n\n".join(f"## Log {part}\n\nBerth {number} was dredged {part} times.\n" for part in range(4))
        (docs / f"{number}.md").write_text(f"# Berth {number}\n\n{text}")
    home = Home(folder / "home", server, HASH)
    record_source(Lake(home.lake.parent, "default"), SourceSpec(name="docs", root=str(docs)))
    with beating(server), serving(home, "--crashed-after", str(WITHIN)) as process:
        run = start_run(server, "nightly")
        until(lambda: embed_parts(home) or None, 60, "the first embed part")
        freeze(process)
        second = start_run(server, "nightly")
        final_state(server, second, 60)
        parts = embed_parts(home)
        kill_all(process)
    assert state_of(server, run)[0] == "RUNNING"
    assert not (home.lake / "flips").exists()
    when, slots = time.monotonic(), slots_taken(server, "nightly")
    plain = Home(folder / "plain", None, HASH)
    plain.index(str(docs), "--runner", "plain")
    embedded = sum(pq.read_metadata(path).num_rows for path in parts)
    return Killed(home, plain, run, second, when, slots, parts, embedded)


def test_a_second_run_is_cancelled_and_says_why(server: Server, killed: Killed) -> None:
    assert state_of(server, killed.second) == ("CANCELLED", "Deployment concurrency limit reached.")
    assert killed.slots == 1, "the dead run holds it"


NIGHTS = """
import json, os
from pathlib import Path
from flows.nightly import nightly
from schemas.work import SourceSpec
from tasks.lake.home import find_home
from tasks.lake.lake import Lake
from tasks.plan.registry import record_source

def night(**parameters):
    state = nightly(**parameters, return_state=True)
    said.append([state.type.value, state.message])

said = []
night(collection="Not a name")
night(collection="harbour")
record_source(Lake(find_home().lake, "harbour"), SourceSpec(name="docs", root=os.path.abspath("docs")))
os.environ["GLOSSATOR__MILVUS__URI"] = "http://127.0.0.1:{port}"
night(collection="harbour")
del os.environ["GLOSSATOR__MILVUS__URI"]
night(collection="harbour", reason="the first night")
night(collection="harbour")
Path("docs/2.md").unlink()
Path("docs").rename("elsewhere")
night(collection="harbour")
Path("said.json").write_text(json.dumps(said))
"""


def test_the_final_state_says_what_came_of_the_night(server: Server, killed: Killed, tmp_path: Path) -> None:
    home = Home(tmp_path / "home", server, HASH)
    docs = home.path / "docs"
    docs.mkdir(parents=True)
    (docs / "1.md").write_text("# One\n\nThe gauge stands at the north pier.\n")
    (docs / "2.md").write_text("# Two\n\nThe bench mark is on the church wall.\n")
    (docs / "bad.pdf").write_bytes(b"")
    port = unused_port()
    done = home.start("-c", NIGHTS.replace("{port}", str(port)))
    assert done.returncode == 0, done.stderr[-2_000:]
    said = json.loads((home.path / "said.json").read_text())
    kinds, messages = zip(*said, strict=True)
    assert kinds == ("FAILED", "FAILED", "FAILED", "COMPLETED", "COMPLETED", "FAILED")
    assert all("\n" not in message for message in messages)
    assert messages[0].startswith("--collection 'Not a name' is not a name -> ")
    assert messages[1] == "collection 'harbour' has no source yet -> run `glossator index FOLDER`"
    assert messages[2].startswith(f"cannot reach Milvus at http://127.0.0.1:{port}: ")
    assert messages[3].startswith("Published snapshot ") and "2 added" in messages[3]
    assert messages[4].startswith("Nothing to do: snapshot ")
    assert all("; 1 document in quarantine" in message for message in messages[3:5])
    assert "docs" in messages[5] and " -> " in messages[5], "a refusal"
    failed = {"task_runs": {"name": {"like_": "vectors"}, "state": {"type": {"any_": ["FAILED"]}}}}
    assert [one["run_count"] for one in server.ask("/task_runs/filter", failed)] == [3], "two retries, and no others"


def test_a_killed_run_is_found_to_be_dead_and_its_slot_is_free(server: Server, killed: Killed) -> None:
    """prefect#7239, prefect#16746: a killed run stays Running for ever and holds its concurrency slot."""
    kind, message = final_state(server, killed.run, max(killed.when + WITHIN + 15 - time.monotonic(), 1))
    assert kind == "CRASHED"
    assert message == f"No sign of life for {WITHIN:.0f} s: the process was killed. What it finished is kept."
    until(lambda: slots_taken(server, "nightly") == 0 or None, 10, "the slot is free")
    query = {"flow_runs": {"state": {"type": {"any_": ["RUNNING", "PENDING"]}}}}
    until(lambda: server.ask("/flow_runs/filter", query) == [] or None, 15, "nothing is left Running")


def test_the_next_run_goes_on_from_the_parts(server: Server, killed: Killed) -> None:
    home = killed.home
    # The dead run has it until it is missed, be this test run alone or the machine slow.
    until(lambda: slots_taken(server, "nightly") == 0 or None, 60, "the slot is free")
    with serving(home):
        for _ in range(3):  # Prefect on a busy machine has cancelled a run that was alone, as if it held its slot.
            run = start_run(server, "nightly", reason="the next night")
            kind, message = final_state(server, run, 60)
            if kind != "CANCELLED":
                break
        automations = server.ask("/automations/filter", {})
    assert kind == "COMPLETED", message
    chunks = killed.plain.chunks()
    left, snapshot = len(chunks) - killed.embedded, killed.plain.snapshot_name()
    assert killed.embedded > 0 and message == (
        f"Published snapshot {snapshot[:12]} (flip 1): {DOCUMENTS} added, 0 changed, 0 deleted, {left:,} embedded"
    )
    assert killed.parts.items() <= embed_parts(home).items(), "what was finished was not written again"
    assert home.chunks() == chunks
    ours = [one["trigger"]["within"] for one in automations if one["name"] == NAME]
    assert ours == [WITHIN_SECONDS], "one automation, brought up to date by the process that serves now"
    assert deployment(server, "nightly")["concurrency_options"]["collision_strategy"] == "CANCEL_NEW"


def test_the_automation_is_made_once_and_follows_what_is_wanted_but_for_its_switch(server: Server) -> None:
    with temporary_settings({PREFECT_API_URL: server.url}), get_client(sync_client=True) as client:
        first = ensure_zombie_automation(client)
        assert ensure_zombie_automation(client) == first
        client.pause_automation(first)
        client.create_automation(zombie_automation())  # By a process that looked at the same moment.
        left = ensure_zombie_automation(client, within=200)
        found = client.read_automations_by_name(NAME)
    assert [one.id for one in found] == [left]
    assert found[0].trigger == zombie_automation(200).trigger
    assert found[0].enabled == (left != first)


def test_the_deployment_file_deploys_the_same_from_the_root(server: Server, tmp_path: Path) -> None:
    server.ask("/work_pools/", {"name": "glossator", "type": "process"})
    command = ["prefect", "--no-prompt", "deploy", "--prefect-file", "deployments/prefect.yaml", "--all"]
    environment = Home(tmp_path, server).environment()
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    deployed, served = deployment(server, "nightly"), deployment_of(nightly)
    assert deployed["tags"] == served.tags == [TAG]
    assert deployed["parameter_openapi_schema"]["properties"] == nightly.parameters.model_dump()["properties"]
    assert deployed["global_concurrency_limit"]["limit"] == 1
    assert deployed["concurrency_options"]["collision_strategy"] == "CANCEL_NEW"
    assert deployed["job_variables"]["env"] == {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(HEARTBEAT_SECONDS)}
    assert load_flow_from_entrypoint(str(ROOT / deployed["entrypoint"])).name == "nightly"
