"""What users of such systems report of identity and the order of work. Here is what no other test proves; elsewhere:

- llama_index#22638, a document that failed is skipped for ever:
  tests/plan/test_quarantine.py::test_a_mended_file_is_indexed
- llama_index#22639, old vectors are deleted before the new ones exist, and a failure leaves a hole:
  tests/plan/test_quarantine.py::test_a_bad_version_leaves_the_last_good_one_serving
  tests/publish/test_incremental.py::test_what_was_done_before_a_kill_is_not_done_again
- llama_index#22706, two documents with equal content are never deleted:
  tests/publish/test_incremental.py::test_equal_documents_are_both_deleted
- llama_index#14931, only the last chunk of each document survives an upsert:
  tests/publish/test_incremental.py::test_all_chunks_of_a_document_survive_an_update
- llama_index#21461, a `touch` embeds everything again:
  tests/publish/test_incremental.py::test_a_touch_changes_nothing_at_all
- langchain PR30520, Connapse#384, an empty listing deletes the index:
  tests/plan/test_planner.py::test_an_empty_listing_deletes_nothing
- cocoindex-code#285, the chunking config is missing from the cache key:
  tests/plan/test_planner.py::test_a_config_change_that_redoes_documents_is_refused_without_migrate
  tests/schemas/test_config.py::test_operational_fields_are_in_no_digest_and_all_others_are
- dify#9354, ragflow#7130, onyx#5013, deleted content is still answered:
  tests/publish/test_incremental.py::test_what_is_deleted_is_no_longer_found
- onyx#14261, one failed enumeration blocks deletes for ever:
  tests/plan/test_planner.py::test_a_listing_that_fails_once_blocks_nothing_later
- MinSync#36, AutoRAG#1457, BM25 and vectors address different chunks:
  tests/publish/test_incremental.py::test_bm25_vectors_and_passages_address_the_same_chunks
  tests/publish/test_doctor.py::test_bm25_rows_in_another_order_are_found
- Engram#1621, a rename embeds again:
  tests/publish/test_incremental.py::test_a_rename_embeds_nothing
- llama_index#8602, changed metadata is not noticed; langchain#40334, it embeds the document again:
  tests/publish/test_incremental.py::test_other_metadata_makes_new_rows_and_embeds_nothing
- SparrowDB#441, AegisAI#761, the later of two writers undoes the earlier:
  tests/e2e/test_two_publishers.py::test_two_runs_at_once_lose_no_update
- gaia#455, a query during a rebuild mixes old and new:
  tests/query/test_current.py::test_no_answer_ever_mixes_snapshots_during_a_hundred_publishes_and_sweeps
- vestige#181, a process that serves for long never sees what others published:
  tests/query/test_current.py::test_the_pointer_is_read_again_when_the_time_has_come
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import schemas.identity
from query.opening import open_retriever
from query.retriever import MODES
from tasks.publish.milvus import MilvusStore
from tests.fixtures import lake_beside, make_config, make_corpus, run


def found(docs: Path, question: str, mode: Any = "bm25") -> list[tuple[str, str]]:
    """Return URI and words of what a question finds."""
    with closing(open_retriever(lake_beside(docs), make_config())) as retriever:
        hits = retriever.search(question, 50, mode).hits
        return [(hit.passage.document.uri, hit.passage.text) for hit in hits]


@pytest.mark.parametrize("batch_bytes", [1, 10**9])
def test_unchanged_rows_are_neither_deleted_nor_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_bytes: int
) -> None:
    """langchain#32612, langchain#19335: unchanged chunks are deleted and added again across batches."""
    monkeypatch.setattr(schemas.identity, "DOCUMENTS_PER_SHARD", 2)
    files = {f"{n}.md": f"# Page {n}\n\nOne {n}.\n\n## More\n\nTwo {n}.\n" for n in range(8)}
    docs = make_corpus(tmp_path / "docs", files)
    run(docs, f"milvus.batch_bytes={batch_bytes}")
    written: list[str] = []
    deleted: list[str] = []
    insert, delete = MilvusStore.insert, MilvusStore.delete

    def watched_insert(store: MilvusStore, rows: Iterable[dict[str, Any]]) -> int:
        some = list(rows)
        written.extend(row["uri"] for row in some)
        return insert(store, some)

    def watched_delete(store: MilvusStore, ids: Sequence[str]) -> None:
        deleted.extend(ids)
        delete(store, ids)

    monkeypatch.setattr(MilvusStore, "insert", watched_insert)
    monkeypatch.setattr(MilvusStore, "delete", watched_delete)
    make_corpus(docs, files | {"3.md": files["3.md"].replace("Two", "Three")})
    run(docs, f"milvus.batch_bytes={batch_bytes}")
    assert (written, deleted) == (["3.md"], [])


@pytest.mark.parametrize("mode", MODES)
def test_equal_files_of_equal_names_are_two_documents(tmp_path: Path, mode: str) -> None:
    """agno#3700, datashare#1275: ids from the content or the bare name, so that a duplicate replaces its original."""
    page = "# Contract\n\nThe gauge is read twice a day.\n"
    docs = make_corpus(tmp_path / "docs", {"2024/contract.md": page, "2025/contract.md": page})
    run(docs)
    assert sorted(uri for uri, _ in found(docs, "gauge read", mode)) == ["2024/contract.md", "2025/contract.md"]
    make_corpus(docs, {"2024/contract.md": page, "2025/contract.md": page.replace("twice", "thrice")})
    run(docs)
    assert dict(found(docs, "gauge read", mode)) == {
        "2024/contract.md": page.strip(),
        "2025/contract.md": page.replace("twice", "thrice").strip(),
    }


@pytest.mark.parametrize("mode", MODES)
def test_the_new_words_of_a_small_document_replace_the_old_ones(tmp_path: Path, mode: str) -> None:
    """second-brain-cloudflare#208: the only chunk keeps its id, so its new vector is never written."""
    docs = make_corpus(tmp_path / "docs", {"note.md": "Anchors are of zinc.\n", "other.md": "Nothing else.\n"})
    run(docs)
    make_corpus(docs, {"note.md": "Buoys are of steel.\n", "other.md": "Nothing else.\n"})
    run(docs)
    # A hash gives equal texts equal vectors, so that the dense side finds a text by itself.
    assert found(docs, "Buoys are of steel.", mode)[0] == ("note.md", "Buoys are of steel.")
    assert "zinc" not in " ".join(text for _, text in found(docs, "Anchors are of zinc.", mode))


@pytest.mark.parametrize("mode", MODES)
def test_a_renamed_document_is_cited_by_its_new_name_alone(tmp_path: Path, mode: str) -> None:
    """open-webui#30318: citations keep the name of before; forja#47: and the old name's vector stays for ever."""
    page = "# Prices\n\nThe harbour has 54 berths.\n"
    docs = make_corpus(tmp_path / "docs", {"old.md": page, "other.md": "# Other\n\nThe harbour is deep.\n"})
    run(docs)
    make_corpus(docs, {"new/name.md": page, "other.md": "# Other\n\nThe harbour is deep.\n"})
    assert run(docs).chunks_embedded == 0
    assert {uri for uri, _ in found(docs, "harbour berths", mode)} == {"new/name.md", "other.md"}
