"""What all commands share: where things lie, the usual options, and how results are printed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console

from schemas.config import Config, read_config
from schemas.errors import UsageError
from tasks.lake.home import Home, find_home

if TYPE_CHECKING:
    from tasks.lake.lake import Lake

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

CollectionOption = Annotated[str | None, typer.Option("--collection", "-c", help="Collection; default: default.")]
ConfigOption = Annotated[Path | None, typer.Option("--config", help="Configuration file; default: glossator.toml.")]
SetOption = Annotated[list[str] | None, typer.Option("--set", help="Set one value: section.key=value. Repeatable.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
ModeOption = Annotated[Literal["hybrid", "dense", "bm25"], typer.Option("--mode", help="Sides to search.")]
AsOption = Annotated[
    str | None,
    typer.Option("--as", metavar="GROUP[,GROUP]", help="See what a member of these groups would; default: everything."),
]


class Door:
    """Places and config of one call."""

    def __init__(self, collection: str | None, config: Path | None, assignments: Sequence[str] | None) -> None:
        self.home: Home = find_home()
        sets = list(assignments or [])
        if collection is not None:
            sets.append(f"collection={_collection(collection)}")
        self.config: Config = read_config(file=config or self.home.config, assignments=sets)

    def lake(self) -> Lake:
        """Open the lake of the collection."""
        from tasks.lake.lake import Lake

        return Lake(self.home.lake, self.config.collection)


def _collection(name: str) -> str:
    """Return a collection's name as the value of a setting: quoted, so that `true` stays a name."""
    from pydantic import ValidationError

    try:
        return dumps(Config(collection=name).collection)
    except ValidationError as error:
        raise UsageError(
            f"--collection {name!r} is not a name", hint="use lower-case letters, digits and '_', a letter first"
        ) from error


def asked(question: str, command: str) -> str:
    """Return a question as text: what the shell passed and is not UTF-8 is replaced.

    Raises:
        UsageError: it is empty.
    """
    text = question.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if not text.strip():
        raise UsageError("the question is empty", hint=f'say what to look for: `glossator {command} "WORDS"`')
    return text


def groups_of(member: str | None) -> tuple[str, ...] | None:
    """Return the groups that ``--as`` names; None without it, and nobody's groups for an empty one."""
    if member is None:
        return None
    return tuple(sorted({" ".join(name.split()) for name in member.split(",")} - {""}))


def print_json(value: Any) -> None:
    """Print a pydantic model, a dataclass or plain data as JSON."""
    from pydantic import TypeAdapter

    sys.stdout.write(TypeAdapter(Any).dump_json(value, indent=2, fallback=str).decode() + "\n")
