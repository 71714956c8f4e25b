"""Who runs this, for flips and pins."""

from __future__ import annotations

import getpass
import os


def author() -> str:
    """Return the name of the user."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # A container may run as a user without a name.
        return f"uid {os.getuid()}"
