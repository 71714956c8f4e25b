"""A place with a lake, where the command line is run as a person runs it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from query.snapshot_reader import SnapshotReader
from tasks.lake.lake import Lake
from tests.e2e.prefect_server import Server

ROOT = Path(__file__).parents[2]


def write_berths(docs: Path) -> None:
    """Write documents that keep a run busy for some seconds."""
    docs.mkdir()
    for number in range(80):
        text = "\n\n".join(f"# Berth {number}.{part}\n\n" + f"Dredging {number}. " * 60 for part in range(10))
        (docs / f"berth-{number}.md").write_text(text)


@dataclass(frozen=True)
class Home:
    """A place with a lake.

    Attributes:
        settings: variables of the environment.
    """

    path: Path
    server: Server | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def lake(self) -> Path:
        return self.path / "data" / "lake" / "default"

    def environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR", "LD_LIBRARY_PATH") if name in os.environ}
        api = {"PREFECT_API_URL": self.server.url} if self.server else {}
        return {
            **kept,
            **api,
            "HOME": str(self.path),
            "PYTHONPATH": str(ROOT),
            "GLOSSATOR_HOME": str(self.path),
            "GLOSSATOR__RUN__RETRY_DELAY_SECONDS": "0.05",
            **self.settings,
        }

    def start(self, *command: str) -> subprocess.CompletedProcess[str]:
        self.path.mkdir(exist_ok=True)
        return subprocess.run(
            [sys.executable, *command],
            env=self.environment(),
            cwd=self.path,
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )

    def index(self, *arguments: str) -> Any:
        done = self.start(str(ROOT / "glossator.py"), "index", *arguments, "--json")
        assert done.returncode == 0, done.stderr[-2_000:]
        assert done.stderr == ""
        return json.loads(done.stdout)

    def forget(self) -> None:
        """Take the pointer away: nothing is published, everything that was computed is there."""
        shutil.rmtree(self.lake / "flips")
        shutil.rmtree(self.lake / "copies")

    def chunks(self) -> list[str]:
        reader = SnapshotReader(Lake(self.lake.parent, "default"), self.snapshot_name())
        return [reader.chunk_id(row) for row in range(reader.size)]

    def snapshot_name(self) -> str:
        flip = Lake(self.lake.parent, "default").current_flip()
        assert flip is not None
        return flip.snapshot
