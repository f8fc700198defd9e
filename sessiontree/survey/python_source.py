"""Python source: functions, classes, imports and documenting strings from the syntax tree.

One walk over all statements, without recursion; of expressions only those that may decide something.
"""

from __future__ import annotations

import ast
import re
import threading
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from sessiontree.survey.definitions import MAX_NAME_CHARS, Definition
from sessiontree.survey.imports import MAX_IMPORTS
from sessiontree.survey.python_decisions import DecidingLines, decisions_of

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

Body: TypeAlias = tuple[list[ast.stmt], str, int]
"""Statements, what the names in them begin with, and which function (by number, -1 = none) they belong to."""

_NO_FUNCTION = -1
_PARSING = threading.Lock()
"""CPython 3.11 counts the depth of a tree once for all threads: two that parse at a time fail at random."""


@dataclass(frozen=True, slots=True)
class PythonSource:
    """What a module's syntax tree says."""

    definitions: tuple[Definition, ...]
    """By line; nested ones are called ``outer.inner``."""
    imports: tuple[str, ...]
    """Module names, relative ones with their dots, each once, by line."""
    brought: tuple[str, ...]
    """Modules and what is imported from each, such as ``a.b`` and ``a.b.name``; as ``imports``."""
    importing: tuple[tuple[int, int], ...]
    """First and last line of each import."""
    documented: tuple[tuple[int, int], ...]
    """First and last line of each documenting string."""


def parse_python(text: str, masked_lines: Sequence[str]) -> PythonSource | str:
    """Return what the text defines and imports, or a sentence saying why it cannot be parsed.

    Args:
        text: The module's text.
        masked_lines: Its lines without comments and strings, see ``syntax.masked``.

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
    return _Visit(tree, DecidingLines(masked_lines)).result()


def _silence() -> None:
    """Keep the parser from warning about odd escapes in other people's strings.

    The filter names our own pseudo file alone. It is put in front each time, instead of a filter list saved
    and restored around the parse, because another thread may do the same at that moment.
    """
    warnings.filterwarnings("ignore", module=re.escape(_FILE_NAME))


class _Visit:
    """One walk over all statements."""

    def __init__(self, tree: ast.Module, lines: DecidingLines) -> None:
        self.lines = lines
        self.definitions: list[Definition] = []
        self.decisions: list[int] = []
        self.imports: dict[str, int] = {}
        self.brought: dict[str, int] = {}
        self.importing: list[tuple[int, int]] = []
        self.documented: list[tuple[int, int]] = []
        self._document(tree.body)
        waiting: list[Body] = [(tree.body, "", _NO_FUNCTION)]
        while waiting:
            statements, prefix, function = waiting.pop()
            for statement in statements:
                if function != _NO_FUNCTION:
                    self.decisions[function] += decisions_of(statement, lines)
                # most statements hold no others: one look-up passes them by
                if type(statement) in _INTERESTING:
                    waiting.extend(self._enter(statement, prefix, function))

    def result(self) -> PythonSource:
        definitions = (
            one if one.kind == "class" else replace(one, complexity=1 + decisions)
            for one, decisions in zip(self.definitions, self.decisions, strict=True)
        )
        return PythonSource(
            tuple(sorted(definitions, key=lambda definition: definition.line)),
            _first(self.imports),
            _first(self.brought),
            tuple(self.importing),
            tuple(self.documented),
        )

    def _enter(self, statement: ast.stmt, prefix: str, function: int) -> Iterator[Body]:
        kind = type(statement)
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = (prefix + statement.name)[:MAX_NAME_CHARS]
            is_class = kind is ast.ClassDef
            inner = _NO_FUNCTION if is_class else len(self.definitions)
            self.definitions.append(
                Definition(
                    "class" if is_class else "function",
                    name,
                    statement.lineno,
                    statement.end_lineno or statement.lineno,
                )
            )
            self.decisions.append(0)
            self._document(statement.body)
            yield statement.body, f"{name}.", inner
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            self._import(statement)
        elif kind in _NESTING:
            for field in _NESTING[kind]:
                held = getattr(statement, field)
                if field in {"handlers", "cases"}:
                    for part in held:
                        yield part.body, prefix, function
                elif held:
                    yield held, prefix, function

    def _import(self, statement: ast.Import | ast.ImportFrom) -> None:
        line = statement.lineno
        self.importing.append((line, statement.end_lineno or line))
        if isinstance(statement, ast.Import):
            modules = brought = [alias.name for alias in statement.names]
        else:
            module = "." * statement.level + (statement.module or "")
            inside = module if module.endswith(".") else f"{module}."
            modules = [module]
            brought = [module, *(inside + alias.name for alias in statement.names if alias.name != "*")]
        for found, names in ((self.imports, modules), (self.brought, brought)):
            for name in names:
                found[name] = min(line, found.get(name, line))

    def _document(self, body: list[ast.stmt]) -> None:
        first = body[0] if body else None
        if (
            isinstance(first, ast.Expr)
            and isinstance(first.value, ast.Constant)
            and isinstance(first.value.value, str)
        ):
            self.documented.append((first.lineno, first.end_lineno or first.lineno))


def _first(found: dict[str, int]) -> tuple[str, ...]:
    """Return the names by line, not too many."""
    return tuple(sorted(found, key=found.__getitem__)[:MAX_IMPORTS])
