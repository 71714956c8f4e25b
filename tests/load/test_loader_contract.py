"""What holds for every file: a sound LoadedDocument or a PermanentError, never anything else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from schemas.config import LoadConfig
from schemas.documents import LoadedDocument
from schemas.errors import PermanentError
from tasks.load.loader import LOADER_VERSION, document_type, load_document
from tests.shared import SHARED

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "data/corpus"


def check(loaded: LoadedDocument) -> None:
    text = loaded.text
    assert "\r" not in text and "\x00" not in text and not text.startswith("\ufeff")
    text.encode("utf-8")  # no lone surrogates
    assert list(loaded.pages) == sorted(loaded.pages)
    assert not loaded.pages or (loaded.pages[0] == 0 and loaded.pages[-1] <= len(text))


@pytest.mark.parametrize(
    ("uri", "type_"),
    [
        ("a/b.md", "markdown"),
        ("a.MDX", "markdown"),
        ("a.htm", "html"),
        ("a.pdf", "pdf"),
        ("a.txt", "text"),
        ("README", "text"),
        ("a.rs", "code"),
        ("a.docx", None),
        ("a.pptx", None),
        ("a.xlsx", None),
        ("a.epub", None),
        ("a.png", None),
        ("page.html.gz", None),
        ("noextension", None),
        ("dir.md/file", None),
        (".md", None),
    ],
)
def test_the_name_decides_how_a_file_is_loaded(uri: str, type_: str | None) -> None:
    assert document_type(uri) == type_


def test_an_unsupported_type_is_refused_with_a_hint() -> None:
    with pytest.raises(PermanentError) as caught:
        load_document(b"PK", "a.docx", LoadConfig())
    assert caught.value.document == "a.docx" and caught.value.hint


def test_the_place_of_a_file_does_not_enter_the_result() -> None:
    data = b"# A\n\nb\n"
    assert load_document(data, "x/y.md", LoadConfig()) == load_document(data, "z.md", LoadConfig())


def test_the_version_is_a_positive_number() -> None:
    assert isinstance(LOADER_VERSION, int) and LOADER_VERSION >= 1


def test_importing_the_loader_imports_no_heavy_library() -> None:
    heavy = ("pymupdf", "trafilatura", "lxml", "charset_normalizer", "markdown_it", "py3langid", "numpy", "yaml")
    code = f"import sys, tasks.load.loader; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "path", sorted(p.relative_to(CORPUS).as_posix() for p in CORPUS.rglob("*.*") if "__pycache__" not in p.parts)
)
def test_each_file_of_the_sample_corpus_loads_without_loss(path: str) -> None:
    loaded = load_document((CORPUS / path).read_bytes(), path, LoadConfig())
    check(loaded)
    assert len(loaded.text) > 500
    assert "\ufffd" not in loaded.text
    assert {flag for flag in loaded.flags if flag != "decoded:gb18030"} == set()
    assert loaded.metadata.language == ("und" if path.endswith(".py") else "zh" if path.startswith("zh/") else "en")
    for furniture in ("cookie that", "Sign in", "Fair enough", "Page 2 of"):
        assert furniture not in loaded.text


def test_the_two_column_note_of_the_sample_corpus_is_read_in_order() -> None:
    """docling#2204: two columns are interleaved."""
    path = CORPUS / "engineering/technical-note-6-noisy-harbour.pdf"
    text = load_document(path.read_bytes(), path.name, LoadConfig()).text
    sections = [
        "1 The trouble with water",
        "2 From echo to level",
        "3 What the ferry does",
        "4 The wash guard",
        "5 The trial",
    ]
    found = [text.index(f"# {section}\n") for section in sections]
    assert found == sorted(found)
    assert "The weights are symmetrical about the middle of the burst train" in text


nasty = SHARED / "nasty"


def nasty_slice() -> list[str]:
    """Every third file, and all text and Markdown ones."""
    if not nasty.is_dir():
        return []
    names = [line.split("\t")[0] for line in (nasty / "MANIFEST.tsv").read_text("utf-8").splitlines()[1:]]
    return [name for index, name in enumerate(names) if index % 3 == 0 or not name.startswith("pdf/")]


@pytest.mark.shared
@pytest.mark.skipif(not nasty.is_dir(), reason=f"{nasty} is absent (set GLOSSATOR_SHARED to the shared data)")
def test_files_that_break_loaders_end_in_a_document_or_a_permanent_error() -> None:
    loaded = refused = 0
    for name in nasty_slice():
        try:
            document = load_document((nasty / name).read_bytes(), name, LoadConfig())
        except PermanentError as error:
            assert error.document == name
            refused += 1
            continue
        check(document)
        loaded += 1
    assert loaded > 100 and refused > 30


@pytest.mark.shared
@pytest.mark.skipif(not nasty.is_dir(), reason=f"{nasty} is absent (set GLOSSATOR_SHARED to the shared data)")
@pytest.mark.parametrize(
    ("name", "expected", "flag"),
    [
        ("txt/charset_normalizer/sample-french-1.txt", "NÉ LE 15 JANVIER 1622", "decoded:cp1252"),
        ("txt/charset_normalizer/sample-arabic-1.txt", "المنطقة المغاربية", "decoded:cp1256"),
        ("txt/charset_normalizer/sample-greek.txt", "Η ελληνική αποτελεί", "decoded:cp1253"),
        ("pdf/pdfjs__vertical.pdf", "あいうえお日本語", None),
        ("pdf/pdfjs__tracemonkey.pdf", "more difficult to compile than statically typed ones", None),
        ("html/docling/table_06.html", "| VII | VIII |", None),
    ],
)
def test_known_words_of_real_files_are_read(name: str, expected: str, flag: str | None) -> None:
    document = load_document((nasty / name).read_bytes(), name, LoadConfig())
    assert expected in document.text
    assert flag is None or flag in document.flags
