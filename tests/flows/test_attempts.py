"""The plain runner tries a step once more than `run.retries` when its error may pass, once otherwise, and nobody else
tries besides. (Of the Prefect runner: tests/e2e/test_prefect_run.py and tests/e2e/test_serving.py.)"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flows.runner import PlainRunner
from schemas.errors import GlossatorError, PermanentError, TransientError
from tasks.load.step import LOAD
from tasks.publish.stores import CATALOG
from tests.fixtures import make_corpus, plan_of

ERRORS = (TransientError("the disk is busy"), PermanentError("never"), GlossatorError("broken"))


@pytest.mark.parametrize("retries", [0, 1, 3])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("kind", ["stage", "store"])
def test_a_step_is_tried_once_more_than_retries(tmp_path: Path, retries: int, error: GlossatorError, kind: str) -> None:
    docs = make_corpus(tmp_path / "docs", {"a.md": "# A\n\nThe gauge is read daily.\n"})
    plan = plan_of(docs, f"run.retries={retries}", "run.retry_delay_seconds=0")
    tried: list[int] = []

    def fail(*_: Any) -> Any:
        tried.append(1)
        raise error

    with pytest.raises(type(error), match=str(error)):
        if kind == "stage":
            PlainRunner().stage(replace(LOAD, compute=fail), plan.workspace, [plan.jobs])
        else:
            PlainRunner().whole(replace(CATALOG, compute=fail), plan.workspace, ())
    assert len(tried) == (retries + 1 if isinstance(error, TransientError) else 1)
