"""Python source by Python's own parser."""

from __future__ import annotations

import ast
import warnings

from tasks.memory import is_used_up


def parse_python(source: str) -> ast.Module | None:
    """Return the syntax tree; None for what does not parse: Python 2, a template, a fragment, nesting beyond limits.

    A tree takes ~330 times the memory of a source at worst, and the time grows with the square of a line's length
    where that is full of f-strings: a large source is parsed in a worker (``tasks/isolation.py``).

    Raises:
        MemoryError: this process may have no more.
    """
    try:
        with warnings.catch_warnings():
            # Old files warn about escapes; that is their business, not the indexer's.
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except MemoryError:
        if is_used_up():
            raise
        return None
    except (SyntaxError, ValueError, RecursionError):
        return None
