"""The command line as a person meets it: a process of its own, a home of its own, 80 columns, no terminal."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tasks.lake.lake import Lake
from tasks.plan.registry import list_sources, record_source

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "data" / "corpus"
INHERITED = ("PATH", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV")


@dataclass(frozen=True)
class Outcome:
    """What a command did."""

    code: int
    out: str
    err: str
    seconds: float

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def complaint(self) -> str:
        """The one line that a failed command wrote; nothing else may stand on either stream."""
        lines = self.err.splitlines()
        assert len(lines) == 1, f"exit {self.code}: {self.err[-2_000:]}"
        assert lines[0].startswith("glossator: ")
        assert "unexpected" not in lines[0], lines[0]
        assert self.out == ""
        return lines[0]


@dataclass(frozen=True)
class Home:
    """A place with a lake, a configuration file perhaps, and documents in ``docs``."""

    path: Path
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def docs(self) -> Path:
        return self.path / "docs"

    @property
    def lake(self) -> Path:
        return self.path / "data" / "lake" / "default"

    def environment(self, **variables: str) -> dict[str, str]:
        return {
            **{name: os.environ[name] for name in INHERITED if name in os.environ},
            "HOME": str(self.path),
            "PYTHONPATH": str(ROOT),
            "GLOSSATOR_HOME": str(self.path),
            "COLUMNS": "80",
            "TERM": "dumb",
            "GLOSSATOR__EMBED__MODEL": "hash:384",
            "GLOSSATOR__MILVUS__SHARED": "false",
            "GLOSSATOR__RUN__RUNNER": "plain",
            "GLOSSATOR__RUN__RETRY_DELAY_SECONDS": "0.05",
            **self.variables,
            **variables,
        }

    def run(self, *arguments: str, prefix: tuple[str, ...] = (), **variables: str) -> Outcome:
        begun = time.perf_counter()
        done = subprocess.run(
            [*prefix, sys.executable, str(ROOT / "glossator.py"), *arguments],
            env=self.environment(**variables),
            cwd=self.path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        return Outcome(done.returncode, done.stdout, done.stderr, time.perf_counter() - begun)

    def python(self, code: str, **variables: str) -> Outcome:
        """Run a program that has the repository on its path."""
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=self.environment(**variables),
            cwd=self.path,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        return Outcome(done.returncode, done.stdout, done.stderr, 0.0)

    def call(self, *arguments: str, **variables: str) -> Outcome:
        """Run a command in this process: the same door, without the seconds that a new process takes."""
        import glossator

        out, err = io.StringIO(), io.StringIO()
        begun = time.perf_counter()
        with (
            patch.dict(os.environ, self.environment(**variables), clear=True),
            patch.object(sys, "argv", ["glossator", *arguments]),
            redirect_stdout(out),
            redirect_stderr(err),
            pytest.raises(SystemExit) as end,
        ):
            glossator.main()
        return Outcome(int(end.value.code or 0), out.getvalue(), err.getvalue(), time.perf_counter() - begun)

    def published(self) -> tuple[dict[str, bytes], str]:
        """What readers get: the pointer's files, and the answer to a question."""
        flips = {file.name: file.read_bytes() for file in sorted((self.lake / "flips").iterdir())}
        found = self.call("search", "tide gauge firmware", "--mode", "bm25", "--json")
        assert found.code == 0, found.err
        hits = [(hit["passage"]["chunk_id"], hit["score"]) for hit in found.json["hits"]]
        assert hits
        return flips, json.dumps(hits)

    def tree(self) -> dict[str, int]:
        """All files of the lake but the disposable ones, with their sizes."""
        root = self.path / "data" / "lake"
        files = [path for path in root.rglob("*") if path.is_file()]
        return {
            str(path.relative_to(root)): path.stat().st_size
            for path in files
            if "state" not in path.relative_to(root).parts
        }


@pytest.fixture(scope="session")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home in which the sample corpus is published. Tests must leave it as it is."""
    home = Home(tmp_path_factory.mktemp("home"))
    shutil.copytree(CORPUS, home.docs)
    done = home.run("index", str(home.docs))
    assert done.code == 0, done.err
    return home


@pytest.fixture
def home(indexed: Home, tmp_path: Path) -> Home:
    """A copy of the published home, to be changed."""
    copy = Home(tmp_path / "home")
    shutil.copytree(indexed.path, copy.path)
    lake = Lake(copy.lake.parent, "default")
    for spec in list_sources(lake):
        record_source(lake, spec.model_copy(update={"root": str(copy.docs)}))
    return copy


@pytest.fixture
def empty(tmp_path: Path) -> Home:
    """A home in which nothing was ever indexed."""
    home = Home(tmp_path / "empty")
    home.path.mkdir()
    return home


@pytest.fixture
def document(home: Home) -> Callable[[str], Path]:
    """Write one more document into the home; return its path."""

    def write(text: str, name: str = "added.md") -> Path:
        path = home.docs / name
        path.write_text(text, encoding="utf-8")
        return path

    return write
