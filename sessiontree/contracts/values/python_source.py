"""The syntax tree of Python source, also while other threads parse."""

from __future__ import annotations

import ast
from typing import Final

_ATTEMPTS: Final = 20


def parse_python(source: str | bytes) -> ast.Module:
    """Return the syntax tree of Python source.

    CPython 3.11 and 3.12 count the depth of nodes once for all threads. If one thread parses while another
    does, either may find a wrong depth at its end and raise ``SystemError``, although nothing is wrong with
    the source.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: it can't be parsed.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return ast.parse(source)
        except SystemError:
            continue
    return ast.parse(source)
