"""The sources of a collection: each name has one recorded root, since deletes follow the listing of a root."""

from __future__ import annotations

import os
import re
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
        return SourceSpec.model_validate_json(lake.storage.read(key))
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
        PlanRefused: the name stands for another root.
    """
    path = Path(os.path.abspath(Path(root).expanduser()))  # `.`, `../docs` and `docs/` are one folder
    try:
        place = os.fsencode(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            "the folder's name is not valid UTF-8", hint="rename it, or link to it by another name"
        ) from error
    recorded = {spec.name: spec for spec in list_sources(lake)}
    for spec in recorded.values():
        if spec.root == place and name in {None, spec.name}:
            return spec
    if not path.exists():
        raise UsageError(f"there is no folder {path}", hint="check the path")
    if not path.is_dir():
        raise UsageError(f"{path} is a file, not a folder", hint=f"index the folder that holds it: {path.parent}")
    spec = SourceSpec(name=name or source_name(place), root=place)
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,63}", spec.name):
        raise UsageError(f"--source {spec.name!r}: use lower-case letters, digits, '.', '_' and '-'")
    if spec.name in recorded:
        raise PlanRefused(
            f"source {spec.name!r} of collection {lake.collection!r} has the root {recorded[spec.name].root}",
            hint=f"give {path} a name of its own: --source NAME",
        )
    return spec


def record_source(lake: Lake, spec: SourceSpec) -> None:
    """Record the root of a source."""
    lake.storage.write(f"sources/{spec.name}.json", spec.model_dump_json(indent=1).encode())
