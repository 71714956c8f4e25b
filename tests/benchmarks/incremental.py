"""What a change costs, from the shell: first index, no-op, touch, edit, rename, rollback, and a whole new revision.

``python -m tests.benchmarks.incremental BUNDLE OLD NEW`` checks two revisions of a git bundle out and prints a Markdown
table. Wall seconds include the start of the process. Vectors come from a hash, so that only the pipeline counts.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas.errors import ExitCode
from tasks.publish.milvus_server import running_server

ROOT = Path(__file__).parents[2]
INDEX = ("index", "--runner", "plain", "--set", "embed.model=hash:384", "--json")


@dataclass(frozen=True, slots=True)
class Call:
    """One command.

    Attributes:
        seconds: of wall time.
        report: what it printed as JSON; empty where it failed.
    """

    what: str
    seconds: float
    code: int
    report: dict[str, Any]

    @property
    def embedded(self) -> str:
        """Chunks that were embedded; "" for a command that indexes nothing."""
        return str(self.report.get("chunks_embedded", ""))


class Home:
    """A home of its own for the command line."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.docs = folder / "docs"
        self._milvus = folder / "data" / "lake" / "default" / "milvus.db"
        self._environ = {**os.environ, "GLOSSATOR_HOME": str(folder)}

    def call(self, what: str, *arguments: str) -> Call:
        """Run a command and take its time."""
        command = [sys.executable, str(ROOT / "glossator.py"), *arguments]
        begun = time.perf_counter()
        done = subprocess.run(command, env=self._environ, cwd=ROOT, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - begun
        return Call(what, seconds, done.returncode, json.loads(done.stdout) if done.stdout.startswith("{") else {})

    def settle(self) -> None:
        """Wait until the Milvus server of this home has gone: it stays ten seconds after its last client."""
        while running_server(self._milvus) is not None:
            time.sleep(0.5)

    def index(self, what: str) -> Call:
        """Index the documents."""
        return self.call(what, INDEX[0], str(self.docs), *INDEX[1:])


def measure(bundle: Path, old: str, new: str, work: Path) -> Iterator[Call]:
    """Yield the calls, in order."""
    clone = work / "clone"
    _git("clone", "--quiet", str(bundle), str(clone))
    home, fresh = Home(work / "home"), Home(work / "fresh")
    _checkout(clone, old, home.docs)
    yield home.index("first index of old")
    yield home.index("nothing to do")
    for path in home.docs.rglob("*.md"):
        os.utime(path)
    yield home.index("all files touched")
    edited = max(home.docs.rglob("*.md"), key=lambda path: path.stat().st_size)
    edited.write_text(_with_changed_paragraph(edited.read_text(encoding="utf-8")), encoding="utf-8")
    yield home.index("one paragraph changed")
    sizes = {path: len(list(path.rglob("*.md"))) for path in home.docs.rglob("*") if path.is_dir()}
    folder = min((path for path, files in sizes.items() if files >= 50), key=lambda path: (sizes[path], path))
    folder.rename(folder.with_name("renamed"))
    yield home.index(f"a folder of {sizes[folder]} files renamed")
    yield home.call("rollback", "rollback", "--reason", "benchmark", "--json")
    yield home.call("resume", "resume", "--json")
    shutil.rmtree(home.docs)
    home.docs.mkdir()
    yield home.index("the folder is empty")
    _checkout(clone, old, home.docs)
    yield home.index("back to old")
    _checkout(clone, new, home.docs)
    yield home.index("update from old to new")
    _checkout(clone, new, fresh.docs)
    yield fresh.index("first index of new")
    yield home.index("nothing to do")
    home.settle()
    fresh.settle()


def _with_changed_paragraph(text: str) -> str:
    paragraphs = text.split("\n\n")
    middle = next(index for index in range(len(paragraphs) // 2, len(paragraphs)) if paragraphs[index][:1].isalpha())
    paragraphs[middle] += " This sentence is new."
    return "\n\n".join(paragraphs)


def _checkout(clone: Path, revision: str, folder: Path) -> None:
    """Make a folder hold a revision. Files that did not change stay as they are, with their times."""
    _git("-C", str(clone), "checkout", "--quiet", revision)
    wanted = {path.relative_to(clone): path for path in clone.rglob("*.md")}
    for path in [path for path in folder.rglob("*.md") if path.relative_to(folder) not in wanted]:
        path.unlink()
    for name, path in wanted.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or target.read_bytes() != path.read_bytes():
            target.write_bytes(path.read_bytes())


def _git(*arguments: str) -> None:
    subprocess.run(["git", *arguments], check=True, capture_output=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("old")
    parser.add_argument("new")
    arguments = parser.parse_args()
    sys.stdout.write("| | wall s | exit | chunks embedded | documents |\n|---|---|---|---|---|\n")
    with tempfile.TemporaryDirectory() as work:
        for call in measure(arguments.bundle, arguments.old, arguments.new, Path(work)):
            counts = call.report.get("documents", {})
            changes = ", ".join(f"{number} {name}" for name, number in counts.items() if number)
            code = ExitCode(call.code).name.lower()
            sys.stdout.write(f"| {call.what} | {call.seconds:.2f} | {code} | {call.embedded} | {changes} |\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
