"""How lines of text are laid out on a terminal: wrapped to its width behind a hanging indent, no blanks at their ends.

Rich's padding and tables fill each line up to the width, which is in the way when output is copied, piped or compared.
"""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.text import Text

_TAB = 0x09
_LINES = (0x2028, 0x2029)  # Separators of lines and of paragraphs.
_DIRECTIONS = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))  # They let a name show in another order.
_CONTROLS = {code: "\ufffd" for code in (*range(0x20), *range(0x7F, 0xA0), *_LINES, *_DIRECTIONS) if code != _TAB}


def hanging(console: Console, text: str | Text, indent: int, head: str | Text = "") -> None:
    """Print ``text`` wrapped, each line ``indent`` columns in, with ``head`` in the first line's indent."""
    head, text = _styled(head), _styled(text)
    if head.cell_len > indent:
        console.print(head, soft_wrap=True)
        head = Text()
    width = max(console.width - indent, 20)
    for number, line in enumerate(text.wrap(console, width) or [Text()]):
        line.rstrip()
        lead = head if number == 0 else Text()
        lead.pad_right(indent - lead.cell_len)
        console.print(lead + line if line.plain else head, soft_wrap=True)


def _styled(text: str | Text) -> Text:
    styled = text.copy() if isinstance(text, Text) else Text(text)
    styled.plain = printable(styled.plain)
    return styled


def literal(text: str) -> str:
    """Return what is not ours for a text with Rich's markup: nothing of it is markup, or steers a terminal."""
    return escape(printable(text))


def printable(text: str) -> str:
    """Return a line without what steers a terminal: a document, or its name, is not to be trusted with that.

    A line break steers it too: what follows one in a name would look like a line of ours.
    """
    return text.translate(_CONTROLS)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 chunk``, ``1,200 chunks``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
