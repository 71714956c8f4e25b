"""Prefect's settings for runs from the command line. Does not import Prefect: it reads its settings when imported.

Without a server (``PREFECT_API_URL``) a run has a temporary one (``prefect_server.py``). Its files then lie beside
the lake, and it is told to be quiet and to call nobody.
"""

from __future__ import annotations

import os
from pathlib import Path

HEARTBEAT_SECONDS = 30
"""Between two signs of life of a flow run; Prefect allows no less. Its default of 180 is too seldom to notice much."""
TAG = "glossator"
"""Of all flow runs that give a sign of life that often (``deployments.zombies``)."""


def prepare_prefect(home: Path) -> None:
    """Set defaults in the environment; what the user has set stays.

    Args:
        home: Prefect's own folder; made here, since Prefect makes no parents and its server then dies.
    """
    home.mkdir(parents=True, exist_ok=True)
    defaults = {
        "DO_NOT_TRACK": "1",
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(HEARTBEAT_SECONDS),
        "PREFECT_HOME": str(home),
        # What fails reaches the command line as one exception; GLOSSATOR_DEBUG shows Prefect's own story too.
        "PREFECT_LOGGING_LEVEL": "DEBUG" if os.environ.get("GLOSSATOR_DEBUG") else "CRITICAL",
        "PREFECT_LOGGING_TO_API_ENABLED": "false",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
    }
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
