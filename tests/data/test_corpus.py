"""Checks of the sample corpus and its golden questions."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pymupdf
import pytest

DATA = Path(__file__).resolve().parents[2] / "data"
CORPUS = DATA / "corpus"

#: Text files that are not encoded as UTF-8.
ENCODINGS = {"zh/dock-duty-notice.txt": "gb18030"}

CJK = re.compile(r"[\u3400-\u9fff]")


def load_golden() -> list[dict[str, str]]:
    lines = (DATA / "golden.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def sources() -> list[str]:
    """Return the path of every document, relative to the corpus."""
    files = (path for path in CORPUS.rglob("*") if path.is_file())
    names = (path.relative_to(CORPUS).as_posix() for path in files)
    return sorted(name for name in names if "__pycache__" not in name)


GOLDEN = load_golden()
SOURCES = sources()


class VisibleText(HTMLParser):
    """Collects the text of a page, without scripts and styles.

    Tags leave no trace, so a quote is found only if no tag stands inside it
    or the text runs straight on across the tag.
    """

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self._hidden += tag in {"script", "style"}

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in {"script", "style"}

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.parts.append(data)


def pdf_text(path: Path) -> str:
    with pymupdf.open(path) as document:
        return "\n".join(page.get_text() for page in document)


def html_text(path: Path) -> str:
    parser = VisibleText()
    parser.feed(path.read_text(encoding="utf-8"))
    return "".join(parser.parts)


@cache
def text_of(source: str) -> str:
    """Return a document's text as it stands, line breaks included."""
    path = CORPUS / source
    if path.suffix == ".pdf":
        return pdf_text(path)
    if path.suffix == ".html":
        return html_text(path)
    return path.read_bytes().decode(ENCODINGS.get(source, "utf-8-sig"))


def squeeze(text: str, glue: str = " ") -> str:
    """Replace each stretch of white space by ``glue``."""
    return glue.join(text.split())


def contains(source: str, quote: str) -> bool:
    """Look for a quote, without regard to spaces if it is Chinese."""
    glue = "" if CJK.search(quote) else " "
    return squeeze(quote, glue) in squeeze(text_of(source), glue)


def each_question(but: str = "none") -> pytest.MarkDecorator:
    """Run a test for every question whose source is not of the kind ``but``."""
    items = [item for item in GOLDEN if not item["source"].endswith(but)]
    return pytest.mark.parametrize("item", items, ids=lambda item: item["id"])


def test_there_are_forty_questions_in_order() -> None:
    expected = [f"g{number:02}" for number in range(1, 41)]
    assert [item["id"] for item in GOLDEN] == expected


def test_kinds_have_their_share() -> None:
    kinds = Counter(item["kind"] for item in GOLDEN)
    assert kinds == {"natural": 18, "identifier": 14, "chinese": 8}


def test_questions_and_quotes_are_distinct() -> None:
    for field in ("question", "quote"):
        assert len({item[field] for item in GOLDEN}) == len(GOLDEN)


@each_question()
def test_fields_are_complete(item: dict[str, str]) -> None:
    assert set(item) == {"id", "question", "source", "quote", "kind"}
    assert 20 <= len(item["quote"]) <= 160
    assert not re.search(r"\*\*|`|\||\n|</?\w+>", item["quote"])


@each_question()
def test_quote_stands_in_its_source(item: dict[str, str]) -> None:
    assert item["source"] in SOURCES
    assert contains(item["source"], item["quote"])


@each_question(but=".pdf")
def test_quote_stands_in_one_line(item: dict[str, str]) -> None:
    lines = text_of(item["source"]).splitlines()
    assert sum(line.count(item["quote"]) for line in lines) == 1


@each_question()
def test_quote_stands_nowhere_else(item: dict[str, str]) -> None:
    others = [name for name in SOURCES if name != item["source"]]
    assert [name for name in others if contains(name, item["quote"])] == []


@each_question()
def test_chinese_questions_have_chinese_sources(item: dict[str, str]) -> None:
    chinese = item["kind"] == "chinese"
    assert bool(CJK.search(item["question"])) == chinese
    assert bool(CJK.search(item["quote"])) == chinese


def test_every_format_is_asked_about() -> None:
    asked = Counter(Path(item["source"]).suffix for item in GOLDEN)
    gb18030 = sum(item["source"] in ENCODINGS for item in GOLDEN)
    assert asked[".pdf"] >= 5
    assert min(asked[kind] for kind in (".md", ".html", ".py")) >= 2
    assert gb18030 >= 2
    assert asked[".txt"] - gb18030 >= 2


def test_corpus_has_its_formats() -> None:
    count = Counter(Path(name).suffix for name in SOURCES)
    assert count == {".md": 17, ".html": 4, ".pdf": 4, ".txt": 3, ".py": 3}


def test_text_files_keep_their_encodings() -> None:
    notice = (CORPUS / "zh/dock-duty-notice.txt").read_bytes()
    report = (CORPUS / "devices/calibration-report-l20-0733.txt").read_bytes()
    with pytest.raises(UnicodeDecodeError):
        notice.decode("utf-8")
    assert report.startswith(b"\xef\xbb\xbf")
    assert report.count(b"\n") == report.count(b"\r\n")


def test_data_sheet_has_a_ruled_table_with_the_anode() -> None:
    with pymupdf.open(CORPUS / "devices/limpet-20-data-sheet.pdf") as document:
        (table,) = document[0].find_tables().tables
        rows = table.extract()
    assert ["Anode", "zinc, 310 g, replace every 30 months"] in [r[:2] for r in rows]


def test_article_quote_stands_in_the_second_column() -> None:
    name = "engineering/technical-note-6-noisy-harbour.pdf"
    with pymupdf.open(CORPUS / name) as document:
        page = document[0]
        right = pymupdf.Rect(page.rect.width / 2, 0, *page.rect.br)
        text = squeeze(page.get_text(clip=right))
    assert [item["id"] for item in GOLDEN if item["quote"] in text] == ["g15"]


def test_procedures_have_an_outline() -> None:
    name = "devices/field-maintenance-procedures.pdf"
    with pymupdf.open(CORPUS / name) as document:
        titles = [title for _, title, _ in document.get_toc()]
    assert "FM-21 Drying a vented cable" in titles


def test_script_makes_the_same_pdfs_again(tmp_path: Path) -> None:
    script = DATA / "make_pdfs.py"
    subprocess.run([sys.executable, str(script), str(tmp_path)], check=True)
    made = sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*.pdf"))
    assert made == [name for name in SOURCES if name.endswith(".pdf")]
    for name in made:
        assert pdf_text(tmp_path / name) == text_of(name)
