"""Source code as units: definitions with their comments, and what lies between them.

``read_code`` is the one seam for a better reader of a language: Python goes by its own parser, every other language
(and Python that does not parse) by blank lines and indentation, which holds for most code that people format.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from tasks.chunk.blocks import paragraph_blocks
from tasks.chunk.titles import shorten
from tasks.python_source import parse_python

MAX_PARSED = 4 * 2**20
"""Code points. Python's syntax tree takes ~100 times the memory of its source; generated files are cut by lines."""

MAX_DEFINITIONS = 200
"""More names than any context has room for."""

MAX_DEPTH = 50
"""Definitions within definitions; what lies deeper is not opened."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A stretch of code that belongs together.

    Attributes:
        start, end: code points; units of one list tile the range that they come from.
        name: of the definition that it is; "" for what lies between definitions.
        parts: for a definition that contains others: its head and those, tiling it.
    """

    start: int
    end: int
    name: str = ""
    parts: tuple[Unit, ...] = ()


_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_LINE_END = re.compile(r"\r\n|\r|\n")
_MODIFIERS = (
    r"(?:(?:export|default|declare|pub(?:\([^()\n]*\))?|public|private|protected|internal|static|final|abstract|"
    r"async|unsafe|extern(?:[ ]\"[^\"\n]*\")?|inline|constexpr|sealed|open|data|partial|override|virtual)[ ]+)*"
)
_FUNCTIONS_AND_TYPES = r"(?:function\*?|class|def|fn|func|fun|struct|interface|enum|trait|record|protocol)"
_TOP_ONLY = r"(?:type|typedef|const|module|mod|namespace|object|macro_rules!|#define|create[ ](?:table|view|function))"
_NAME = r"(?:\([^()\n]*\)[ ]*)?(?:<[^<>\n]*>[ ]*)?(?:(?:class|struct|fn|if not exists)[ ]+)?([A-Za-z_$][\w$]*)"
_IMPL = r"(?:unsafe[ ]+)?impl(?:<[^>\n]*>)?[ ]+(?:[^{\n]{0,120}?[ ]for[ ]+)?(?:\w+::)*([A-Za-z_]\w*)"
# `int main(int argc)`, `void Shape::draw()`: no keyword, but a type, a name, a bracket, and no semicolon after it.
_TYPED = (
    r"(?!(?:return|else|new|throw|await|case|goto|using|import|package)\b)"
    r"[A-Za-z_][\w:<>,\[\]*&. ]{0,200}[ *&](?:\w+::)*([A-Za-z_]\w*)\([^;\n]*$"
)
# The name is the last group that matched.
_DEFINES_TOP = re.compile(
    rf"^(?:{_MODIFIERS}(?:{_FUNCTIONS_AND_TYPES}|{_TOP_ONLY})[ ]+{_NAME}|{_IMPL}|{_TYPED})",
    re.MULTILINE | re.IGNORECASE,
)
_DEFINES = re.compile(
    rf"^(?:(?:[ \t]{{0,8}}{_MODIFIERS}{_FUNCTIONS_AND_TYPES}|{_MODIFIERS}{_TOP_ONLY})[ ]+{_NAME}|{_IMPL}"
    rf"|(?:[ \t]{{0,8}}(?:public|private|protected)[ ]+)?{_TYPED})",
    re.MULTILINE | re.IGNORECASE,
)
_CLOSER = re.compile(r"[})\]]|end\b|else\b|elif\b|except\b|finally\b|catch\b|\{")


def read_code(text: str, syntax: str | None) -> tuple[tuple[Unit, ...], tuple[str, ...]]:
    """Return the units that tile a file, and the names that it defines: in order, each once, 200 at most.

    Args:
        text: the whole file.
        syntax: its language, as ``Metadata.syntax``.
    """
    module = parse_python(text) if syntax == "python" and len(text) <= MAX_PARSED else None
    if module is not None:
        return _python_units(text, module), _first(_python_names(module.body))
    return tuple(_regions(text)), _first(match[match.lastindex or 0] for match in _DEFINES.finditer(text))


def _first(names: Iterable[str]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for name in names:
        found.setdefault(name)
        if len(found) == MAX_DEFINITIONS:
            break
    return tuple(found)


def _python_names(body: Sequence[ast.stmt]) -> Iterator[str]:
    for statement in body:
        if isinstance(statement, _Definition):
            if not statement.name.startswith("__"):
                yield statement.name
            if isinstance(statement, ast.ClassDef):
                yield from _python_names([s for s in statement.body if isinstance(s, _Definition)])
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            yield from (t.id for t in targets if isinstance(t, ast.Name) and not t.id.startswith("__"))


def _python_units(text: str, module: ast.Module) -> tuple[Unit, ...]:
    lines = [0, *(match.end() for match in _LINE_END.finditer(text))]

    def first_line(definition: _Definition, floor: int) -> int:
        """Return where a definition begins: its decorators and the comment lines directly above belong to it."""
        line = min([definition.lineno, *(d.lineno for d in definition.decorator_list)]) - 1
        while line - 1 >= floor and text[lines[line - 1] : lines[line]].lstrip().startswith("#"):
            line -= 1
        return lines[line]

    def parts(body: Sequence[ast.stmt], start: int, end: int, depth: int) -> tuple[Unit, ...]:
        found: list[Unit] = []
        position, floor = start, bisect_right(lines, start) - 1
        for i, statement in enumerate(body):
            if isinstance(statement, _Definition):
                begin = max(first_line(statement, floor), position)
                if text[position:begin].strip():
                    found.append(Unit(position, begin))
                    position = begin
                # Several statements can share a line; a definition then ends where the next line begins.
                after = lines[statement.end_lineno or statement.lineno] if _has_line(statement, lines) else len(text)
                after = end if i == len(body) - 1 else min(after, end)
                inner = parts(statement.body, position, after, depth + 1) if depth < MAX_DEPTH else ()
                found.append(Unit(position, after, shorten(statement.name), inner if len(inner) > 1 else ()))
                position = after
            floor = statement.end_lineno or statement.lineno
        if position < end:
            found.append(Unit(position, end))
        return tuple(found)

    return parts(module.body, 0, len(text), 1)


def _has_line(statement: _Definition, lines: Sequence[int]) -> bool:
    return (statement.end_lineno or statement.lineno) < len(lines)


def _regions(text: str) -> Iterator[Unit]:
    """Yield regions that begin, after a blank line, with an unindented line that opens something."""
    start = end = 0
    for block in paragraph_blocks(text):
        opens = not text[block.start].isspace() and not _CLOSER.match(text, block.start)
        if opens and end > start:
            yield _named(text, start, block.start)
            start = block.start
        end = block.end
    if end > start:
        yield _named(text, start, len(text))


def _named(text: str, start: int, end: int) -> Unit:
    names = [match[match.lastindex or 0] for match in islice(_DEFINES_TOP.finditer(text, start, end), 2)]
    return Unit(start, end, shorten(names[0]) if len(names) == 1 else "")
