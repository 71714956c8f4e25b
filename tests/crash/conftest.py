"""What all tests of faults have in common."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.place import in_memory


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for the trials of a test."""
    with in_memory(tmp_path_factory.mktemp("crash")) as folder:
        yield folder
