"""HTML: the content and its structure, none of the site's furniture."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.config import LoadConfig
from schemas.documents import LoadedDocument
from schemas.errors import PermanentError
from tasks.load.html_furniture import _Extracted
from tasks.load.loader import load_document

PAGE = """<!DOCTYPE html><html lang="en-GB"><head><title>Resetting a gauge – Harbour Docs</title>
<meta property="article:published_time" content="2025-03-04T10:00:00Z"><style>.x{}</style></head><body>
<header class="site-header"><a href="/">Harbour Docs</a>
<nav><ul><li><a href="/a">Products</a></li><li><a href="/b">Pricing</a></li></ul></nav></header>
<div id="cookie-banner"><p>We use cookies. Accept them all?</p><button>Accept</button></div>
<div class="page has-sidebar"><div class="sidebar"><ul><li><a href="/x">Getting started</a></li>
<li><a href="/y">Calibration</a></li></ul></div>
<div class="content"><h1>Resetting a gauge</h1>
<p>Hold the <code>MODE</code> button for <b>five seconds</b>. See <a href="https://x.example/cal">the guide</a>.</p>
<h2>By command line<a class="headerlink" href="#x">¶</a></h2>
<div class="highlight"><pre><code class="language-sh"><span># reset everything</span>
gauge reset --all

if [ -f /etc/gauge ]; then
    echo "done"
fi
</code></pre></div>
<h2>Error codes</h2>
<table><thead><tr><th>Code</th><th>Meaning</th></tr></thead><tbody>
<tr><td>E-101</td><td>Battery low | weak</td></tr><tr><td>E-102</td><td><p>Sensor</p><p>lost</p></td></tr>
</tbody></table>
<ul><li>One</li><li>Two<ul><li>Nested</li></ul></li></ul><ol start="3"><li>Third</li></ol>
<blockquote>Never open the case.</blockquote></div></div>
<footer><p>© 2025 Harbour Inc. All rights reserved.</p></footer><script>var a = "tracking";</script></body></html>"""

CONTENT = """# Resetting a gauge

Hold the `MODE` button for five seconds. See the guide.

## By command line

```sh
# reset everything
gauge reset --all

if [ -f /etc/gauge ]; then
    echo "done"
fi
```

## Error codes

| Code | Meaning |
| --- | --- |
| E-101 | Battery low \\| weak |
| E-102 | Sensor lost |

- One
- Two
  - Nested

3. Third

> Never open the case.
"""


def load(html: str | bytes) -> LoadedDocument:
    return load_document(html.encode() if isinstance(html, str) else html, "site/a.html", LoadConfig())


def test_content_keeps_its_structure_and_furniture_is_left_out() -> None:
    loaded = load(PAGE)
    assert loaded.text == CONTENT
    assert loaded.flags == ()


def test_the_head_is_metadata() -> None:
    metadata = load(PAGE).metadata
    assert (metadata.title, metadata.language, metadata.date) == ("Resetting a gauge", "en", dt.date(2025, 3, 4))


def test_a_date_in_the_running_text_is_not_the_documents() -> None:
    assert load("<p>The receipt is of 2019-05-06, printed on 7 May 2019.</p>").metadata.date is None


def test_a_page_without_recognisable_content_is_taken_whole_and_says_so() -> None:
    words = "<p>A reader wrote that the gauge at the ferry pier is late.</p>" * 5
    loaded = load(f"<html><body><nav><a href='/'>Home</a></nav><div class='comments'>{words}</div></body></html>")
    assert loaded.text.count("the gauge at the ferry pier is late.") == 5
    assert "Home" not in loaded.text
    assert loaded.flags == ("whole-body",)


def test_a_short_page_loses_neither_headings_nor_tables() -> None:
    """Article extractors squash pages like this one into a single paragraph."""
    loaded = load("<html><body><h1>Rates</h1><table><tr><th>Plan<th>Price<tr><td>S<td>29</table></body></html>")
    assert loaded.text == "# Rates\n\n| Plan | Price |\n| --- | --- |\n| S | 29 |\n"


def test_cells_over_several_rows_are_repeated_so_that_each_row_is_complete() -> None:
    loaded = load(
        "<h1>T</h1><table><tr><th>Port<th colspan=2>Tide</tr><tr><td rowspan=2>Kerrow<td>high<td>4.1</tr>"
        "<tr><td>low<td>0.9</tr></table>"
    )
    assert "| Port | Tide |  |\n| --- | --- | --- |\n| Kerrow | high | 4.1 |\n| Kerrow | low | 0.9 |\n" in loaded.text


def test_words_that_look_like_markdown_stay_words() -> None:
    text = load("<p># not a heading, just a hash that somebody wrote</p><p>``` nor a fence, of course not</p>").text
    assert text == "\\# not a heading, just a hash that somebody wrote\n\n\\``` nor a fence, of course not\n"


def test_backticks_in_code_do_not_close_its_fence() -> None:
    text = load("<p>Some words before the code.</p><pre>```\n# a\n```</pre>").text
    assert "````\n```\n# a\n```\n````" in text


def test_the_declared_encoding_is_used() -> None:
    page = '<html><head><meta charset="gb2312"></head><body><p>校准实验室每日上午八点开门。</p></body></html>'
    loaded = load(page.encode("gb18030"))
    assert loaded.text == "校准实验室每日上午八点开门。\n"
    assert loaded.metadata.language == "zh"


def test_a_templates_lang_is_not_believed_of_another_script() -> None:
    assert (
        load('<html lang="en"><body><p>校准实验室每日上午八点开门，周末休息。</p></body></html>').metadata.language
        == "zh"
    )


def test_text_lost_to_deep_nesting_is_flagged() -> None:
    assert "nesting-cut" in load("<div>" * 600 + "words" + "</div>" * 600).flags


@pytest.mark.parametrize("html", ["", "  \n", "<!-- only a comment -->", "<html><body></body></html>"])
def test_a_page_without_words_is_an_empty_document(html: str) -> None:
    assert load(html).text == ""


def test_character_references_bring_neither_nul_nor_surrogates() -> None:
    text = load("<p>a&#0;b&#xD800;c&#13;d and some more words</p>").text
    assert "\x00" not in text and "\r" not in text
    text.encode("utf-8")


@given(words=st.text("abc", max_size=60), texts=st.lists(st.text("abc", min_size=1, max_size=4), max_size=12))
def test_words_are_found_wherever_the_last_ones_were(words: str, texts: list[str]) -> None:
    extracted = _Extracted(words)
    assert [extracted.hold(text) for text in texts] == [text in words for text in texts]


def test_attributes_without_end_are_refused_at_once_and_a_long_address_is_not() -> None:
    """libxml2 compares each attribute with all before it: a minute of it for one megabyte."""
    many = " ".join(f"a{number}" for number in range(30_000))
    with pytest.raises(PermanentError, match="30,001 attributes"):
        load_document(f"<body><p {many}>words</p></body>".encode(), "x.html", LoadConfig())
    picture = "\n".join(["iVBORw0KGgo " * 6] * 20_000)
    page = f'<body><p>before</p><img src="data:image/png;base64,{picture}"><p>after</p></body>'
    assert "after" in load_document(page.encode(), "x.html", LoadConfig()).text
