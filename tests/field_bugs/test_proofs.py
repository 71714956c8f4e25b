"""A report that names its proof elsewhere names a test that is there, and that test names the report."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted(path for path in Path(__file__).parent.glob("test_*.py") if path.name != Path(__file__).name)
REPORT = re.compile(r"[\w-]+#\d+|\w+ PR\d+|Onyx, R2R, LlamaIndex")
"""By number; one is told of three systems at once."""
PROOF = re.compile(r"(tests/[\w/]+\.py)::(test_\w+)")


def proofs() -> list[tuple[str, str, str]]:
    """Return (report, file, test) of all that module docstrings list."""
    listed = []
    for module in MODULES:
        docstring = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
        for entry in re.split(r"^- ", docstring, flags=re.MULTILINE)[1:]:
            reports, tests = REPORT.findall(entry.partition("tests/")[0]), PROOF.findall(entry)
            assert reports and tests, entry
            listed += [(report, file, test) for report in reports for file, test in tests]
    return listed


def docstrings(file: Path) -> dict[str, str]:
    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    return {node.name: ast.get_docstring(node) or "" for node in nodes if isinstance(node, ast.FunctionDef)}


def test_proofs_are_listed() -> None:
    assert len(proofs()) > 20


@pytest.mark.parametrize(("file", "test"), sorted({(file, test) for _, file, test in proofs()}))
def test_a_proof_is_there_and_says_what_it_proves(file: str, test: str) -> None:
    said = docstrings(ROOT / file)[test]
    reports = {report for report, *place in proofs() if place == [file, test]}
    assert reports & set(REPORT.findall(said)), f"{test} names none of {sorted(reports)}"


@pytest.mark.parametrize("report", sorted({report for report, _, _ in proofs()}))
def test_every_report_is_named_by_one_of_its_proofs(report: str) -> None:
    tests = [(file, test) for name, file, test in proofs() if name == report]
    assert any(report in docstrings(ROOT / file)[test] for file, test in tests)


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.name)
def test_a_test_of_a_report_names_it(module: Path) -> None:
    for name, said in docstrings(module).items():
        assert not name.startswith("test_") or REPORT.search(said), name
