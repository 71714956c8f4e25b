"""A run that goes on while a document is purged: what it could not erase again at its end, the next one does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import flows.index
from schemas.errors import TransientError
from tasks.lake.access import read_tombstones
from tasks.lake.lake import Lake
from tests.fixtures import lake_beside, make_corpus, run
from tests.purging import OTHERS, SECRET, erase, holding, stone


class Stopped(BaseException):
    """As KeyboardInterrupt, which would end the test run too."""


@pytest.mark.parametrize("how", [ValueError, Stopped, None])
def test_what_a_run_could_not_erase_again_hides_no_error_and_is_erased_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: type[BaseException] | None
) -> None:
    docs = make_corpus(tmp_path / "docs", OTHERS)
    run(docs)
    lake = lake_beside(docs)
    make_corpus(docs, OTHERS | {"secret.md": SECRET, "more.md": "# More\n\nMore of it.\n"})
    write = Lake.write_part
    asked: list[str] = []

    def refuse(*_: Any) -> None:
        asked.append("purge")
        raise TransientError("Milvus is away")

    def purge_first(self: Lake, ref: Any, table: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(Lake, "write_part", write)
            if ref.stage == "contextualize" and stone().doc_id not in read_tombstones(lake):
                erase(lake)
        written = write(self, ref, table)
        if ref.stage == "embed" and how:
            raise how("the run's own")
        return written

    with monkeypatch.context() as patch:
        patch.setattr(Lake, "write_part", purge_first)
        patch.setattr(flows.index, "purge", refuse)
        if how:
            with pytest.raises(how, match="the run's own"):
                run(docs)
        else:
            assert "Milvus is away" in " ".join(run(docs).warnings)
    assert len(asked) == (0 if how is Stopped else 1), "who is told to end waits for no lease"
    assert holding(lake) != []
    assert run(docs).warnings == ()
    assert holding(lake) == []
    assert list(lake.storage.keys("state/purge")) == []
