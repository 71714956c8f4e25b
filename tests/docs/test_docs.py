"""The documents say what the code does: generated ones are current, commands in the README run."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.crash.all_faults import KILL
from tests.crash.operations import OPERATIONS

ROOT = Path(__file__).parents[2]


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs/generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_configuration_reference_is_current() -> None:
    assert (ROOT / "docs/configuration.md").read_text(encoding="utf-8") == generator().configuration()


def test_the_results_of_the_fault_tests_are_current_and_broke_no_promise() -> None:
    assert (ROOT / "docs/reliability.md").read_text(encoding="utf-8") == generator().reliability()
    results = json.loads((ROOT / "docs/reliability.json").read_text(encoding="utf-8"))
    rows = [row for fault in results.values() for row in fault["rows"]]
    assert rows and all(sum(row["points"].values()) > 0 for row in rows)
    assert [row["violations"] for row in rows if row["violations"]] == []


def test_every_operation_that_is_killed_has_its_row_in_the_results() -> None:
    results = json.loads((ROOT / "docs/reliability.json").read_text(encoding="utf-8"))
    assert {row["operation"] for row in results[KILL.title]["rows"]} == {one.title for one in OPERATIONS.values()}


def readme_commands() -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```console\n(.*?)```", text, flags=re.DOTALL)
    return [line.removeprefix("$ ") for block in blocks for line in block.splitlines() if line.startswith("$ ")]


def test_the_readme_shows_the_two_commands_that_need_nothing() -> None:
    assert readme_commands()[:2] == ["make demo", "make test"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert all(re.search(rf"^{target}:.*## ", makefile, flags=re.MULTILINE) for target in ("demo", "test"))


def test_the_commands_of_the_readme_run(tmp_path: Path) -> None:
    commands = [command for command in readme_commands() if command.startswith("glossator ")]
    assert len(commands) >= 6
    environment = {
        "GLOSSATOR_HOME": str(tmp_path),
        "GLOSSATOR__RUN__RUNNER": "plain",
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(ROOT),
    }
    # A rollback needs something to roll back to: the import that went wrong.
    commands.insert(commands.index("glossator snapshots"), "glossator index data/pdf_text")
    for command in commands:
        words = shlex.split(command)[1:]
        program = [sys.executable, str(ROOT / "glossator.py"), *words]
        done = subprocess.run(program, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        assert done.stdout.strip(), command


def test_the_readme_names_every_command() -> None:
    help_text = subprocess.run(
        [sys.executable, str(ROOT / "glossator.py"), "--help"], capture_output=True, text=True, check=True
    ).stdout
    offered = set(re.findall(r"│ ([a-z]+) ", help_text))
    table = set(re.findall(r"^\| `([a-z]+)", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert offered and offered <= table | {"help"}


@pytest.mark.parametrize(
    "name", ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "data/README.md", "docs/reliability.md"]
)
def test_links_between_documents_lead_somewhere(name: str) -> None:
    document = ROOT / name
    links = re.findall(r"\]\(([^)#:]+)\)", document.read_text(encoding="utf-8"))
    missing = [link for link in links if not (document.parent / link).exists()]
    assert missing == []


def test_the_tests_that_hold_the_promises_are_there() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", text)
    assert len(named) > 10
    assert [name for file, name in named if f"def {name}(" not in (ROOT / file).read_text(encoding="utf-8")] == []
