"""Readers during and after a publish, a rollback and a sweep: one answer is of one snapshot, or it is an error."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from query.current import CurrentRetriever
from query.opening import open_retriever
from query.retriever import MODES, Mode, Retriever, SearchResult
from query.snapshot_reader import SnapshotReader, Swept
from schemas.errors import UsageError
from schemas.identity import document_id
from tasks.lake.access import change_groups
from tasks.publish.history import resume, rollback
from tasks.publish.sweep import sweep
from tests.generations import AT_ONCE, QUESTION, Generations, generations

PUBLISHES = 100
HITS = 5
PAUSE = 0.1


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def clean(collection: Generations) -> None:
    sweep(collection.lake, collection.config.milvus, lambda: True, policy=AT_ONCE, full=True)


@contextmanager
def following(collection: Generations, clock: Clock | None = None, every: float = 30.0) -> Iterator[CurrentRetriever]:
    with closing(CurrentRetriever(collection.lake, collection.config, every=every, clock=clock or Clock())) as current:
        yield current


def gauges(retriever: Retriever) -> npt.NDArray[np.bool_]:
    uris = np.array(retriever.reader.documents().column("uri").to_pylist())
    return np.char.startswith(uris, "gauge")[retriever.reader.document_rows()]


def is_whole(result: SearchResult, generation_of: dict[str, int]) -> bool:
    """Tell whether an answer holds all documents, all of the generation of the snapshot that it names."""
    return len(result.hits) == HITS and generations(result) == {generation_of[result.snapshot]}


def test_no_answer_ever_mixes_snapshots_during_a_hundred_publishes_and_sweeps(tmp_path: Path) -> None:
    """gaia#455: a query during a rebuild mixes the old index with the new chunks."""
    collection = Generations(tmp_path)
    generation_of = {collection.publish(0).name: 0}
    current: list[tuple[int, str, int]] = []  # The newest flip when asked, the snapshot that answered, and afterwards.
    answers: dict[str, list[SearchResult]] = {"follows": [], "opens": [], "holds": []}
    errors: list[BaseException] = []
    swept: list[str] = []
    done = threading.Event()

    def follow() -> None:
        with closing(CurrentRetriever(collection.lake, collection.config, every=0.0)) as reader:
            while not done.is_set():
                asked = collection.flip().number
                answers["follows"].append(reader.search(QUESTION, 20, groups=None))
                current.append((asked, answers["follows"][-1].snapshot, collection.flip().number))
                done.wait(PAUSE)

    def open_each_time() -> None:
        while not done.is_set():
            try:
                answers["opens"].append(collection.search())
            except Swept as error:  # A clear word is allowed, another answer is not.
                swept.append(str(error))
            done.wait(PAUSE)

    def hold() -> None:
        """Keep a retriever for many publishes, far longer than its snapshot lives."""
        while not done.is_set():
            with closing(open_retriever(collection.lake, collection.config)) as retriever:
                while not done.is_set():
                    try:
                        answers["holds"].append(retriever.search(QUESTION, 20))
                        done.wait(PAUSE)
                    except Swept as error:
                        swept.append(str(error))
                        break

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in (follow, open_each_time, hold)]
    for thread in threads:
        thread.start()
    try:
        for generation in range(1, PUBLISHES + 1):
            generation_of[collection.publish(generation).name] = generation
            if generation % 2 == 0:
                clean(collection)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert errors == []
    for results in answers.values():
        assert [result for result in results if not is_whole(result, generation_of)] == []
        assert len(results) >= PUBLISHES
    assert [row for row in current if not row[0] <= generation_of[row[1]] + 1 <= row[2]] == [], "what was current then"
    assert len({result.snapshot for result in answers["follows"]}) > PUBLISHES / 3, "it followed"
    assert any("was swept" in message for message in swept), "the retriever that was held noticed"


def test_the_pointer_is_read_again_when_the_time_has_come(tmp_path: Path) -> None:
    """vestige#181: a process that serves for long never sees what others published."""
    collection, clock = Generations(tmp_path), Clock()
    collection.publish(0)
    with following(collection, clock) as current:
        assert generations(current.search(QUESTION, 20, groups=None)) == {0}
        collection.publish(1)
        clock.now = 29.9
        assert generations(current.search(QUESTION, 20, groups=None)) == {0}
        clock.now = 30.0
        assert generations(current.search(QUESTION, 20, groups=None)) == {1}
        assert current.flip.number == 2


def test_every_search_says_for_whom_and_a_revocation_counts_at_the_next(tmp_path: Path) -> None:
    collection = Generations(tmp_path)
    collection.publish(0)
    with following(collection) as current:
        uris = {hit.passage.document.uri for hit in current.search(QUESTION, 20, groups=["staff"]).hits}
        assert "always.md" in uris and len(uris) > 1
        change_groups(collection.lake, lambda table: {document_id("corpus", "always.md"): ("hr",)})
        seen = {hit.passage.document.uri for hit in current.search(QUESTION, 20, groups=["staff"]).hits}
        assert seen == uris - {"always.md"}
        assert {hit.passage.document.uri for hit in current.search(QUESTION, 20, groups=None).hits} == uris
        with pytest.raises(TypeError):
            current.search(QUESTION, 20)  # type: ignore[call-arg]


def test_readers_follow_a_rollback_and_a_resume(tmp_path: Path) -> None:
    collection = Generations(tmp_path)
    for generation in (0, 1):
        collection.publish(generation)
    with following(collection, every=0.0) as current:
        before = current.search(QUESTION, 20, groups=None)
        rollback(collection.lake, None, author="", reason="", milvus=collection.config.milvus)
        assert generations(current.search(QUESTION, 20, groups=None)) == {0}
        with current.borrow() as held:
            resume(collection.lake, author="", reason="")
            with current.borrow() as same:
                assert same is held, "the same snapshot is not opened twice"
        assert current.flip.number == 4
        rollback(collection.lake, "@2", author="", reason="", milvus=collection.config.milvus)
        assert current.search(QUESTION, 20, groups=None).hits == before.hits


def test_a_search_under_way_keeps_its_snapshot_open_until_it_ends(tmp_path: Path) -> None:
    collection = Generations(tmp_path)
    collection.publish(0)
    with following(collection, every=0.0) as current:
        with current.borrow() as old:
            old.search(QUESTION, 20)
            collection.publish(1)
            with current.borrow() as new:
                assert new is not old
                assert new._vector_search.is_open, "what the old one had open was opened before it was handed out"
                assert old._vector_search.is_open
                assert generations(new.search(QUESTION, 20)) == {1}
            assert generations(old.search(QUESTION, 20)) == {0}
        assert not old._vector_search.is_open, "the last user closed it"
        assert generations(current.search(QUESTION, 20, groups=None)) == {1}


def test_the_old_snapshot_serves_on_while_the_new_one_cannot_be_opened(tmp_path: Path) -> None:
    collection = Generations(tmp_path)
    collection.publish(0)
    with following(collection, every=0.0) as current:
        current.search(QUESTION, 20, groups=None)
        new = collection.publish(1)
        manifest = collection.lake.storage.local(f"catalog/{new.catalog}/manifest.json")
        whole = manifest.read_bytes()
        manifest.write_bytes(b"{")
        assert generations(current.search(QUESTION, 20, groups=None)) == {0}
        assert "damaged" in current.problem
        assert current.flip.number == 1
        manifest.write_bytes(whole)
        assert generations(current.search(QUESTION, 20, groups=None)) == {1}
        assert current.problem == ""


def test_a_swept_snapshot_is_left_at_once_however_long_until_the_next_look(tmp_path: Path) -> None:
    collection = Generations(tmp_path)
    collection.publish(0)
    with following(collection) as current:
        assert generations(current.search(QUESTION, 20, groups=None)) == {0}
        for generation in (1, 2):
            collection.publish(generation)
        clean(collection)
        assert generations(current.search(QUESTION, 20, groups=None)) == {2}


def test_filters_are_worked_out_for_the_snapshot_that_is_searched(tmp_path: Path) -> None:
    collection = Generations(tmp_path)
    collection.publish(0)
    with following(collection, every=0.0) as current:
        (collection.corpus / "more.md").write_text("# More\n\nA document that moves all rows.\n")
        collection.publish(1)

        result = current.search(QUESTION, 20, groups=None, allowed=gauges)
        assert sorted({hit.passage.document.uri for hit in result.hits}) == [f"gauge-{n}.md" for n in range(4)]


def test_there_is_nothing_to_follow_before_the_first_publish(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is empty"):
        CurrentRetriever(Generations(tmp_path).lake, Generations(tmp_path).config)


@pytest.mark.parametrize("mode", MODES)
def test_a_held_retriever_answers_wholly_or_says_that_it_was_swept(tmp_path: Path, mode: Mode) -> None:
    collection = Generations(tmp_path)
    first = collection.publish(0)
    with closing(open_retriever(collection.lake, collection.config)) as warm:
        before = warm.search(QUESTION, 20, mode)
        for generation in (1, 2):
            collection.publish(generation)
        assert warm.search(QUESTION, 20, mode).hits == before.hits
        clean(collection)
        if mode == "bm25":  # All of it is mapped: as right as before.
            assert warm.search(QUESTION, 20, mode).hits == before.hits
        else:
            with pytest.raises(Swept, match=first.name):
                warm.search(QUESTION, 20, mode)


def test_a_reader_of_a_swept_snapshot_reads_what_it_has_mapped_and_fails_clearly_on_the_rest(tmp_path: Path) -> None:
    collection = Generations(tmp_path)
    name = collection.publish(0).name
    warm, cold = SnapshotReader(collection.lake, name), SnapshotReader(collection.lake, name)
    texts = [warm.passage(row).text for row in range(warm.size)]
    for generation in (1, 2):
        collection.publish(generation)
    clean(collection)
    assert [warm.passage(row).text for row in range(warm.size)] == texts
    with pytest.raises(Swept, match="was swept"):
        cold.passage(0)
    with pytest.raises(Swept, match="was swept"):
        _ = warm.bm25
    with pytest.raises(Swept, match="was swept"):
        SnapshotReader(collection.lake, name)
