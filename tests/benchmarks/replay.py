"""Replay the real history of a corpus: index each revision incrementally, and compare with a clean build.

``python -m tests.benchmarks.replay BUNDLE [FOLDER] [--only GLOB] [--last N]`` prints a Markdown table. Vectors come
from a hash, so that only the pipeline counts; ids, rows and BM25 scores do not depend on the model.

*Tokens in changed paragraphs* is what an ideal system would embed: the paragraphs (blocks between blank lines) of a
revision that no document of the revision before holds. *Ratio* is what was embedded over that.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from flows.index import index
from flows.report import describe
from flows.runner import PlainRunner
from schemas.report import IndexReport
from schemas.snapshot import Snapshot
from tasks.embed.model import locate_model
from tasks.embed.tokenizer import open_tokenizer
from tasks.lake.lake import Lake
from tasks.plan.planner import PlanOptions, make_plan
from tasks.plan.registry import resolve_source
from tests.fixtures import differences, made, make_config, published

TOKENIZER = open_tokenizer(locate_model("hash:384"))


@dataclass(frozen=True, slots=True)
class Step:
    """One revision.

    Attributes:
        same: the incremental index has the id, the rows, the vectors and the BM25 bytes of a clean build.
        changed_tokens: tokens in changed paragraphs.
        embedded_tokens: tokens of the texts that were embedded.
    """

    number: int
    documents: int
    changed: int
    chunks: int
    embedded: int
    changed_tokens: int
    embedded_tokens: int
    seconds: float
    clean_seconds: float
    same: bool

    @property
    def ratio(self) -> float:
        """Tokens embedded over tokens in changed paragraphs."""
        return self.embedded_tokens / max(1, self.changed_tokens)


def run(lake: Lake, folder: Path) -> IndexReport:
    """Index a folder; a whole-sale rewrite of a corpus is what a replay is about, so deletions are allowed."""
    options = PlanOptions(allow_deletes=1_000_000)
    plan = make_plan(lake, make_config(), [resolve_source(lake, str(folder), "corpus")], options)
    return describe(lake, plan) if plan.nothing_to_do else index(PlainRunner(), plan, options, "replay")


def replay(bundle: Path, work: Path, folder: str = ".", only: str = "**/*.md", last: int = 0) -> Iterator[Step]:
    """Yield a step per revision, oldest first.

    Args:
        folder: of the repository, the root of the source.
        only: which of its files.
        last: this many of the newest revisions; 0 for all.
    """
    clone = work / "clone"
    _git("clone", "--quiet", str(bundle), str(clone))
    revisions = _git("-C", str(clone), "rev-list", "--reverse", "HEAD").split()
    source, lake = work / "corpus", Lake(work / "lake", "default")
    before: Snapshot | None = None
    paragraphs: set[str] = set()
    for number, revision in list(enumerate(revisions))[-last:]:
        _git("-C", str(clone), "checkout", "--quiet", revision)
        _mirror(clone / folder, source, only)
        begun = time.perf_counter()
        report = run(lake, source)
        seconds = time.perf_counter() - begun
        clean = Lake(work / f"clean-{number}", "default")
        begun = time.perf_counter()
        run(clean, source)
        clean_seconds = time.perf_counter() - begun
        now = published(lake)
        texts = _paragraphs(source)
        yield Step(
            number=number,
            documents=now.counts.documents,
            changed=report.documents.added + report.documents.changed + report.documents.renamed,
            chunks=now.counts.chunks,
            embedded=report.chunks_embedded,
            changed_tokens=sum(TOKENIZER.count(text) for text in texts - paragraphs),
            embedded_tokens=_embedded_tokens(lake, now, before),
            seconds=seconds,
            clean_seconds=clean_seconds,
            same=differences(made(lake), made(clean)) == [],
        )
        before, paragraphs = now, texts


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], check=True, capture_output=True, text=True).stdout


def _mirror(clone: Path, source: Path, only: str) -> None:
    """Make ``source`` hold what the clone holds now, touching nothing that is the same."""
    wanted = {path.relative_to(clone): path.read_bytes() for path in clone.glob(only) if path.is_file()}
    for path in [path for path in source.rglob("*") if path.is_file()]:
        if path.relative_to(source) not in wanted:
            path.unlink()
    for uri, data in wanted.items():
        target = source / uri
        if not target.exists() or target.read_bytes() != data:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)


def _paragraphs(source: Path) -> set[str]:
    texts = (path.read_text(encoding="utf-8") for path in sorted(source.rglob("*.md")))
    return {paragraph.strip() for text in texts for paragraph in text.split("\n\n")}


def _embedded_tokens(lake: Lake, now: Snapshot, before: Snapshot | None) -> int:
    known = set(_embedded(lake, before)) if before else set()
    return sum(TOKENIZER.count(text) for digest, text in _embedded(lake, now).items() if digest not in known)


def _embedded(lake: Lake, snapshot: Snapshot) -> dict[str, str]:
    texts: dict[str, str] = {}
    for ref in snapshot.parts["contextualize"]:
        table = lake.read_part("contextualize", ref.key, ["embedded_digest", "embedded"])
        texts.update(zip(table["embedded_digest"].to_pylist(), table["embedded"].to_pylist(), strict=True))
    return texts


def table(steps: list[Step]) -> str:
    """Return the steps as a Markdown table."""
    names = "revision, documents, changed, chunks, embedded, changed tokens, embedded tokens, ratio, s, clean s, same"
    head = f"| {names.replace(', ', ' | ')} |"
    rows = [
        f"| {step.number} | {step.documents} | {step.changed} | {step.chunks} | {step.embedded} "
        f"| {step.changed_tokens} | {step.embedded_tokens} | {step.ratio:.2f} | {step.seconds:.1f} "
        f"| {step.clean_seconds:.1f} | {'yes' if step.same else 'NO'} |"
        for step in steps
    ]
    return "\n".join([head, "|---" * 11 + "|", *rows])


def median_ratio(steps: list[Step]) -> float:
    """Return the median ratio of all revisions but the first, which embeds everything."""
    return statistics.median(step.ratio for step in steps[1:])


def main() -> None:
    """Print the table, and the median ratio of all revisions but the first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("folder", nargs="?", default=".")
    parser.add_argument("--only", default="**/*.md")
    parser.add_argument("--last", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        steps = list(replay(arguments.bundle, Path(work), arguments.folder, arguments.only, arguments.last))
    sys.stdout.write(f"{table(steps)}\n\nmedian ratio after the first: {median_ratio(steps):.2f}\n")


if __name__ == "__main__":
    main()
