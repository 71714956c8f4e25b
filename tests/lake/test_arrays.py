"""Arrays are mapped by several threads, one after the other."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tasks.lake.arrays
from tasks.lake.arrays import map_array


def test_headers_are_parsed_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen once in a hundred publishes with readers beside: SystemError, AST constructor recursion depth mismatch."""
    path = tmp_path / "vectors.npy"
    np.save(path, np.arange(6, dtype=np.float32).reshape(2, 3))
    load, inside, most = np.load, [0], [0]

    def slow(*arguments: Any, **options: Any) -> Any:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(0.005)
        inside[0] -= 1
        return load(*arguments, **options)

    monkeypatch.setattr(tasks.lake.arrays.np, "load", slow)
    with ThreadPoolExecutor(4) as pool:
        arrays = list(pool.map(lambda _: map_array(path), range(20)))
    assert most == [1]
    assert all(array.shape == (2, 3) and array[1, 2] == 5.0 for array in arrays)
