"""Where things lie: the home folder, the lake and the configuration file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from schemas.config import CONFIG_FILE


@dataclass(frozen=True, slots=True)
class Home:
    """Resolved places.

    Attributes:
        root: ``$GLOSSATOR_HOME``, else the current folder.
        lake: ``$GLOSSATOR_LAKE``, else ``data/lake`` in the home.
        config: ``glossator.toml`` in the home, None where there is none.
    """

    root: Path
    lake: Path
    config: Path | None


def find_home(environ: Mapping[str, str] | None = None) -> Home:
    """Resolve the places from the environment."""
    variables = os.environ if environ is None else environ
    root = Path(variables.get("GLOSSATOR_HOME") or ".").expanduser().absolute()
    lake = Path(variables.get("GLOSSATOR_LAKE") or root / "data" / "lake").expanduser().absolute()
    config = root / CONFIG_FILE
    return Home(root=root, lake=lake, config=config if config.is_file() else None)
