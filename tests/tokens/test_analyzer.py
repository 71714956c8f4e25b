"""Terms are the same for a document and for the question that looks for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.config import Bm25Config
from tasks.tokens.analyzer import Analyzer

ANALYZER = Analyzer(Bm25Config())
ROOT = Path(__file__).parents[2]


def terms(text: str) -> list[str]:
    return ANALYZER.terms(text)


def shares(one: str, other: str) -> set[str]:
    return set(terms(one)) & set(terms(other))


def test_words_meet_whatever_their_case_and_ending() -> None:
    assert terms("Indexing the documents") == terms("INDEXED document")


def test_function_words_are_left_out_and_names_in_capitals_kept() -> None:
    assert terms("what is it, and who are they?") == []
    assert terms("WHO guidelines") == ["who", "guidelin"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http_status_code", {"http_status_code", "http", "status", "code"}),
        ("getUserName", {"get", "user", "name"}),
        ("HTTPServer", {"http", "server"}),
        ("E-4021", {"e-4021", "e4021", "4021"}),
        ("E4021", {"e4021", "4021"}),
        ("ERR_CONN_RESET", {"err_conn_reset", "err", "conn", "reset"}),
        ("0x80070005", {"0x80070005", "80070005"}),
        ("TG-200/B", {"tg-200/b", "tg-200", "tg200", "200"}),
        ("3.8.1", {"3.8.1", "3.8"}),
        ("v3.8.1", {"v3.8.1", "3.8.1", "3.8"}),
        ("3.8.1-beta.2", {"3.8.1", "beta"}),
        ("src/api/errors.py", {"src/api/errors.py", "errors.py", "src", "api"}),
        ("self.client.fetchTides", {"self.client.fetchtides", "client", "fetch", "tide"}),
        ("10.0.0.1", {"10.0.0.1"}),
        ("2025-03-12", {"2025-03-12", "2025"}),
        ("C++ and C#", {"c++", "c#"}),
        ("python3", {"python3", "python", "3"}),
        ("UTF-8", {"utf-8", "utf8"}),
    ],
)
def test_names_codes_and_numbers_are_kept_whole_and_in_parts(text: str, expected: set[str]) -> None:
    assert expected <= set(terms(text))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("getUserName", "getusername"),
        ("OpenTelemetry", "opentelemetry"),
        ("$1,234.56", "1234.56"),
        ("e-mail", "email"),
        ("the APIs", "an api"),
        ("the user's file", "user file"),
        ("co\u00adoperate", "cooperate"),
        ("Müller", "Muller"),
        ("Straße", "strasse"),
        ("ｅｒｒｏｒ　４０２１", "error 4021"),
        ("ﬁle", "file"),
        ("utf\u20118", "utf-8"),
        ("приложения", "приложение"),
    ],
)
def test_two_spellings_of_one_thing_have_a_term_in_common(one: str, other: str) -> None:
    assert shares(one, other)


def test_a_hash_is_not_taken_apart() -> None:
    assert terms("a3f5c2d9") == ["a3f5c2d9"]


def test_a_list_of_small_numbers_is_no_number_with_thousands() -> None:
    assert terms("1,2,3") == ["1", "2", "3"]
    assert terms("1,234, and") == ["1234"]


def test_chinese_meets_inside_a_sentence_and_beside_a_code() -> None:
    assert {"错误", "码", "e-4021"} <= shares("支付错误码E-4021的含义是什么？", "错误码 E-4021：支付超时")
    assert not shares("退款流程", "登录方法")


def test_scripts_without_spaces_meet_inside_a_run() -> None:
    assert shares("サーバーを起動する", "サーバー")
    assert shares("데이터베이스를 설정한다", "데이터베이스")
    assert shares("東京都の人口", "東京")


def test_hindi_words_are_not_cut_at_vowel_signs() -> None:
    assert len(terms("नमस्ते दुनिया")) == 2


def test_without_stemming_words_stay_as_they_are() -> None:
    assert Analyzer(Bm25Config(stem=False)).terms("Indexing documents") == ["indexing", "documents"]


@given(st.text(max_size=200))
def test_any_text_gives_the_same_terms_again(text: str) -> None:
    found = terms(text)
    assert found == Analyzer(Bm25Config()).terms(text)
    assert all(term and term == term.strip() for term in found)


@given(st.text(alphabet="aA0é-_./',漢か", max_size=60), st.text(alphabet="aA0é-_./',漢か", max_size=60))
def test_terms_do_not_depend_on_the_paragraph_beside(left: str, right: str) -> None:
    assert terms(f"{left}\n{right}") == terms(left) + terms(right)


def test_terms_do_not_depend_on_hash_seed_or_locale() -> None:
    text = "getUserName E-4021 支付错误 Straße v3.8.1 приложения"
    code = (
        "import json, sys; from schemas.config import Bm25Config; from tasks.tokens.analyzer import Analyzer;"
        f"json.dump(Analyzer(Bm25Config()).terms({text!r}), sys.stdout)"
    )
    for seed, locale in (("1", "C"), ("2", "C.UTF-8")):
        env = {**os.environ, "PYTHONHASHSEED": seed, "LC_ALL": locale}
        output = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, check=True).stdout
        assert json.loads(output) == terms(text)


def test_a_long_run_without_spaces_takes_time_in_proportion() -> None:
    started = time.process_time()
    terms("a-" * 100_000)
    terms("aA1" * 100_000)
    terms("1," * 100_000)
    assert time.process_time() - started < 3
