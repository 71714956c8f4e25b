"""Whatever is published, taken back, pinned and swept in whatever order: no retained snapshot loses anything."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from schemas.errors import GlossatorError
from tasks.publish.history import resume, rollback
from tasks.publish.pins import create_pin, read_pins, remove_pin
from tasks.publish.pointer import available
from tasks.publish.sweep import SweepPolicy, sweep
from tests.generations import AT_ONCE, NOW, Generations, generations

KEEPS_PARTS = SweepPolicy(grace=NOW)
OPERATIONS = st.one_of(
    st.tuples(st.just("publish"), st.integers(0, 4)),
    st.tuples(st.just("publish"), st.integers(0, 4)),
    st.tuples(st.sampled_from(["rollback", "pin", "unpin"]), st.integers(0, 3)),
    st.tuples(st.sampled_from(["resume", "interrupted sweep"]), st.integers(0, 12)),
    st.tuples(st.sampled_from(["sweep", "full sweep", "sweep keeps parts"]), st.just(0)),
)


class Story:
    """One collection and what happens to it; readers always see ``generation``."""

    def __init__(self, folder: Path) -> None:
        self.collection = Generations(folder, documents=2)
        self.generation: dict[str, int] = {}
        self.publish(0)

    def publish(self, generation: int) -> None:
        lake = self.collection.lake
        flip = lake.current_flip()
        if flip is not None and flip.hold:
            resume(lake, author="", reason="")
        self.generation[self.collection.publish(generation).name] = generation

    def tell(self, operation: str, number: int) -> None:
        lake, milvus = self.collection.lake, self.collection.config.milvus
        kept = available(lake)
        match operation:
            case "publish":
                self.publish(number)
            case "rollback" if kept[number % len(kept)] != self.collection.current().name:
                rollback(lake, kept[number % len(kept)], author="", reason="", milvus=milvus)
            case "resume" if self.collection.flip().hold:
                resume(lake, author="", reason="")
            case "pin":
                create_pin(lake, kept[number % len(kept)], author="", reason="")
            case "unpin" if pins := sorted(read_pins(lake)):
                remove_pin(lake, pins[number % len(pins)])
            case "sweep" | "full sweep":
                sweep(lake, milvus, lambda: True, policy=AT_ONCE, full=operation == "full sweep")
            case "sweep keeps parts":
                sweep(lake, milvus, lambda: True, policy=KEEPS_PARTS)
            case "interrupted sweep":
                answers = iter([True] * number)
                policy = dataclasses.replace(AT_ONCE, batch=1)
                sweep(lake, milvus, lambda: next(answers, False), policy=policy, full=True)

    def check(self) -> None:
        """Assert what is promised after every step."""
        rows = self.collection.rows()
        kept = {*self.collection.flip().retained, *read_pins(self.collection.lake)}
        for name in kept:
            assert self.collection.ids(name) <= rows
        for name in kept:
            assert generations(self.collection.search(name=name)) == {self.generation[name]}


@settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.lists(OPERATIONS, min_size=6, max_size=14))
def test_no_sweep_ever_deletes_what_a_retained_snapshot_needs(operations: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        story = Story(Path(folder))
        for operation, number in operations:
            try:
                story.tell(operation, number)
            except GlossatorError as error:
                raise AssertionError(f"{operation} {number}: {error}") from error
            story.check()
        assert story.collection.ailments() == []
        story.tell("full sweep", 0)
        lake = story.collection.lake
        kept = {*story.collection.flip().retained, *read_pins(lake)}
        assert story.collection.rows() == set().union(*(story.collection.ids(name) for name in kept))
        assert set(lake.snapshot_names()) == kept
