"""What users of such systems report of their stores. Here is what no other test proves; elsewhere:

- milvus#37026, VARCHAR max_length counts bytes, and Chinese text has three times as many:
  tests/publish/test_milvus.py::test_a_long_chinese_path_fits
- milvus#37389, `insert` does not replace an equal primary key:
  tests/publish/test_milvus.py::test_an_equal_id_replaces_itself
- milvus#21823, a batch over the gRPC message limit fails:
  tests/publish/test_milvus.py::test_batches_are_bounded_by_bytes_and_lose_nothing
  tests/publish/test_milvus.py::test_more_than_one_message_of_rows_is_stored
- memsearch#652, a file lock is reported as corruption:
  tests/publish/test_milvus.py::test_a_folder_that_another_process_holds_is_busy_not_damaged
- open-webui#11279, a new embedding model meets the old collection:
  tests/plan/test_planner.py::test_a_new_model_gets_a_collection_of_its_own
  tests/query/test_retriever.py::test_vectors_of_another_model_are_refused
- bm25s#60, unknown words, k larger than the corpus, a corpus of one or none:
  tests/publish/test_bm25.py::test_unknown_words_change_no_score
  tests/publish/test_bm25.py::test_more_wanted_than_there_are_gives_those_that_match
  tests/publish/test_bm25.py::test_corpus_of_one_is_found_by_its_words_alone
  tests/publish/test_bm25.py::test_empty_corpus_finds_nothing
- llama_index#13866, Chinese scores zero in BM25:
  tests/query/test_retriever.py::test_a_chinese_question_finds_its_passage_by_words
- llama_index PR22978, tokenizer settings are lost on save:
  tests/publish/test_bm25.py::test_settings_come_back_with_the_index_and_foreign_ones_are_refused
- trusty-tools#5909, a corrupt BM25 file becomes an empty index:
  tests/publish/test_bm25.py::test_a_damaged_file_is_refused_never_read_as_empty
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from query.opening import open_retriever
from schemas.errors import GlossatorError
from tasks.lake.lake import Corrupt, bm25_folder
from tasks.plan.planner import PlanOptions
from tasks.publish.bm25 import DATA, INDPTR, VOCABULARY
from tests.fixtures import ailments, clean_build, contents, lake_beside, make_config, make_corpus, published, run

FILES = {f"{number}.md": f"# Page {number}\n\nThe gauge {number} is read daily.\n" for number in range(4)}
QUESTION = "The gauge 2 is read daily."


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    docs = make_corpus(tmp_path / "docs", FILES)
    run(docs)
    return docs


def test_a_change_of_model_never_compares_vectors_of_two_models(tmp_path: Path) -> None:
    """open-webui#11279: after the change each question fails with a dimension mismatch, until all is indexed anew."""
    docs = make_corpus(tmp_path / "docs", FILES)
    lake, shared, smaller = lake_beside(docs), "milvus.shared=true", "embed.model=hash:256"
    run(docs, shared)
    with closing(open_retriever(lake, make_config(shared))) as before:
        hits = before.search(QUESTION, 4, "dense").hits
        assert len(hits) == 4
        run(docs, shared, smaller, options=PlanOptions(migrate=True))
        assert before.search(QUESTION, 4, "dense").hits == hits, "who reads the old snapshot reads on"
    # The snapshot says which model its questions need; a setting of the reader does not.
    for settings in ([shared, smaller], [shared]):
        with closing(open_retriever(lake, make_config(*settings))) as after:
            found = after.search(QUESTION, 4, "dense").hits
            assert [hit.passage.text for hit in found if QUESTION in hit.passage.text] == ["# Page 2\n\n" + QUESTION]
            assert len(found) == 4


@pytest.mark.parametrize("name", [DATA, INDPTR, VOCABULARY])
def test_a_corrupt_lexical_index_is_neither_searched_nor_built_upon(docs: Path, name: str) -> None:
    """trusty-tools#5909, veryfront PR3293: a corrupt index counts as an empty one and then overwrites the good one."""
    lake = lake_beside(docs)
    path = lake.storage.local(f"{bm25_folder(published(lake).bm25)}/{name}")
    path.write_bytes(b"\0" * path.stat().st_size)
    for mode in ("bm25", "hybrid"):
        with pytest.raises(Corrupt), closing(open_retriever(lake, make_config())) as retriever:
            retriever.search(QUESTION, 4, mode)  # type: ignore[arg-type]
    run(make_corpus(docs, FILES | {"new.md": "# New\n\nThe gauge is new.\n"}))
    assert contents(lake) == clean_build(docs)
    assert ailments(docs) == {}


def test_a_failed_insert_leaves_the_published_rows_as_they_are(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """WaLiAPI#112: the index file is overwritten in place, and readers meanwhile see half of it."""
    before = contents(lake_beside(docs))
    make_corpus(docs, {uri: text.replace("daily", "hourly") for uri, text in FILES.items()})

    def full(*_: object) -> None:
        raise GlossatorError("the store is full")

    with monkeypatch.context() as patch:
        patch.setattr("tasks.publish.milvus.MilvusStore.flush", full)
        with pytest.raises(GlossatorError, match="is full"):
            run(docs)
    assert contents(lake_beside(docs)) == before
    assert ailments(docs) == {}
    run(docs)
    assert contents(lake_beside(docs)) == clean_build(docs)
