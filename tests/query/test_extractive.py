"""An answer quotes the documents to the letter, or says that they hold none."""

from __future__ import annotations

from typing import Any

import pytest

from query.extractive import QUOTES, ExtractiveAnswer, answer
from query.retriever import Retriever
from query.snapshot_reader import SnapshotReader
from schemas.identity import embedded_text


def ask(retriever: Retriever, question: str, mode: Any = "bm25") -> ExtractiveAnswer:
    return answer(retriever.search(question, mode=mode), retriever.lexical)


@pytest.mark.parametrize(
    ("question", "quote"),
    [
        ("How many days of paid leave do I have a year?", "You have 27 days of paid leave a year"),
        ("Do I get paid leave for a pet?", "For a pet it is one day."),
        ("What does E-4021 mean?", "| E-4021 | The heater draws too little current. |"),
        ("How long does the zinc anode last?", "Second page: the zinc anode lasts 30 months."),
        ("中秋博饼的奖品由谁来挑选？", "状元的奖品由上一届状元挑选。"),
        ("代码 C-370 是什么意思？", "出现代码 C-370 表示传感器零点漂移超限，必须停止校准。"),
    ],
)
def test_the_sentence_that_answers_is_quoted(retriever: Retriever, question: str, quote: str) -> None:
    found = ask(retriever, question)
    assert any(quote in given.text for given in found.quotes)


@pytest.mark.parametrize(
    "question",
    [
        "What is the capital of Mongolia?",
        "How long should I boil an egg?",
        "Who is the president of France?",
        "What is error E-9999?",
        "Was ist neu in 9.9.9?",
        "北京到上海的高铁票多少钱？",
        "红烧肉怎么做？",
        "代码 C-999 是什么意思？",
        "",
        "???",
    ],
)
def test_a_question_about_other_things_gets_no_quote(retriever: Retriever, question: str) -> None:
    found = ask(retriever, question)
    assert not found.found
    assert found.note is not None
    assert found.note.startswith("not in the documents")


def test_an_unknown_code_is_named(retriever: Retriever) -> None:
    assert ask(retriever, "What does the heater do on E-9999?").note == "not in the documents: E-9999"


def test_a_code_is_found_however_it_is_typed(retriever: Retriever) -> None:
    assert ask(retriever, "what is e4021").found


def test_every_quote_is_its_span_of_the_document(retriever: Retriever, handbook: SnapshotReader) -> None:
    rows = {uri: row for row, uri in enumerate(handbook.documents().column("uri").to_pylist())}
    for question in (
        "paid leave days",
        "station reports the tide every 7 minutes",
        "传感器零点漂移",
        "zinc anode months",
    ):
        quotes = ask(retriever, question).quotes
        assert 0 < len(quotes) <= QUOTES
        assert [quote.citation.number for quote in quotes] == list(range(1, len(quotes) + 1))
        for quote in quotes:
            text = handbook.document_text(rows[quote.citation.uri])
            assert text[quote.citation.start : quote.citation.end] == quote.text


def test_a_citation_names_page_and_headings(retriever: Retriever) -> None:
    citation = ask(retriever, "zinc anode months").quotes[0].citation
    assert (citation.uri, citation.page) == ("manual.pdf", 2)
    citation = ask(retriever, "paid leave pet").quotes[0].citation
    assert (citation.title, citation.breadcrumb, citation.page) == ("Leave policy", ("Leave policy",), None)


def test_near_vectors_are_evidence_enough(retriever: Retriever, handbook: SnapshotReader) -> None:
    target = handbook.passage(2)
    found = ask(retriever, embedded_text(target.context, target.text), mode="dense")
    assert found.quotes[0].citation.chunk_id == target.chunk_id
