"""The history on the command line: what a person types, reads at 80 columns, and gets as exit code and JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import glossator
from flows.commands import door
from schemas.errors import ExitCode
from tests.generations import Generations

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Said:
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its output as JSON."""
        return json.loads(self.out)


Run = Callable[..., Said]


@pytest.fixture
def three(tmp_path: Path) -> Generations:
    """Three generations, published."""
    collection = Generations(tmp_path)
    for generation in range(3):
        collection.publish(generation)
    return collection


@pytest.fixture
def run(three: Generations, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Run a command in this process, on a terminal of 80 columns."""
    monkeypatch.setenv("GLOSSATOR_HOME", str(tmp_path))
    monkeypatch.setenv("GLOSSATOR_LAKE", str(three.lake.root))
    monkeypatch.setenv("GLOSSATOR__EMBED__MODEL", "hash:384")
    monkeypatch.setenv("GLOSSATOR__RUN__RUNNER", "plain")
    for console in (door.out, door.err):
        monkeypatch.setattr(console, "_width", 80)

    def call(*words: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["glossator", *words])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            glossator.main()
        said = capsys.readouterr()
        return Said(int(ended.value.code or 0), said.out, said.err)

    return call


def names(run: Run) -> list[str]:
    return [entry["name"] for entry in run("snapshots", "--json").json]


def test_snapshots_fit_eighty_columns_and_say_what_is_current(run: Run) -> None:
    said = run("snapshots")
    lines = said.out.splitlines()
    assert said.code == ExitCode.DONE
    assert max(map(len, lines)) <= 80
    assert len(lines) == 4
    assert "#3" in lines[1]
    assert [line.split()[-1] for line in lines[1:]] == ["current", "kept", "dropped"]
    entries = run("snapshots", "--json").json
    assert [(entry["flips"], entry["current"], entry["retained"]) for entry in entries] == [
        ([3], True, True),
        ([2], False, True),
        ([1], False, False),
    ]


def test_a_rollback_holds_index_until_resume(run: Run, three: Generations) -> None:
    three.write(9)
    assert run("rollback").code != ExitCode.DONE, "a reason is asked for"
    assert not three.flip().hold
    said = run("rollback", "--reason", "wrong prices")
    assert said.code == ExitCode.DONE
    assert "Rolled back" in said.out
    assert "glossator resume" in said.out
    assert three.flip().hold
    refused = run("index")
    assert refused.code == ExitCode.REFUSED
    assert "wrong prices" in refused.err
    assert "-> glossator resume" in refused.err
    looked = run("index", "--dry-run")
    assert max(map(len, looked.out.splitlines())) <= 80
    assert looked.code == ExitCode.DONE
    assert "4 changed" in looked.out
    assert "held" in looked.out
    assert "wrong prices" in run("index", "--dry-run", "--json").json["held"]
    assert "held" in run("status").out
    assert run("status", "--json").json["hold"] is True
    shown = run("snapshots").out
    assert "Publishing is held\n  since " in shown and "wrong prices" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert run("resume", "--reason", "repaired").code == ExitCode.DONE
    assert run("resume").code == ExitCode.USAGE
    done = run("index", "--json")
    assert done.code == ExitCode.DONE
    assert done.json["flip"] == 6


def test_a_rollback_to_what_was_dropped_is_refused_with_what_is(run: Run) -> None:
    newest, second, dropped = names(run)
    said = run("rollback", "#1", "--reason", "x")
    assert said.code == ExitCode.REFUSED
    assert f"snapshot {dropped[:12]} was dropped -> kept: {second[:12]}\n" in said.err
    assert newest[:12] not in said.err
    assert run("rollback", "nonsense", "--reason", "x").code == ExitCode.USAGE


def test_no_way_back_is_a_mistake_of_the_command_for_rollback_and_diff_alike(run: Run) -> None:
    *_, second, _ = names(run)
    assert run("rollback", "--reason", "x").code == ExitCode.DONE
    for words in (("rollback", "--reason", "x"), ("diff",)):
        said = run(*words)
        assert said.code == ExitCode.USAGE
        assert f"no snapshot before {second[:12]} is kept -> kept: " in said.err


def test_a_rollback_by_number_or_name(run: Run) -> None:
    newest, second, _ = names(run)
    assert run("rollback", "@2", "-r", "x", "--json").json["snapshot"] == second
    assert run("rollback", newest[:10], "-r", "x", "--json").json["snapshot"] == newest


def test_a_diff_counts_and_names_documents(run: Run) -> None:
    said = run("diff", "@1", "current")
    assert said.code == ExitCode.DONE
    assert "4 changed, 1 unchanged" in said.out
    assert "corpus/gauge-0.md  +1 -1" in said.out
    assert max(map(len, said.out.splitlines())) <= 80
    found = run("diff", "@1", "@3", "--json").json
    assert found["counts"]["changed"] == 4
    assert (found["chunks_added"], found["chunks_removed"]) == (4, 4)
    assert run("diff").code == ExitCode.DONE, "the previous against the current one"


def test_a_pin_is_shown_and_taken_away(run: Run, three: Generations) -> None:
    assert run("pin", "@2", "--reason", "audit of spring").code == ExitCode.DONE
    assert "pinned: audit" in run("snapshots").out
    for generation in (3, 4):
        three.publish(generation)
    assert [entry["retained"] for entry in run("snapshots", "--json").json] == [True, True, False, True, False]
    assert run("unpin", "@2").code == ExitCode.DONE
    assert run("unpin", "@2").code == ExitCode.USAGE
    assert run("pin", "#1").code == ExitCode.REFUSED


def test_maintain_shows_before_it_deletes(run: Run, three: Generations) -> None:
    orphan = "0" * 32
    _insert(three, orphan)
    shown = run("maintain", "--dry-run")
    assert shown.code == ExitCode.DONE
    assert "Would delete" in shown.out
    assert orphan in three.rows()
    done = run("maintain", "--json").json
    assert (done["orphans"]["count"], done["finished"]) == (1, True)
    assert orphan not in three.rows()
    nothing = run("maintain").out
    assert nothing.startswith("Nothing to delete:\n")
    told = " ".join(nothing.split())
    assert "A dropped snapshot goes 15 minutes after" in told and "other parts 7 days after it." in told
    assert max(map(len, nothing.splitlines())) <= 80
    assert run("doctor").code == ExitCode.DONE


def _insert(collection: Generations, chunk_id: str) -> None:
    from contextlib import closing

    from tasks.publish.milvus import open_milvus

    words = {"doc_id": "d", "source": "s", "uri": "u", "type": "t", "language": "en"}
    numbers = {"date": 0, "tags_id": 0, "acl_id": 0}
    with closing(open_milvus(collection.config.milvus, collection.lake, collection.current().vectors)) as store:
        store.insert([{"chunk_id": chunk_id, "vector": [1.0] + [0.0] * 383, **words, **numbers}])
        store.flush()


def test_a_rollback_from_the_shell_takes_less_processor_time_than_a_second(three: Generations, tmp_path: Path) -> None:
    environment = {**os.environ, "GLOSSATOR_HOME": str(tmp_path), "GLOSSATOR_LAKE": str(three.lake.root)}
    command = [sys.executable, str(ROOT / "glossator.py"), "rollback", "--reason", "quick"]
    begun = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)  # Of this process alone: others may end meanwhile.
    used = usage.ru_utime + usage.ru_stime
    assert status == 0
    assert used < 1.0, f"{used:.2f} s of processor time, {time.perf_counter() - begun:.2f} s in all"
    assert three.flip().hold
