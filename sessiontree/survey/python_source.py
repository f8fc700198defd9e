"""Python source: functions, classes, imports and documenting strings from the syntax tree.

Only statements are visited, never expressions, and without recursion.
"""

from __future__ import annotations

import ast
import re
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from sessiontree.survey.definitions import MAX_NAME_CHARS, Definition
from sessiontree.survey.imports import MAX_IMPORTS

MAX_PARSED_CHARS = 500_000
"""Longest text that is parsed: a tree takes up to 330 times the text's memory and holds the interpreter."""

_FILE_NAME = "<surveyed Python source>"
_NESTING: dict[type[ast.stmt], tuple[str, ...]] = {
    ast.If: ("body", "orelse"),
    ast.For: ("body", "orelse"),
    ast.AsyncFor: ("body", "orelse"),
    ast.While: ("body", "orelse"),
    ast.With: ("body",),
    ast.AsyncWith: ("body",),
    ast.Try: ("body", "handlers", "orelse", "finalbody"),
    ast.TryStar: ("body", "handlers", "orelse", "finalbody"),
    ast.Match: ("cases",),
}
_INTERESTING = frozenset(
    (*_NESTING, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
)

_PARSING = threading.Lock()
"""CPython 3.11 counts the depth of a tree once for all threads: two that parse at a time fail at random."""


@dataclass(frozen=True, slots=True)
class PythonSource:
    """What a module's syntax tree says."""

    definitions: tuple[Definition, ...]
    """By line; nested ones are called ``outer.inner``."""
    imports: tuple[str, ...]
    """Module names, relative ones with their dots, each once, by line."""
    documented: tuple[tuple[int, int], ...]
    """First and last line of each documenting string."""


def parse_python(text: str) -> PythonSource | str:
    """Return what the text defines and imports, or a sentence saying why it cannot be parsed.

    Contract: never raises and warns about nothing; holds the interpreter while parsing.
    """
    if len(text) > MAX_PARSED_CHARS:
        return f"over {MAX_PARSED_CHARS:,} characters; searched line by line instead of parsed"
    _silence()
    try:
        with _PARSING:
            tree = ast.parse(text, _FILE_NAME)
    except SyntaxError as error:
        return f"syntax error at line {error.lineno or 0}: {error.msg}"
    except ValueError as error:
        return f"can't be parsed: {error}"
    except (RecursionError, MemoryError):
        return "nested too deeply to be parsed"
    return _Visit(tree).result()


def _silence() -> None:
    """Keep the parser from warning about odd escapes in other people's strings.

    The filter names our own pseudo file alone. It is put in front each time, instead of a filter list saved
    and restored around the parse, because another thread may do the same at that moment.
    """
    warnings.filterwarnings("ignore", module=re.escape(_FILE_NAME))


class _Visit:
    """One walk over all statements."""

    def __init__(self, tree: ast.Module) -> None:
        self.definitions: list[Definition] = []
        self.imports: dict[str, int] = {}
        self.documented: list[tuple[int, int]] = []
        self._document(tree.body)
        waiting: list[tuple[list[ast.stmt], str]] = [(tree.body, "")]
        while waiting:
            statements, prefix = waiting.pop()
            for statement in statements:
                # most statements are expressions and assignments: one look-up passes them by
                if type(statement) in _INTERESTING:
                    waiting.extend(self._enter(statement, prefix))

    def result(self) -> PythonSource:
        by_line = sorted(self.imports, key=self.imports.__getitem__)
        return PythonSource(
            tuple(sorted(self.definitions, key=lambda definition: definition.line)),
            tuple(by_line[:MAX_IMPORTS]),
            tuple(self.documented),
        )

    def _enter(self, statement: ast.stmt, prefix: str) -> Iterator[tuple[list[ast.stmt], str]]:
        kind = type(statement)
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = (prefix + statement.name)[:MAX_NAME_CHARS]
            self.definitions.append(
                Definition(
                    "class" if kind is ast.ClassDef else "function",
                    name,
                    statement.lineno,
                    statement.end_lineno or statement.lineno,
                )
            )
            self._document(statement.body)
            yield statement.body, f"{name}."
        elif isinstance(statement, ast.Import):
            for alias in statement.names:
                self._import(alias.name, statement.lineno)
        elif isinstance(statement, ast.ImportFrom):
            self._import("." * statement.level + (statement.module or ""), statement.lineno)
        elif kind in _NESTING:
            for field in _NESTING[kind]:
                inner = getattr(statement, field)
                if field in {"handlers", "cases"}:
                    for part in inner:
                        yield part.body, prefix
                elif inner:
                    yield inner, prefix

    def _import(self, module: str, line: int) -> None:
        self.imports[module] = min(line, self.imports.get(module, line))

    def _document(self, body: list[ast.stmt]) -> None:
        first = body[0] if body else None
        if (
            isinstance(first, ast.Expr)
            and isinstance(first.value, ast.Constant)
            and isinstance(first.value.value, str)
        ):
            self.documented.append((first.lineno, first.end_lineno or first.lineno))
