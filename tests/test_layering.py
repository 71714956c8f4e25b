"""The house keeps its order: imports go one way, rooms stay small, and each says what it is for."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FLOORS = ("schemas", "tasks", "query", "flows", "deployments")
DOOR = ROOT / "glossator.py"
OURS = [DOOR, *sorted(path for floor in FLOORS for path in (ROOT / floor).rglob("*.py"))]
TESTS = sorted((ROOT / "tests").rglob("*.py"))
MOST_LINES = 400


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name(path)}:{node.lineno}: relative imports hide what depends on what"
            yield node.module or ""


def loaded_by(modules: str) -> set[str]:
    """Return what a fresh interpreter holds after importing modules, by top-level name."""
    code = (
        "import importlib, pkgutil, sys\n"
        f"for name in {modules.split()!r}:\n"
        "    package = importlib.import_module(name)\n"
        "    for module in pkgutil.walk_packages(getattr(package, '__path__', []), f'{name}.'):\n"
        "        if module.name != 'tasks.task': importlib.import_module(module.name)\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=dict(os.environ), capture_output=True, check=True, text=True
    )
    return set(result.stdout.split())


def test_there_is_something_to_look_at() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in OURS} == {*FLOORS, "glossator.py"}


@pytest.mark.parametrize("path", OURS, ids=name)
def test_imports_go_one_way(path: Path) -> None:
    if path == DOOR:
        return
    below = FLOORS[: FLOORS.index(path.relative_to(ROOT).parts[0]) + 1]
    tops = {module.partition(".")[0] for module in imported(path)}
    assert tops & {*FLOORS, "glossator", "tests"} <= set(below)


@pytest.mark.parametrize("path", OURS, ids=name)
def test_only_flows_and_task_files_know_prefect(path: Path) -> None:
    allowed = path.name == "task.py" or path.relative_to(ROOT).parts[0] in {"flows", "deployments"}
    assert allowed or "prefect" not in {module.partition(".")[0] for module in imported(path)}


def test_the_online_path_and_the_steps_load_no_prefect_whatever_they_import() -> None:
    loaded = loaded_by("schemas tasks query")
    assert {"schemas", "tasks", "query"} <= loaded
    assert "prefect" not in loaded


def test_planning_loads_neither_prefect_nor_a_model_nor_a_store() -> None:
    """ "Nothing to do" answers in under a second."""
    loaded = loaded_by("tasks.plan flows.index flows.runner glossator")
    assert not loaded & {"prefect", "torch", "sentence_transformers", "pymilvus", "milvus_lite", "pymupdf", "bm25s"}


@pytest.mark.parametrize("path", [*OURS, *TESTS], ids=name)
def test_a_file_is_a_room(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MOST_LINES


@pytest.mark.parametrize("path", OURS, ids=name)
def test_everything_public_says_what_it_is(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    silent = [
        node.name
        for node in tree.body
        if isinstance(node, kinds) and not node.name.startswith("_") and not ast.get_docstring(node)
    ]
    assert silent == []
    assert ast.get_docstring(tree), "the module docstring says what it is and why it is so"
