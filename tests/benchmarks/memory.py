"""How much memory a first index takes as the corpus grows: peak of the command and of the Milvus server beside it.

``python -m tests.benchmarks.memory 10000 100000 35MB 200MB`` indexes corpora of so many small documents, and of one
text file of so many MB, each from the shell in a process of its own with vectors from a hash. It writes the results for
``docs/generate.py``. The memory is what nobody else has: resident pages without those of mapped files, which the
system takes back when it needs them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from tasks.publish.milvus_server import running_server

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "memory.json"
SETTINGS = ("--runner", "plain", "--set", "embed.model=hash:384", "--json")
WORDS = 20_000
PER_FOLDER = 1_000
PAUSE = 0.1
"""Seconds between two looks at the memory."""


@dataclass(frozen=True, slots=True)
class Peak:
    """What the first index of a corpus took.

    Attributes:
        command, server: peak of private resident memory, in MB.
    """

    corpus: str
    chunks: int
    seconds: float
    command: float
    server: float


def write_documents(folder: Path, documents: int, seed: int = 1) -> None:
    """Write Markdown documents of two sections, about 1.2 KB each, none equal to another."""
    rng, words = _words(seed)
    for number in range(documents):
        place = folder / f"{number // PER_FOLDER:03}"
        place.mkdir(parents=True, exist_ok=True)
        sections = (" ".join(rng.choices(words, k=75)) for _ in range(2))
        text = f"# Document {number}\n\n" + "\n\n".join(f"## Part\n\n{section}." for section in sections)
        (place / f"{number}.md").write_text(text)


def write_text(folder: Path, megabytes: int, seed: int = 1) -> None:
    """Write one text file of paragraphs of 90 words."""
    rng, words = _words(seed)
    folder.mkdir(parents=True)
    with (folder / "large.txt").open("w") as file:
        while file.tell() < megabytes * 2**20:
            file.write(" ".join(rng.choices(words, k=90)) + ".\n\n")


def _words(seed: int) -> tuple[random.Random, list[str]]:
    rng = random.Random(seed)
    return rng, [f"w{rng.randrange(10**6):06}" for _ in range(WORDS)]


def measure(corpus: str, folder: Path) -> Peak:
    """Index a corpus and watch.

    Args:
        corpus: a number of documents, or "NMB" for one file.
    """
    if corpus.endswith("MB"):
        title = f"one text file of {corpus.removesuffix('MB')} MB"
        write_text(folder / "docs", int(corpus.removesuffix("MB")))
    else:
        title = f"{int(corpus):,} documents of 1.2 KB"
        write_documents(folder / "docs", int(corpus))
    milvus = folder / "data" / "lake" / "default" / "milvus.db"
    out = folder / "out"
    begun = time.perf_counter()
    with out.open("w") as stdout:
        command = psutil.Popen(
            [sys.executable, str(ROOT / "glossator.py"), "index", str(folder / "docs"), *SETTINGS],
            env={**os.environ, "GLOSSATOR_HOME": str(folder)},
            cwd=ROOT,
            stdout=stdout,
        )
        own = served = 0.0
        while command.poll() is None:
            own = max(own, _private(command.pid))
            server = running_server(milvus)
            served = max(served, _private(server.pid) if server else 0.0)
            time.sleep(PAUSE)
    seconds = time.perf_counter() - begun
    if command.returncode:
        raise subprocess.CalledProcessError(command.returncode, "glossator index")
    report = json.loads(out.read_text())
    while running_server(milvus) is not None:
        time.sleep(0.5)
    return Peak(title, report["chunks"], round(seconds), round(own), round(served))


def _private(pid: int) -> float:
    try:
        memory = psutil.Process(pid).memory_info()
    except psutil.NoSuchProcess:
        return 0.0
    return (memory.rss - memory.shared) / 2**20


def main() -> None:
    """Measure, print and record."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("corpora", nargs="+", help="numbers of documents, or sizes of one file: 200MB")
    peaks = []
    for corpus in parser.parse_args().corpora:
        with tempfile.TemporaryDirectory() as folder:
            peaks.append(asdict(measure(corpus, Path(folder))))
        sys.stdout.write(json.dumps(peaks[-1]) + "\n")
        sys.stdout.flush()
    RESULTS.write_text(json.dumps(peaks, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
