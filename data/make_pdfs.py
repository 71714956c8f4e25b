"""Make the PDF documents of the sample corpus.

The text lives in ``pdf_text/``; this script holds only the layout. It builds
the same files each time it runs, byte for byte with the same PyMuPDF.

    python data/make_pdfs.py [OUTPUT_FOLDER]

The output folder defaults to ``data/corpus``.
"""

from __future__ import annotations

import argparse
import io
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pymupdf

HERE = Path(__file__).resolve().parent
TEXT = HERE / "pdf_text"

PAPER = pymupdf.paper_rect("a4")
MARGIN = 64.0
GUTTER = 22.0
BLUE = (0.07, 0.27, 0.40)
PALE = (0.90, 0.94, 0.96)
GREY = (0.40, 0.43, 0.46)

BASE_CSS = """
* { font-family: sans-serif; }
body { margin: 0; font-size: 10.5pt; line-height: 1.42; color: #1a1d20; }
h1 { font-size: 24pt; line-height: 1.15; margin: 0 0 8pt 0; color: #124566; }
h2 { font-size: 14pt; margin: 16pt 0 4pt 0; color: #124566; }
h3 { font-size: 11pt; margin: 10pt 0 2pt 0; }
p { margin: 0 0 6pt 0; }
ul, ol { margin: 2pt 0 8pt 0; padding-left: 16pt; }
li { margin: 0 0 3pt 0; }
.lead { color: #5a6268; margin-bottom: 12pt; }
table { margin: 6pt 0 10pt 0; }
th, td { text-align: left; padding: 2pt 18pt 2pt 0; }
th { color: #124566; }
"""

ARTICLE_CSS = """
* { font-family: "Times New Roman"; }
body { margin: 0; font-size: 10.2pt; line-height: 1.34; }
h2 { font-size: 11pt; margin: 9pt 0 3pt 0; color: #124566; }
p { margin: 0 0 5pt 0; text-align: justify; }
.abstract { font-size: 9.8pt; margin-bottom: 8pt; }
"""


@dataclass(frozen=True)
class Heading:
    """A heading of the flowed text, where it stands, and how deep it is."""

    level: int
    text: str
    page: int
    y: float


@dataclass(frozen=True)
class Flowed:
    """A document filled with text, and the headings that it contains."""

    document: pymupdf.Document
    headings: list[Heading]


# --- shared parts ---------------------------------------------------------


def flow(html: str, css: str, boxes: Callable[[int], list[pymupdf.Rect]]) -> Flowed:
    """Pour HTML into the boxes of as many pages as it needs."""
    story = pymupdf.Story(html, user_css=css)
    headings: list[Heading] = []
    buffer = io.BytesIO()
    writer = pymupdf.DocumentWriter(buffer)
    page, more = 0, True
    while more:
        device = writer.begin_page(PAPER)
        for box in boxes(page):
            if more:
                more, _ = story.place(box)
                story.element_positions(_collect(headings, page))
                story.draw(device)
        writer.end_page()
        page += 1
    writer.close()
    return Flowed(pymupdf.open("pdf", buffer.getvalue()), headings)


def _collect(headings: list[Heading], page: int) -> Callable[..., None]:
    """Return a callback that notes each heading as it begins."""

    def note(position: object) -> None:
        if position.heading and position.open_close & 1:
            top = position.rect[1]
            headings.append(Heading(position.heading, position.text, page, top))

    return note


def single_column(_page: int) -> list[pymupdf.Rect]:
    """Give one wide box, below the running header and above the footer."""
    return [PAPER + (MARGIN, 78, -MARGIN, -78)]


def put(
    page: pymupdf.Page,
    point: tuple[float, float],
    text: str,
    size: float = 8.5,
    font: str = "helv",
    color: tuple[float, float, float] = GREY,
    align: str = "left",
) -> None:
    """Write one line of text, with ``point`` at its left or right end."""
    x, y = point
    if align == "right":
        x -= pymupdf.get_text_length(text, fontname=font, fontsize=size)
    page.insert_text((x, y), text, fontsize=size, fontname=font, color=color)


def rule(page: pymupdf.Page, y: float, width: float = 0.6) -> None:
    """Draw a line across the type area."""
    ends = (MARGIN, y), (PAPER.width - MARGIN, y)
    page.draw_line(*ends, color=BLUE, width=width)


def running_lines(document: pymupdf.Document, left: str, right: str) -> None:
    """Put a header and a footer with page numbers on every page."""
    edge = PAPER.width - MARGIN
    for page in document:
        put(page, (MARGIN, 50), left)
        put(page, (edge, 50), right, align="right")
        rule(page, 58)
        foot = PAPER.height - 44
        put(page, (MARGIN, foot), "Ebbstone Instruments Ltd")
        number = f"Page {page.number + 1} of {len(document)}"
        put(page, (edge, foot), number, align="right")


def save(document: pymupdf.Document, path: Path, title: str) -> None:
    """Write the file with fixed metadata, so that it never changes by itself."""
    stamp = "D:20250701090000Z"
    document.set_metadata(
        {
            "title": title,
            "author": "Ebbstone Instruments Ltd",
            "creationDate": stamp,
            "modDate": stamp,
        }
    )
    document.subset_fonts()
    path.parent.mkdir(parents=True, exist_ok=True)
    document.save(path, garbage=4, deflate=True, no_new_id=True)


def read(name: str) -> str:
    """Return one of the text files."""
    return (TEXT / name).read_text(encoding="utf-8")


# --- the manual: several pages, running header and footer ------------------


def make_manual(path: Path) -> None:
    """Make the manual of the Petrel 320."""
    document = flow(read("petrel-320-manual.html"), BASE_CSS, manual_boxes).document
    draw_gauge(document[0])
    running_lines(document, "Petrel 320: installation and service", "EB-M-320")
    save(document, path, "Petrel 320 installation and service manual")


def manual_boxes(page: int) -> list[pymupdf.Rect]:
    """Leave room at the foot of the first page for the drawing."""
    (box,) = single_column(page)
    return [box + (0, 0, 0, -174)] if page == 0 else [box]


def draw_gauge(page: pymupdf.Page) -> None:
    """Sketch a gauge on its wall, the beam, and the water."""
    left, sea = 150.0, 730.0
    page.draw_rect((left, 596, left + 34, sea + 28), color=BLUE, fill=PALE)
    page.draw_line((left + 34, 610), (left + 118, 610), color=BLUE, width=4)
    page.draw_rect((left + 104, 612, left + 132, 636), color=BLUE, fill=(1, 1, 1))
    beam = [(left + 118, 638), (left + 97, sea), (left + 139, sea)]
    page.draw_polyline(beam, color=GREY, dashes="[3 3]", closePath=True)
    waves = [(x, sea + 3 * math.sin(x / 7)) for x in range(int(left) + 34, 470, 2)]
    page.draw_polyline(waves, color=BLUE, width=1.4)
    page.draw_line((left + 170, 636), (left + 170, sea), color=GREY)
    put(page, (left + 178, 628), "lens")
    put(page, (left + 178, 686), "air gap, 0.40 m to 35 m")
    put(page, (left + 178, sea - 8), "water")
    caption = "Figure 1. A Petrel 320 on its arm. Not to scale."
    put(page, (left, sea + 44), caption, font="hebo")


# --- the article: two columns ----------------------------------------------

#: Where both columns of the second page end, so that they are equally long.
LAST_LINE = 312.0


def make_article(path: Path) -> None:
    """Make Technical Note 6, with its title over two columns."""
    document = flow(read("technical-note-6.html"), ARTICLE_CSS, article_boxes).document
    first = document[0]
    put(first, (MARGIN, 104), "Reading a noisy harbour", 24, "tibo", BLUE)
    subtitle = "How the Petrel 320 tells the tide from the ferry"
    put(first, (MARGIN, 126), subtitle, 13, "tiit", GREY)
    authors = "Marguerite Adeyemi, Port Kerrow, and Lin Xiaolan, Xiamen"
    put(first, (MARGIN, 146), authors, 10, "tiro", (0, 0, 0))
    rule(first, 156)
    draw_curves(first, pymupdf.Rect(column(1, 172, 318)))
    running_lines(document, "Ebbstone Technical Notes", "No. 6, June 2025")
    save(document, path, "Reading a noisy harbour (Technical Note 6)")


def column(index: int, top: float, bottom: float) -> pymupdf.Rect:
    """Return the left (0) or right (1) column between two heights."""
    width = (PAPER.width - 2 * MARGIN - GUTTER) / 2
    x = MARGIN + index * (width + GUTTER)
    return pymupdf.Rect(x, top, x + width, bottom)


def article_boxes(page: int) -> list[pymupdf.Rect]:
    """Give two columns; on the first page below the title and the figure."""
    if page == 0:
        bottom = PAPER.height - 72
        return [column(0, 168, bottom), column(1, 338, bottom)]
    return [column(0, 74, LAST_LINE), column(1, 74, LAST_LINE)]


def draw_curves(page: pymupdf.Page, box: pymupdf.Rect) -> None:
    """Plot a made-up flood tide, with and without the swing of a ferry."""
    page.draw_rect(box, color=GREY, width=0.5)
    inner = box + (8, 10, -8, -10)
    raw = list(curve(inner, swing=17.0))
    page.draw_polyline(raw, color=(0.65, 0.70, 0.74), width=0.9)
    page.draw_polyline(list(curve(inner, swing=0.0)), color=BLUE, width=1.5)
    put(page, (box.x0 + 10, box.y0 + 18), "grey: as heard", 7.5)
    put(page, (box.x0 + 10, box.y0 + 29), "blue: as published", 7.5, color=BLUE)
    caption = "Figure 1. Two hours of flood at Stranmere."
    put(page, (box.x0, box.y1 + 12), caption, 8, "tiit")


def curve(box: pymupdf.Rect, swing: float) -> Iterator[tuple[float, float]]:
    """Yield the points of a rising tide with a swing that dies away."""
    for step in range(241):
        part = step / 240
        tide = (1 - math.cos(math.pi * part)) / 2
        since = max(0.0, part - 0.35)
        ferry = swing * math.exp(-5 * since) * math.sin(2 * math.pi * since * 11)
        yield box.x0 + part * box.width, box.y1 - 12 - tide * 100 - ferry


# --- the procedures: outline -------------------------------------------------


def make_procedures(path: Path) -> None:
    """Make the field procedures, with bookmarks for the headings."""
    flowed = flow(read("field-maintenance.html"), BASE_CSS, single_column)
    document = flowed.document
    running_lines(document, "Field maintenance procedures", "EB-P-100")
    document.set_toc([outline_entry(heading) for heading in flowed.headings])
    save(document, path, "Field maintenance procedures")


def outline_entry(heading: Heading) -> list:
    """Return one line of the outline in the form that PyMuPDF wants."""
    target = {"kind": pymupdf.LINK_GOTO, "to": pymupdf.Point(0, heading.y)}
    return [heading.level, heading.text, heading.page + 1, target]


# --- the data sheet: a ruled table -------------------------------------------

COLUMNS = (MARGIN, MARGIN + 112, MARGIN + 310, PAPER.width - MARGIN)
ROW_HEIGHT = 21.0


def make_data_sheet(path: Path) -> None:
    """Make the one-page data sheet of the Limpet 20."""
    document = pymupdf.open()
    page = document.new_page(width=PAPER.width, height=PAPER.height)
    put(page, (MARGIN, 104), "Limpet 20", 26, "hebo", BLUE)
    subtitle = "Pressure gauge for tide and surge, to 20 m"
    put(page, (MARGIN, 124), subtitle, 12)
    y = 142.0
    for line in read("limpet-20-data-sheet.tsv").splitlines():
        y = draw_row(page, y, line)
    running_lines(document, "Data sheet", "EB-D-L20, issue 5, May 2025")
    save(document, path, "Limpet 20 data sheet")


def draw_row(page: pymupdf.Page, y: float, line: str) -> float:
    """Draw a section bar, a table row or a note; return where the next begins."""
    if line.startswith("> "):
        put(page, (MARGIN, y + 18), line[2:], 9.2)
        return y + 14
    if line.startswith("# "):
        bar = pymupdf.Rect(COLUMNS[0], y, COLUMNS[-1], y + ROW_HEIGHT)
        page.draw_rect(bar, color=BLUE, fill=PALE, width=0.6)
        put(page, (bar.x0 + 6, y + 14.5), line[2:], 10, "hebo", BLUE)
        return y + ROW_HEIGHT
    cells = (line.split("\t") + ["", ""])[:3]
    for index, text in enumerate(cells):
        cell = (COLUMNS[index], y, COLUMNS[index + 1], y + ROW_HEIGHT)
        page.draw_rect(cell, color=GREY, width=0.5)
        font = "hebo" if index == 0 else "helv"
        put(page, (cell[0] + 6, y + 14), text, 8.8, font, (0.1, 0.1, 0.1))
    return y + ROW_HEIGHT


# --- all of them ---------------------------------------------------------------

MAKERS: dict[str, Callable[[Path], None]] = {
    "devices/petrel-320-manual.pdf": make_manual,
    "devices/limpet-20-data-sheet.pdf": make_data_sheet,
    "devices/field-maintenance-procedures.pdf": make_procedures,
    "engineering/technical-note-6-noisy-harbour.pdf": make_article,
}


def make_all(folder: Path) -> list[Path]:
    """Make every PDF below ``folder`` and return the paths."""
    paths = []
    for name, make in MAKERS.items():
        make(folder / name)
        paths.append(folder / name)
    return paths


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Make the PDFs of the corpus.")
    parser.add_argument("folder", nargs="?", type=Path, default=HERE / "corpus")
    for path in make_all(parser.parse_args().folder):
        print(path)


if __name__ == "__main__":
    main()
