"""A room for one operation: a corpus, a lake as it is before the operation, and the lake that is worked on."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import psutil

from schemas.config import Config, read_config
from tasks.lake.lake import Lake
from tasks.publish.milvus import local_milvus
from tasks.publish.milvus_server import running_server

SETTINGS = {
    "GLOSSATOR__EMBED__MODEL": "hash:384",
    "GLOSSATOR__MILVUS__SHARED": "false",
    "GLOSSATOR__RUN__RUNNER": "plain",
    "GLOSSATOR__SEARCH__BRUTE_FORCE_ROWS": "0",  # Readers shall ask Milvus.
    "GLOSSATOR__RUN__RETRY_DELAY_SECONDS": "0.01",
    "NO_COLOR": "1",
}


@dataclass(frozen=True, slots=True)
class Said:
    """What a command said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class Room:
    """Where an operation is tried again and again; the lake has the same place each time, as sources record theirs."""

    path: Path

    @property
    def home(self) -> Path:
        return self.path / "home"

    @property
    def docs(self) -> Path:
        return self.path / "docs"

    @property
    def more(self) -> Path:
        return self.path / "more"

    @property
    def root(self) -> Path:
        """Folder of the collection."""
        return self.home / "data" / "lake" / "default"

    @property
    def lake(self) -> Lake:
        return Lake(self.root.parent, "default")

    @property
    def before(self) -> Path:
        return self.path / "before"

    @property
    def log(self) -> Path:
        return self.path / "log"

    def config(self, settings: Mapping[str, str]) -> Config:
        return read_config(environ={**SETTINGS, **settings})

    def keep(self) -> None:
        """Keep the lake as it is now, as what every trial begins with."""
        self.stop()
        self.root.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self.before, ignore_errors=True)
        shutil.copytree(self.root, self.before, symlinks=True)

    def reset(self) -> None:
        """Make the lake again what it was when it was kept."""
        self.stop()
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self.before, self.root, symlinks=True)

    def stop(self) -> None:
        """End the Milvus server that a command of this room has started: its folder is about to be replaced."""
        server = running_server(local_milvus(self.lake))
        if server is not None:
            process = psutil.Process(server.pid)
            process.kill()
            process.wait()

    def command(self, *arguments: str, settings: Mapping[str, str] | None = None) -> Said:
        """Run the command line in this process, which is a child that was forked for it.

        Args:
            settings: beside those that the process began with.
        """
        import glossator

        os.environ.update({**(settings or {}), "GLOSSATOR_HOME": str(self.home)})
        sys.argv = ["glossator", *arguments]
        out, err = StringIO(), StringIO()
        try:
            with redirect_stdout(out), redirect_stderr(err):
                glossator.main()
        except SystemExit as end:
            return Said(int(end.code or 0), out.getvalue(), err.getvalue())
        raise AssertionError("the command line did not end")
