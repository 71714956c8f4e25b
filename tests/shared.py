"""Real data beside the repository: too large to be committed, and under licences of its own.

Tests that read it are marked ``shared`` and are skipped where it is absent.
"""

from __future__ import annotations

import os
from pathlib import Path

SHARED = Path(os.environ.get("GLOSSATOR_SHARED", Path(__file__).parents[1] / "../shared/data")).resolve()
"""The folder of the data; ``GLOSSATOR_SHARED`` names another one."""
