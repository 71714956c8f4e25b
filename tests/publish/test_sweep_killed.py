"""A sweep may be killed anywhere: every retained snapshot is whole, and the next sweep finishes the work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tasks.lake import storage
from tasks.lake.storage import LocalStorage
from tasks.publish.milvus import MilvusStore
from tasks.publish.sweep import SweepPolicy, sweep
from tests.generations import NOW, Generations, generations

BATCHES = SweepPolicy(grace=NOW, passages=NOW, parts=NOW, records=NOW, temporary=NOW, batch=2)


class Killed(BaseException):
    """As a signal would end it: nothing may catch it."""


@contextmanager
def killed_at(step: int | str) -> Iterator[list[str]]:
    """Raise instead of the change ``step`` (a number from 1, or the first of a name); give the changes made."""
    made: list[str] = []
    with pytest.MonkeyPatch.context() as patch:

        def deadly(name: str, change: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **keywords: Any) -> Any:
                if step in (len(made) + 1, name):
                    raise Killed(name)
                made.append(name)
                return change(*arguments, **keywords)

            return call

        for kind, names in ((LocalStorage, ("write", "delete", "delete_folder")), (MilvusStore, ("delete", "drop"))):
            for name in names:
                patch.setattr(kind, name, deadly(f"{kind.__name__}.{name}", getattr(kind, name)))
        # Between a folder's manifest and its files.
        patch.setattr(storage.shutil, "rmtree", deadly("rmtree", storage.shutil.rmtree))
        yield made


def clean(collection: Generations, *, full: bool = False) -> None:
    sweep(collection.lake, collection.config.milvus, lambda: True, policy=BATCHES, full=full)


def test_a_sweep_killed_at_any_step_harms_no_retained_snapshot(tmp_path: Path) -> None:
    collection = Generations(tmp_path)
    generation = 0
    for generation in range(2):
        collection.publish(generation)
    steps = 0
    ended = False
    while not ended:
        steps += 1
        generation += 1
        collection.publish(generation)
        with killed_at(steps) as made:
            try:
                clean(collection)
                ended = True
            except Killed:
                assert len(made) == steps - 1
        assert collection.ailments() == [], f"killed at step {steps}, after {made[-1:]}"
        assert generations(collection.search()) == {generation}
        if steps % 4 == 0:  # Otherwise the next one finds what this one left, on top of its own.
            clean(collection)
    kinds = {"LocalStorage.write", "LocalStorage.delete", "LocalStorage.delete_folder", "rmtree", "MilvusStore.delete"}
    assert kinds <= set(made)
    # Whatever was left half done is gone after one sweep that is let be.
    retained = collection.flip().retained
    clean(collection, full=True)
    assert collection.rows() == set().union(*(collection.ids(name) for name in retained))
    assert sorted(collection.lake.snapshot_names()) == sorted(retained)
    storage_of = collection.lake.storage
    assert list(storage_of.keys("withdrawn")) == []
    for folder in ("catalog", "bm25", "passages"):
        assert len(list(storage_of.keys(folder))) == len(retained)
        for key in storage_of.keys(folder):
            collection.lake.open_folder(key, verify=True)


def test_documents_that_come_back_after_a_killed_sweep_are_whole(tmp_path: Path) -> None:
    collection = Generations(tmp_path)
    for step in (2, 4, 5, 6, 8):
        first = collection.publish(10 * step)
        for later in (1, 2):
            collection.publish(10 * step + later)
        with killed_at(step), pytest.raises(Killed):
            clean(collection, full=True)
        # Half of it is deleted; now the documents of the first generation are there again.
        again = collection.publish(10 * step)
        assert again.id == first.id
        assert generations(collection.search()) == {10 * step}
        assert collection.ailments() == []
        clean(collection, full=True)
        assert generations(collection.search()) == {10 * step}
        assert collection.ailments() == []


def test_before_the_first_row_goes_its_snapshot_and_its_receipt_are_gone(tmp_path: Path) -> None:
    collection = Generations(tmp_path)
    names = [collection.publish(generation).name for generation in range(3)]
    catalog = collection.lake.read_snapshot(names[0]).catalog
    rows = collection.rows()
    with killed_at("MilvusStore.delete"), pytest.raises(Killed):
        clean(collection)
    assert collection.rows() == rows
    assert not collection.lake.has_snapshot(names[0]), "a reader who still holds it can tell"
    storage_of = collection.lake.storage
    assert [
        key for key in storage_of.keys("state/vectors") if collection.lake.read_json(key)["catalog"] == catalog
    ] == []
    assert list(storage_of.keys("withdrawn")) == [f"withdrawn/{names[0]}.json"]
