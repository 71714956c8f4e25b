"""The lexical index scores as bm25s does, and never answers from a damaged or foreign one."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.config import Bm25Config
from schemas.errors import GlossatorError
from tasks.lake.lake import Corrupt, Lake
from tasks.publish import bm25_build
from tasks.publish.bm25 import DATA, INDICES, INDPTR, SETTINGS, VOCABULARY, Bm25Index
from tasks.publish.bm25_build import build_bm25
from tasks.tokens.analyzer import Analyzer

CONFIG = Bm25Config()


def files(documents: Sequence[Sequence[str]], vocabulary: Sequence[str] | None = None) -> dict[str, bytes]:
    words = list(vocabulary if vocabulary is not None else dict.fromkeys(term for doc in documents for term in doc))
    ids = {word: i for i, word in enumerate(words)}
    flat = np.array([ids[term] for doc in documents for term in doc], dtype=np.int32)
    offsets = np.cumsum([0, *(len(doc) for doc in documents)])
    return {name: bytes(data) for name, data in build_bm25(flat, offsets, words, CONFIG).items()}


def built(folder: Path, documents: Sequence[Sequence[str]]) -> Bm25Index:
    lake = Lake(folder, "default")
    lake.write_folder("bm25/x", files(documents))
    return Bm25Index.open(lake.open_folder("bm25/x"))


def corpus(size: int = 300) -> list[list[str]]:
    rng = random.Random(7)
    words = [f"w{i}" for i in range(200)]
    weights = [1 / (i + 1) for i in range(200)]
    return [rng.choices(words, weights, k=rng.randint(0, 60)) for _ in range(size)]


@pytest.mark.parametrize("block", [1, 700, 10**6])
def test_arrays_are_those_of_bm25s_whatever_the_blocks(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    import bm25s

    monkeypatch.setattr(bm25_build, "BLOCK_TERMS", block)
    documents = corpus()
    words = sorted({term for doc in documents for term in doc})
    ids = {word: number for number, word in enumerate(words)}
    theirs = bm25s.BM25(k1=CONFIG.k1, b=CONFIG.b, method="lucene", csc_backend="scipy")
    theirs.index(([[ids[term] for term in doc] for doc in documents], ids), create_empty_token=False)
    ours = files(documents)
    for name, wanted in ((DATA, "data"), (INDICES, "indices"), (INDPTR, "indptr")):
        np.testing.assert_array_equal(np.load(io.BytesIO(ours[name])), theirs.scores[wanted])


def test_scores_are_those_of_bm25s(tmp_path: Path) -> None:
    import bm25s

    documents = corpus()
    index = built(tmp_path, documents)
    theirs = bm25s.BM25(k1=CONFIG.k1, b=CONFIG.b, method="lucene")
    theirs.index(documents, show_progress=False)
    for question in (["w0"], ["w3", "w50", "w199"], ["w1", "w1", "w2"]):
        np.testing.assert_allclose(index.scores(question), theirs.get_scores(question), rtol=2e-6)


def test_bm25s_opens_the_folder(tmp_path: Path) -> None:
    import bm25s

    index = built(tmp_path, corpus())
    theirs = bm25s.BM25.load(tmp_path / "default" / "bm25" / "x", load_vocab=False, mmap=True)
    words = sorted({term for doc in corpus() for term in doc})
    np.testing.assert_array_equal(theirs.get_scores_from_ids([words.index("w5")]), index.scores(["w5"]))


def test_files_do_not_depend_on_how_terms_were_numbered() -> None:
    documents = corpus()
    words = sorted({term for doc in documents for term in doc})
    assert files(documents, words) == files(documents, [*reversed(words), "unused"])


def test_a_document_scores_the_same_wherever_it_stands(tmp_path: Path) -> None:
    documents = corpus()
    question = ["w0", "w7", "w30", "w100"]
    straight = built(tmp_path / "a", documents).scores(question)
    reverse = built(tmp_path / "b", documents[::-1]).scores(question[::-1])
    np.testing.assert_array_equal(straight, reverse[::-1])


def test_empty_corpus_finds_nothing(tmp_path: Path) -> None:
    """bm25s#60: no document at all."""
    index = built(tmp_path, [])
    ids, scores = index.top(["anything"], 5)
    assert (index.size, len(ids), len(scores)) == (0, 0, 0)


def test_documents_without_terms_are_counted_and_never_found(tmp_path: Path) -> None:
    index = built(tmp_path, [[], []])
    assert index.size == 2
    assert len(index.top(["anything"], 5)[0]) == 0


def test_corpus_of_one_is_found_by_its_words_alone(tmp_path: Path) -> None:
    """bm25s#60: a corpus of one."""
    index = built(tmp_path, [["tide", "gauge"]])
    assert index.top(["tide"], 10)[0].tolist() == [0]
    assert index.top(["moon"], 10)[0].tolist() == []


def test_more_wanted_than_there_are_gives_those_that_match(tmp_path: Path) -> None:
    """bm25s#60: k larger than the corpus."""
    index = built(tmp_path, [["a"], ["b"], ["a", "b"]])
    assert sorted(index.top(["a"], 100)[0].tolist()) == [0, 2]
    assert index.top(["a"], 0)[0].tolist() == []


def test_unknown_words_change_no_score(tmp_path: Path) -> None:
    """bm25s#60: a question with words out of the vocabulary."""
    index = built(tmp_path, corpus())
    np.testing.assert_array_equal(index.scores(["w3", "nowhere", ""]), index.scores(["w3"]))


def test_rarer_terms_weigh_more_and_unknown_ones_most(tmp_path: Path) -> None:
    index = built(tmp_path, [["a", "b"], ["a"], ["a"]])
    assert index.idf("a") < index.idf("b") < index.idf("c")


INDEX_DOCUMENTS = corpus(60)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Bm25Index:
    return built(tmp_path_factory.mktemp("bm25"), INDEX_DOCUMENTS)


@given(
    question=st.lists(st.sampled_from([f"w{i}" for i in range(40)] + ["nowhere"]), max_size=5),
    k=st.integers(0, 80),
    allowed=st.one_of(st.none(), st.lists(st.booleans(), min_size=60, max_size=60)),
)
def test_top_is_the_full_ranking_cut_short(
    index: Bm25Index, question: list[str], k: int, allowed: list[bool] | None
) -> None:
    scores = index.scores(question)
    ranking = sorted(
        (i for i in range(60) if scores[i] > 0 and (allowed is None or allowed[i])), key=lambda i: (-scores[i], i)
    )
    ids, found = index.top(question, k, None if allowed is None else np.array(allowed))
    assert ids.tolist() == ranking[:k]
    assert found.tolist() == [scores[i] for i in ranking[:k]]


@pytest.mark.parametrize("name", [DATA, INDICES, INDPTR, VOCABULARY, SETTINGS])
@pytest.mark.parametrize("damage", ["missing", "cut", "garbage"])
def test_a_damaged_file_is_refused_never_read_as_empty(tmp_path: Path, name: str, damage: str) -> None:
    """trusty-tools#5909: a corrupt BM25 file becomes an empty index."""
    for file, data in files(corpus()).items():
        (tmp_path / file).write_bytes(data)
    target = tmp_path / name
    if damage == "missing":
        target.unlink()
    elif damage == "cut":
        target.write_bytes(target.read_bytes()[: target.stat().st_size // 2])
    else:
        target.write_bytes(b"\0" * target.stat().st_size)
    with pytest.raises(Corrupt, match="glossator doctor --repair"):
        Bm25Index.open(tmp_path)


def test_a_flipped_bit_is_refused_in_one_line_or_finds_documents_that_exist(tmp_path: Path) -> None:
    content = files(corpus())
    draw = random.Random(3)
    refused = 0
    for name in [DATA, INDICES, INDPTR, VOCABULARY, SETTINGS] * 40:
        data = bytearray(content[name])
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        for file, whole in {**content, name: bytes(data)}.items():
            (tmp_path / file).write_bytes(whole)
        try:
            index = Bm25Index.open(tmp_path)
            with np.errstate(all="ignore"):  # a score may be anything
                found, _ = index.top([f"w{number}" for number in range(200)], 1_000)
            assert set(found.tolist()) <= set(range(300))
            assert index.idf("w1") > 0
        except GlossatorError as error:
            refused += 1
            assert "\n" not in str(error)
    assert refused > 40


def test_an_array_of_another_index_is_refused(tmp_path: Path) -> None:
    for file, data in files(corpus()).items():
        (tmp_path / file).write_bytes(data)
    (tmp_path / DATA).write_bytes(files(corpus(20))[DATA])
    with pytest.raises(Corrupt, match="do not fit together"):
        Bm25Index.open(tmp_path)


def test_settings_come_back_with_the_index_and_foreign_ones_are_refused(tmp_path: Path) -> None:
    """llama_index PR22978: tokenizer settings are lost on save."""
    index = built(tmp_path, [["a"]])
    assert index.settings.config == CONFIG
    path = tmp_path / "default" / "bm25" / "x" / SETTINGS
    settings = json.loads(path.read_text())
    settings["analyzer_version"] += 1
    path.write_text(json.dumps(settings))
    with pytest.raises(GlossatorError, match="another version of the analyzer"):
        Bm25Index.open(path.parent)


def test_an_error_code_ranks_itself_above_its_neighbours(tmp_path: Path) -> None:
    analyzer = Analyzer(CONFIG)
    texts = [
        "Error E-4012 means that the gauge lost its clock.",
        "Form 4021 is kept by the office for seven years.",
        "Error E-4021 means that the payment timed out.",
        "The gauge writes E4021 to its log and stops.",
        "Nothing to see here.",
    ]
    index = built(tmp_path, [analyzer.terms(text) for text in texts])
    assert index.top(analyzer.terms("E-4021"), 1)[0].tolist() == [2]
    assert {2, 3} <= set(index.top(analyzer.terms("error 4021"), 4)[0].tolist())
    assert index.top(analyzer.terms("error 4021"), 1)[0].tolist() == [2]
