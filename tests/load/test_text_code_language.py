"""Plain text, source code, and the language of words."""

from __future__ import annotations

import time

import pytest

from schemas.config import LoadConfig
from schemas.errors import PermanentError
from tasks.load.language import detect_language, language_of
from tasks.load.loader import load_document
from tasks.load.text import text_title

ENGLISH = "The gauge measures the height of the water above the sea bed and sends one reading every six minutes."


def test_plain_text_is_kept_as_it_is() -> None:
    text = "First line\nsecond line\n\n  indented\n\n\nlast"
    loaded = load_document(text.replace("\n", "\r\n").encode(), "a.txt", LoadConfig())
    assert loaded.text == text


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("码头值班须知\n\n潮石仪器现场安装队\n", "码头值班须知"),
        ("Release notes\n=============\ntext\n", "Release notes"),
        ("Release notes\n\nThe text begins here.\n", "Release notes"),
        ("This is just the first sentence.\n\nAnd the second.\n", None),
        ("MINUTES\nWednesday, 12 March\n\n1. Agreed\n", None),
        ("A line alone", None),
        ("x" * 90 + "\n\ntext\n", None),
        ("-----\n\ntext\n", None),
        ("", None),
    ],
)
def test_a_first_line_is_a_title_only_where_it_is_clearly_one(text: str, title: str | None) -> None:
    assert text_title(text) == title


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.py", "a.html"])
def test_binary_bytes_under_a_texts_name_are_refused(name: str) -> None:
    png = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + bytes(range(256)) * 40
    with pytest.raises(PermanentError):
        load_document(png, name, LoadConfig())


@pytest.mark.parametrize(
    ("name", "syntax"),
    [
        ("a/b.py", "python"),
        ("x.TSX", "typescript"),
        ("m.h", "c"),
        ("m.hpp", "cpp"),
        ("run.sh", "shell"),
        ("c.yml", "yaml"),
    ],
)
def test_the_extension_tells_the_syntax(name: str, syntax: str) -> None:
    metadata = load_document(b"x = 1\n", name, LoadConfig()).metadata
    assert (metadata.type, metadata.syntax, metadata.language) == ("code", syntax, "und")


@pytest.mark.parametrize(
    ("source", "title"),
    [
        ('"""Client of the tide service.\n\nMore."""\nx = 1\n', "Client of the tide service."),
        ("# a comment\nx = 1\n", None),
        ("print 'python 2'\n", None),
        ("x = '\\d'\n", None),
        ("(" * 3_000, None),
    ],
)
def test_a_modules_docstring_is_its_title(source: str, title: str | None) -> None:
    loaded = load_document(source.encode(), "a.py", LoadConfig())
    assert (loaded.metadata.title, loaded.text) == (title, source)


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", ENGLISH),
        ("zh", "潮位计测量海底以上的水面高度，每六分钟发送一次读数。Glossator 支持 GB18030 编码。"),
        ("zh", "碼頭值班人員應檢查潮位計、風速儀。"),
        ("ja", "当番者は潮位計、風速計、水温センサーを点検し、台帳に署名してください。"),
        ("ko", "당번자는 조위계와 수온 센서를 점검하고 대장에 서명해 주십시오."),
        ("de", "Der Pegel misst die Höhe des Wassers über dem Meeresboden und sendet alle sechs Minuten einen Wert."),
        (
            "fr",
            "Le marégraphe mesure la hauteur de l'eau au-dessus du fond et envoie une valeur toutes les six minutes.",
        ),
        ("ru", "Мареограф измеряет высоту воды над морским дном и передаёт показания каждые шесть минут."),
        ("el", "Η ελληνική αποτελεί τη μητρική γλώσσα περίπου δώδεκα εκατομμυρίων ανθρώπων."),
        ("und", ""),
        ("und", "12.5 34 E-101 77"),
    ],
)
def test_languages(language: str, text: str) -> None:
    assert detect_language(text) == language


def test_code_blocks_do_not_count() -> None:
    code = "```python\n" + "for reading in gauge.readings(): print(reading.height, reading.time)\n" * 20 + "```\n"
    assert detect_language(f"{code}\n校准实验室每日上午八点开门。\n\n{code}") == "zh"


def test_what_the_document_states_wins() -> None:
    assert language_of("fr", ENGLISH) == "fr"
    assert language_of(None, ENGLISH) == "en"
    assert language_of("en", "校准实验室每日上午八点开门，周末休息。") == "zh"


def test_detection_takes_less_than_five_milliseconds() -> None:
    text = ENGLISH * 300
    detect_language(text)
    start = time.process_time()
    for _ in range(20):
        detect_language(text)
    assert (time.process_time() - start) / 20 < 0.005
