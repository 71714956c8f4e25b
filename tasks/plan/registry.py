"""The sources of a collection: each name has one recorded root, since deletes follow the listing of a root."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path, PurePath

from schemas.errors import PlanRefused, UsageError
from schemas.work import SourceSpec
from tasks.lake.lake import Corrupt, Lake, first_line


def source_name(root: str) -> str:
    """Return the default name of a root: its last path element, made plain."""
    name = re.sub(r"[^a-z0-9]+", "-", PurePath(root).name.lower()).strip("-")
    return name or "source"


def list_sources(lake: Lake) -> list[SourceSpec]:
    """Return the recorded sources by name."""
    return [_recorded(lake, key) for key in lake.storage.keys("sources")]


def _recorded(lake: Lake, key: str) -> SourceSpec:
    try:
        return SourceSpec.model_validate_json(lake.read_sealed(key))
    except ValueError as error:
        path = lake.storage.local(key)
        raise Corrupt(
            f"{path} is damaged ({first_line(error)})",
            hint=f"delete it and run `glossator index FOLDER --source {path.stem}` with the folder of that source",
        ) from error


def resolve_source(lake: Lake, root: str, name: str | None) -> SourceSpec:
    """Return the source for a folder, recorded or new (not recorded yet).

    Raises:
        UsageError: there is no such folder.
        PlanRefused: the name stands for another root, or another source has these files already.
    """
    path = Path(os.path.abspath(Path(root).expanduser()))  # `.`, `../docs` and `docs/` are one folder
    if str(path).encode("utf-8", "replace").decode() != str(path):
        raise UsageError(f"the name of the folder {str(path)!a} is not valid UTF-8", hint="rename it")
    if not root.strip():
        raise UsageError("the folder has an empty name", hint="name it, or leave it out to index the recorded sources")
    recorded = {spec.name: spec for spec in list_sources(lake)}
    for spec in recorded.values():
        if spec.root == str(path) and name in {None, spec.name}:
            return spec
    if not path.exists():
        raise UsageError(f"there is no folder {path}", hint="check the path")
    if not path.is_dir():
        raise UsageError(f"{path} is a file, not a folder", hint=f"index the folder that holds it: {path.parent}")
    spec = SourceSpec(name=name or source_name(str(path)), root=str(path))
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,63}", spec.name):
        raise UsageError(f"--source {spec.name!r}: use lower-case letters, digits, '.', '_' and '-'")
    if spec.name in recorded:
        raise PlanRefused(
            f"source {spec.name!r} of collection {lake.collection!r} has the root {recorded[spec.name].root}",
            hint=f"give {path} a name of its own: --source NAME",
        )
    _refuse_overlap(path, recorded.values())
    return spec


def _refuse_overlap(path: Path, recorded: Iterable[SourceSpec]) -> None:
    """Each file belongs to one source: it would be found twice, and deleted with the one that is removed."""
    place = path.resolve()
    for spec in recorded:
        if "://" in spec.root:
            continue
        root = Path(spec.root).resolve()
        if place == root:
            how, hint = "is the root of", f"run `glossator index {spec.root}`"
        elif place.is_relative_to(root):
            how, hint = "lies in the root of", f"run `glossator index {spec.root}`"
        elif root.is_relative_to(place):
            how, hint = "holds the root of", "name folders that do not lie in each other"
        else:
            continue
        raise PlanRefused(
            f"{path} {how} source {spec.name!r}{'' if place == root else f' ({spec.root})'}",
            hint=f"{hint}, or run `glossator source remove {spec.name}` first",
        )


def meanings(name: str, sources: Iterable[str]) -> list[tuple[str, str]]:
    """Return the (source, URI) that a person may mean who names a document by ``uri`` or by ``source/uri``."""
    return [
        (source, uri)
        for source in sorted(sources)
        for uri in dict.fromkeys((name, name.removeprefix(f"{source}/")))
        if uri
    ]


def record_source(lake: Lake, spec: SourceSpec) -> None:
    """Record the root of a source."""
    lake.write_record(f"sources/{spec.name}.json", spec)


def record_sources(lake: Lake, specs: Iterable[SourceSpec]) -> None:
    """Record the roots of several sources."""
    for spec in specs:
        record_source(lake, spec)


def forget_source(lake: Lake, name: str) -> None:
    """Remove the record of a source; nothing happens where there is none."""
    lake.storage.delete(f"sources/{name}.json")
