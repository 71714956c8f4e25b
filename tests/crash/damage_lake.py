"""The lake that is damaged: as many kinds of files as there are, and what can be done to one."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from schemas.snapshot import Snapshot
from tests.crash.operations import paragraph, write_corpus
from tests.crash.room import Room

HIDDEN = "north/gauge-3.md"
"""The kept snapshot shows it to the crew, today's access does not."""
PURGED = "north/gauge-7.md"
CREW, HARBOUR = "crew", "harbour"


def prepare(room: Room) -> None:
    """Publish until there are two sources, a pin, a purged document, a quarantined one, and a right taken away."""

    def run(*arguments: str, code: int = 0) -> None:
        said = room.command(*arguments)
        assert said.code == code, (arguments, said)

    write_corpus(room)
    room.more.mkdir()
    for number in (20, 21):
        (room.more / f"gauge-{number}.md").write_text(paragraph(number))
    for path in (*room.docs.rglob("*.md"), *room.more.rglob("*.md")):
        path.with_name(f"{path.name}.groups").write_text(f"{CREW}\n{HARBOUR}\n")
    (room.docs / "broken.pdf").write_bytes(b"%PDF-1.4 and nothing else")
    run("index", str(room.docs), code=3)
    run("index", str(room.more))
    run("purge", PURGED, "--source", "docs", "--reason", "a test", "--yes")
    run("pin", "current", "--reason", "a test")
    (room.docs / f"{HIDDEN}.groups").write_text(f"{HARBOUR}\n")
    run("index", code=3)
    write_corpus(room, 1)
    run("index", code=3)


def edit(room: Room) -> None:
    """Change a document, as somebody does who knows nothing of the damage."""
    (room.docs / "gauge-0.md").write_text(paragraph(0, 5))


# --- kinds of files -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """A kind of file of the lake.

    Attributes:
        find: all files (or folders) of it, relative to the lake.
        disposable: a run without it is as good: the doctor need not mention it.
        unseen: damage inside it may change the order of what a reader finds, until the doctor has looked.
        foreign: a file of Milvus, which has no checksums: of damage that changes neither answers nor rows nobody tells.
        silent: damages that are like what a command does, or that take nothing from anybody: nobody tells of them.
    """

    name: str
    title: str
    find: Callable[[Room], Sequence[str]]
    disposable: bool = False
    unseen: bool = False
    lost_only: bool = False
    silent: tuple[str, ...] = ()
    foreign: bool = False


def current(room: Room) -> Snapshot:
    """Return the snapshot that readers use in the whole lake."""
    snapshot = room.lake.current_snapshot()
    assert snapshot is not None
    return snapshot


def kept(room: Room) -> Snapshot:
    """Return the pinned snapshot, which is not current."""
    (name,) = (path.stem for path in (room.root / "pins").iterdir())
    return room.lake.read_snapshot(name)


def _glob(pattern: str, room: Room) -> list[str]:
    return sorted(path.relative_to(room.root).as_posix() for path in room.root.glob(pattern))


def _parts(stage: str, room: Room) -> list[str]:
    return [f"parts/{stage}/{ref.key}.parquet" for ref in current(room).parts[stage]]  # type: ignore[index]


def _passages(name: str, room: Room) -> list[str]:
    return [f"passages/{ref.key}{name}" for ref in current(room).parts["passages"]]


def _old(room: Room) -> list[str]:
    """Files that the kept snapshot has and the current one has not."""
    old, new = kept(room), current(room)
    theirs = {f"bm25/{old.bm25}", f"catalog/{old.catalog}", *(f"passages/{ref.key}" for ref in old.parts["passages"])}
    ours = {f"passages/{ref.key}" for ref in new.parts["passages"]}
    return [path for folder in sorted(theirs - ours) for path in _glob(f"{folder}/*", room)]


def _old_parts(room: Room) -> list[str]:
    old = {(stage, ref.key) for stage, refs in kept(room).parts.items() if stage != "passages" for ref in refs}
    new = {(stage, ref.key) for stage, refs in current(room).parts.items() for ref in refs}
    return [f"parts/{stage}/{key}.parquet" for stage, key in sorted(old - new)]


def _collection(pattern: str, room: Room) -> list[str]:
    return _glob(f"milvus.db/collections/{current(room).vectors.collection}/{pattern}", room)


def _newest_flip(room: Room) -> list[str]:
    flip = room.lake.current_flip()
    assert flip is not None
    return [f"flips/{flip.number}.json"]


def _older_flips(room: Room) -> list[str]:
    return sorted(set(_glob("flips/[0-9]*.json", room)) - set(_newest_flip(room)))


_Find = Callable[[Room], Sequence[str]]


def _file(
    name: str,
    title: str,
    find: _Find,
    *,
    disposable: bool = False,
    unseen: bool = False,
    silent: tuple[str, ...] = (),
    foreign: bool = False,
) -> Kind:
    return Kind(name, title, find, disposable, unseen, silent=silent, foreign=foreign)


def _lost(name: str, title: str, find: _Find, *, disposable: bool = False) -> Kind:
    return Kind(name, title, find, disposable, lost_only=True)


STAGES = ("load", "chunk", "contextualize", "embed", "tokens")
KINDS = {
    kind.name: kind
    for kind in (
        *(_file(f"part-{stage}", f"a part of the stage {stage}", partial(_parts, stage)) for stage in STAGES),
        _file("part-kept", "a part that only a kept snapshot had (lost: told)", _old_parts, silent=("lost",)),
        *(
            _file(f"passages-{name.partition('.')[0]}", f"passages/*/{name}", partial(_passages, f"/{name}"))
            for name in (
                "documents.arrow",
                "chunks.arrow",
                "parents.arrow",
                "vectors.npy",
                "ref.json",
                "manifest.json",
            )
        ),
        *(
            _file(
                f"catalog-{name.partition('.')[0]}",
                f"catalog/*/{name}",
                lambda room, name=name: [f"catalog/{current(room).catalog}/{name}"],  # type: ignore[misc]
            )
            for name in ("documents.arrow", "chunks.arrow", "manifest.json")
        ),
        *(
            _file(
                f"bm25-{name.partition('.')[0]}",
                f"bm25/*/{name}",
                lambda room, name=name: [f"bm25/{current(room).bm25}/{name}"],  # type: ignore[misc]
            )
            for name in (
                "data.csc.index.npy",
                "indices.csc.index.npy",
                "indptr.csc.index.npy",
                "params.index.json",
                "vocabulary.arrow",
                "settings.json",
                "manifest.json",
            )
        ),
        _file("kept-files", "any file of the stores of a kept snapshot", _old),
        _file("snapshot", "the file of the current snapshot", lambda room: [f"snapshots/{current(room).name}.json"]),
        _file("snapshot-kept", "the file of a kept snapshot", lambda room: [f"snapshots/{kept(room).name}.json"]),
        _file("flip", "the newest flip", _newest_flip),
        _file("flip-older", "an older flip (lost: only the history lacks it)", _older_flips, silent=("lost",)),
        _file("pin", "a pin (lost: as if unpinned)", partial(_glob, "pins/*.json"), silent=("lost",)),
        _file("source", "the record of a source", partial(_glob, "sources/*.json")),
        _file("groups", "access/groups.json", lambda room: ["access/groups.json"]),
        _file("tombstones", "access/tombstones.json", lambda room: ["access/tombstones.json"]),
        _file("quarantine", "the quarantine", lambda room: ["state/failures.json"], disposable=True),
        _file("hints", "version hints", partial(_glob, "state/hints/*"), disposable=True),
        _file("plan", "a plan", partial(_glob, "state/plans/*"), disposable=True),
        _file("newest", "hints of newest parts", partial(_glob, "state/newest/*/*"), disposable=True),
        _file("receipt", "receipts of vectors", partial(_glob, "state/vectors/*"), disposable=True),
        _file("model", "the stamp of the model", partial(_glob, "state/models/*"), disposable=True),
        _file("milvus-manifest", "Milvus Lite: manifest", partial(_collection, "manifest.json"), foreign=True),
        _file("milvus-previous", "Milvus Lite: the manifest before", partial(_collection, "manifest.json.prev"),
              disposable=True),
        _file("milvus-schema", "Milvus Lite: schema", partial(_collection, "schema.json"), foreign=True),
        _file("milvus-data", "Milvus Lite: rows", partial(_collection, "**/data/*"), unseen=True, foreign=True),
        _file("milvus-delta", "Milvus Lite: deletions", partial(_collection, "**/delta/*"), unseen=True, foreign=True),
        _file("milvus-index", "Milvus Lite: vector index", partial(_collection, "**/indexes/*"), unseen=True,
              foreign=True),
        _lost("folder-passages", "a whole folder of passages", partial(_passages, "")),
        _lost("folder-catalog", "the whole folder of the catalog", lambda room: [f"catalog/{current(room).catalog}"]),
        _lost("folder-bm25", "the whole folder of BM25", lambda room: [f"bm25/{current(room).bm25}"]),
        _lost("folder-milvus", "the whole folder of Milvus Lite", lambda room: ["milvus.db"]),
        _lost("folder-collection", "a whole collection of Milvus Lite", partial(_collection, "")),
        _lost("folder-access", "the whole folder of today's access", lambda room: ["access"]),
        _lost("folder-state", "the whole folder state/", lambda room: ["state"], disposable=True),
    )
}  # fmt: skip


# --- what is done to one ------------------------------------------------------------------------------------------


def _lose(path: Path, rng: random.Random) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def _halve(path: Path, rng: random.Random) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _empty(path: Path, rng: random.Random) -> None:
    path.write_bytes(b"")


def _flip_bit(path: Path, rng: random.Random, place: float | None = None) -> None:
    data = bytearray(path.read_bytes())
    at = rng.randrange(len(data)) if place is None else int(len(data) * place)
    data[at] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def _zero(path: Path, rng: random.Random) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def _behead(path: Path, rng: random.Random) -> None:
    """Leave what a write that was cut off leaves of a Parquet or Arrow file: no footer, and zeros in its place."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - 64] + bytes(64))


DAMAGES: dict[str, Callable[[Path, random.Random], None]] = {
    "lost": _lose,
    "cut in half": _halve,
    "emptied": _empty,
    "a bit flipped in the middle": partial(_flip_bit, place=0.5),
    "a bit flipped": _flip_bit,
    "another bit flipped": _flip_bit,
    "zeros of equal size": _zero,
    "written without its end": _behead,
}


def damages_of(kind: Kind) -> tuple[str, ...]:
    """Return what can be done to a kind of file."""
    return ("lost",) if kind.lost_only else tuple(DAMAGES)


def harm(room: Room, kind: Kind, damage: str, seed: int) -> str:
    """Damage a file; return which, relative to the lake."""
    rng = random.Random(f"{seed} {kind.name} {damage}")
    path = rng.choice(list(kind.find(room)))
    DAMAGES[damage](room.root / path, rng)
    return path
