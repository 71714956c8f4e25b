"""One Prefect server for all tests of the group ``prefect``, which one worker runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.prefect_server import Server, running_server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("prefect")) as server:
        yield server
