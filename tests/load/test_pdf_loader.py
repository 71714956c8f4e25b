"""PDF: reading order, headings, tables, page offsets, and files that are damaged or not text."""

from __future__ import annotations

import random
from collections.abc import Callable

import pymupdf
import pytest

from schemas.config import LoadConfig
from schemas.documents import LoadedDocument
from schemas.errors import PermanentError
from tasks.load.loader import load_document

Page = pymupdf.Page


def build(*draw: Callable[[Page], None], title: str = "", toc: list[list[object]] | None = None) -> pymupdf.Document:
    document = pymupdf.open()
    for draw_page in draw:
        draw_page(document.new_page(width=595, height=842))
    if toc:
        document.set_toc(toc)
    document.set_metadata({"title": title})
    return document


def load(document: pymupdf.Document | bytes, config: LoadConfig | None = None) -> LoadedDocument:
    data = document if isinstance(document, bytes) else document.tobytes()
    return load_document(data, "papers/a.pdf", config or LoadConfig())


def paragraph(page: Page, x: float, y: float, lines: list[str], size: float = 10, font: str = "helv") -> float:
    for line in lines:
        page.insert_text((x, y), line, fontsize=size, fontname=font)
        y += 1.25 * size
    return y


def words(seed: str, lines: int) -> list[str]:
    """Lines of about equal width whose words tell where they stand."""
    return [" ".join(f"{seed}{line}w{word}" for word in range(6)) for line in range(lines)]


def test_two_columns_are_read_one_after_the_other() -> None:
    """docling#2204: two columns are interleaved."""

    def draw(page: Page) -> None:
        page.insert_text((150, 60), "A title across both of the columns", fontsize=18, fontname="hebo")
        paragraph(page, 60, 120, words("left", 30))
        paragraph(page, 320, 120, words("right", 30))

    text = load(build(draw)).text
    order = [text.index(word) for word in ("A title", "left0w0", "left29w5", "right0w0", "right29w5")]
    assert order == sorted(order)
    assert "left0w5 left1w0" in text  # one paragraph, re-flowed
    assert "left0w5 right0w0" not in text


def test_a_wide_line_in_the_middle_parts_the_columns_into_bands() -> None:
    def draw(page: Page) -> None:
        for y, band in ((100, "a"), (420, "b")):
            paragraph(page, 60, y, words(f"l{band}", 15))
            paragraph(page, 320, y, words(f"r{band}", 15))
        page.insert_text((60, 360), "Figure 1. A caption that runs over both of the columns of this page", fontsize=12)

    text = load(build(draw)).text
    order = [text.index(word) for word in ("la0w0", "ra0w0", "Figure 1.", "lb0w0", "rb14w5")]
    assert order == sorted(order)


def running(number: int, body: list[str]) -> Callable[[Page], None]:
    def draw(page: Page) -> None:
        page.insert_text((60, 40), "Petrel 320: installation", fontsize=8)
        paragraph(page, 60, 100, body)
        page.insert_text((500, 810), f"Page {number} of 4", fontsize=8)

    return draw


def test_running_headers_footers_and_page_numbers_are_removed() -> None:
    loaded = load(build(*(running(number, words(f"p{number}l", 5)) for number in range(1, 5))))
    assert "Petrel 320" not in loaded.text
    assert "Page " not in loaded.text
    assert all(f"p{number}l0w0" in loaded.text for number in range(1, 5))


def test_pages_are_the_offsets_where_their_text_begins() -> None:
    loaded = load(build(*(running(number, words(f"p{number}l", 5)) for number in range(1, 5))))
    assert loaded.pages[0] == 0
    assert [loaded.text[offset:].split()[0] for offset in loaded.pages] == [f"p{n}l0w0" for n in range(1, 5)]


def test_a_page_without_text_begins_where_the_next_one_does() -> None:
    def picture(page: Page) -> None:
        pixels = pymupdf.Pixmap(pymupdf.csRGB, pymupdf.IRect(0, 0, 20, 20), False)
        pixels.clear_with(120)
        page.insert_image(pymupdf.Rect(50, 50, 300, 300), pixmap=pixels)

    loaded = load(build(running(1, words("one", 3)), picture, running(3, words("three", 3)), picture))
    assert loaded.text[loaded.pages[2] :].startswith("three0w0")
    assert loaded.pages[1] == loaded.pages[2]
    assert loaded.pages[3] == len(loaded.text)
    assert loaded.flags == ("pages-without-text:2",)


def test_a_paragraph_goes_on_over_the_page() -> None:
    loaded = load(build(running(1, words("one", 6)), running(2, ["and it ends here, on the second page."])))
    assert "one5w5 and it ends here" in loaded.text
    assert loaded.text[loaded.pages[1] :].startswith("and it ends here")


def test_headings_come_from_the_size_of_the_type() -> None:
    def draw(page: Page) -> None:
        page.insert_text((60, 80), "Tide gauges", fontsize=22, fontname="hebo")
        for y, name in ((130, "1 Mounting"), (300, "2 Care")):
            page.insert_text((60, y), name, fontsize=14, fontname="hebo")
            paragraph(page, 60, y + 25, words("x", 6))

    loaded = load(build(draw))
    headings = [line for line in loaded.text.split("\n") if line.startswith("#")]
    assert headings == ["# Tide gauges", "## 1 Mounting", "## 2 Care"]
    assert loaded.metadata.title == "Tide gauges"


def test_scattered_bold_words_are_no_heading() -> None:
    def draw(page: Page) -> None:
        page.insert_text((60, 80), "3", fontsize=10, fontname="hebo")
        page.insert_text((90, 80), "Leases", fontsize=10, fontname="hebo")
        paragraph(page, 60, 105, words("x", 5))
        for x, cell in ((200, "October 29, 2023"), (350, "October 30, 2022")):
            page.insert_text((x, 200), cell, fontsize=10, fontname="hebo")
        paragraph(page, 60, 225, words("y", 5))

    text = load(build(draw)).text
    assert [line for line in text.split("\n") if line.startswith("#")] == ["# 3 Leases"]
    assert "October 29, 2023 October 30, 2022" in text


def test_headings_have_the_level_that_the_outline_states() -> None:
    def draw(page: Page) -> None:
        for y, name in ((80, "Mounting"), (200, "The arm"), (320, "Care")):
            page.insert_text((60, y), name, fontsize=12, fontname="hebo")
            paragraph(page, 60, y + 25, words("x", 5))

    toc: list[list[object]] = [[1, "Mounting", 1], [2, "The arm", 1], [1, "Care", 1]]
    headings = [line for line in load(build(draw, toc=toc)).text.split("\n") if line.startswith("#")]
    assert headings == ["# Mounting", "## The arm", "# Care"]


def test_hyphens_of_the_typesetter_go_and_those_of_the_word_stay() -> None:
    def draw(page: Page) -> None:
        paragraph(
            page,
            60,
            100,
            [
                "The gauge sends its data to the hub by a cable that is long and that carries infor-",
                "mation both ways. It is a well-known fact that cables are eaten by mice, which is a well-",
                "known nuisance. Nobody has found a remedy that the mice did not come to like as well.",
            ],
        )

    text = load(build(draw)).text
    assert "carries information both ways" in text
    assert "a well-known nuisance" in text


def test_chinese_lines_are_joined_without_a_space() -> None:
    lines = ["校准实验室每日上午八点开门，值班人员应检查潮位计、风速仪和水温", "传感器，并在登记簿上签字。"]
    loaded = load(build(lambda page: paragraph(page, 60, 100, lines, font="china-s")))
    assert "和水温传感器" in loaded.text
    assert loaded.metadata.language == "zh"


ROWS = [
    ("Code", "Meaning", "Count"),
    ("E-101", "Battery low", "12"),
    ("E-102", "Sensor lost", "7"),
    ("E-103", "Wet", "3"),
]
TABLE = "| Code | Meaning | Count |\n| --- | --- | --- |\n| E-101 | Battery low | 12 |\n| E-102 | Sensor lost | 7 |\n"


@pytest.mark.parametrize("ruled", [True, False])
def test_a_table_becomes_a_pipe_table_with_or_without_rules(ruled: bool) -> None:
    def draw(page: Page) -> None:
        paragraph(page, 60, 80, words("before", 4))
        for index, row in enumerate(ROWS):
            y = 200 + 22 * index
            for x, cell in zip((65, 165, 305), row, strict=True):
                page.insert_text((x, y), cell, fontsize=10)
        if ruled:
            for index in range(5):
                page.draw_line((60, 185 + 22 * index), (400, 185 + 22 * index))
            for x in (60, 160, 300, 400):
                page.draw_line((x, 185), (x, 185 + 88))
        paragraph(page, 60, 320, words("after", 4))

    text = load(build(draw)).text
    assert TABLE in text
    assert text.index("before3w5") < text.index("| Code") < text.index("after0w0")
    assert text.count("Battery low") == 1


def test_code_keeps_its_lines_and_indentation() -> None:
    def draw(page: Page) -> None:
        paragraph(page, 60, 80, words("x", 8))
        paragraph(page, 60, 220, ["def add(a, b):"], font="cour")
        page.insert_text((84, 232.5), "return a + b", fontsize=10, fontname="cour")

    assert "```\ndef add(a, b):\n    return a + b\n```" in load(build(draw)).text


def test_bullets_become_list_items() -> None:
    def draw(page: Page) -> None:
        paragraph(page, 60, 80, words("x", 3))
        paragraph(page, 60, 140, ["\u00b7 a cable of ten metres;", "\u00b7 a bag of desiccant."])

    assert "- a cable of ten metres;\n- a bag of desiccant." in load(build(draw)).text


@pytest.mark.parametrize(
    ("stated", "title"),
    [
        ("Field maintenance", "Field maintenance"),
        ("untitled", "Tide gauges"),
        ("Microsoft Word - draft_v7.docx", "Tide gauges"),
        ("report_final.pdf", "Tide gauges"),
        ("", "Tide gauges"),
    ],
)
def test_the_stated_title_counts_only_where_it_is_one(stated: str, title: str) -> None:
    def draw(page: Page) -> None:
        page.insert_text((60, 80), "Tide gauges", fontsize=22)
        paragraph(page, 60, 120, words("x", 8))

    assert load(build(draw, title=stated)).metadata.title == title


def test_a_landscape_page_that_was_turned_is_read_upright() -> None:
    document = build(lambda page: paragraph(page, 60, 100, words("x", 5)))
    document[0].set_rotation(90)
    assert "x0w5 x1w0" in load(document).text


# --- files that cannot work, and files that work in part ------------------------------------------------------


def test_a_password_is_asked_for() -> None:
    document = build(running(1, words("x", 5)))
    data = document.tobytes(encryption=pymupdf.PDF_ENCRYPT_AES_256, user_pw="secret", owner_pw="owner")
    with pytest.raises(PermanentError, match="password") as caught:
        load(data)
    assert caught.value.document == "papers/a.pdf" and caught.value.hint


def test_an_empty_user_password_is_none() -> None:
    data = build(running(1, words("x", 5))).tobytes(encryption=pymupdf.PDF_ENCRYPT_AES_256, owner_pw="owner")
    assert "x0w0" in load(data).text


def test_a_scan_is_refused_and_says_why() -> None:
    def scan(page: Page) -> None:
        pixels = pymupdf.Pixmap(pymupdf.csRGB, pymupdf.IRect(0, 0, 50, 50), False)
        pixels.clear_with(200)
        page.insert_image(page.rect, pixmap=pixels)

    with pytest.raises(PermanentError, match="OCR is not supported yet"):
        load(build(scan, scan))


def test_too_many_pages_and_bytes_are_refused() -> None:
    document = build(*(running(number, words("x", 2)) for number in range(1, 4)))
    with pytest.raises(PermanentError, match="max_pages"):
        load(document, LoadConfig(max_pages=2))
    with pytest.raises(PermanentError, match="max_bytes"):
        load(document, LoadConfig(max_bytes=100))


@pytest.mark.parametrize("data", [b"", b"not a PDF at all", b"%PDF-1.7\n", b"%PDF-1.7\n" + b"\x00" * 5_000])
def test_what_is_no_pdf_is_refused(data: bytes) -> None:
    with pytest.raises(PermanentError):
        load(data)


def test_a_file_that_lost_its_tail_is_repaired_and_flagged() -> None:
    data = build(*(running(number, words(f"p{number}l", 8)) for number in range(1, 5))).tobytes()
    loaded = load(data[: data.rindex(b"xref")])
    assert "p1l0w0" in loaded.text
    assert "repaired" in loaded.flags


def test_zeros_inside_are_never_silent() -> None:
    """MuPDF repairs such a file and says nothing of what was lost."""
    whole = build(*(running(number, words(f"p{number}l", 8)) for number in range(1, 5))).tobytes(garbage=0)
    chance = random.Random(7)
    outcomes = set()
    for _ in range(12):
        start = chance.randrange(200, len(whole) - 700)
        damaged = whole[:start] + bytes(600) + whole[start + 600 :]
        try:
            loaded = load(damaged)
        except PermanentError:
            outcomes.add("refused")
            continue
        lost = [number for number in range(1, 5) if f"p{number}l7w5" not in loaded.text]
        assert not lost or loaded.flags, f"zeros at {start}: pages {lost} are gone without a flag"
        outcomes.add("flagged" if loaded.flags else "whole")
    assert "flagged" in outcomes or "refused" in outcomes


def test_loading_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    data = build(running(1, words("x", 5))).tobytes()
    load(data[: data.rindex(b"xref")])
    assert capfd.readouterr() == ("", "")


def test_loading_is_deterministic() -> None:
    data = build(*(running(number, words(f"p{number}l", 8)) for number in range(1, 5))).tobytes()
    assert load(data) == load(data)
