"""Python decisions: how many ways out of a statement there are, from the syntax tree.

A function's complexity is one more than its decisions. Decisions are: each `if`, `elif`, `for`, `while` and
`except`, each `case` that can fail and each guard, each `and` and `or`, each conditional expression, each
`for` and `if` of a comprehension. Not: `else`, `finally`, `with`, `assert`, the alternatives of a pattern.

Source: McCabe, A Complexity Measure, IEEE Transactions on Software Engineering SE-2 (4), 1976: the number of
predicates plus one, each condition of a compound predicate counted by itself.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

# every deciding expression shows one of these words; an f-string may hold one that isn't seen
_SIGN = re.compile(r"\b(?:and|or|else|for|[fF][rR]?(?=\")|[rR][fF](?=\"))")

_HOLDING = frozenset(
    (
        *(ast.If, ast.While, ast.For, ast.AsyncFor, ast.Try, ast.TryStar, ast.With, ast.AsyncWith, ast.Match),
        *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef),
    )
)
"""Statements that hold statements."""
_LEAVES = frozenset(
    (
        type(None),
        int,
        str,
        bytes,
        float,
        complex,
        bool,
        type(...),
        ast.Name,
        ast.Constant,
        ast.Load,
        ast.Store,
    )
)
"""What holds no expression."""
_DECIDING = frozenset((ast.BoolOp, ast.IfExp, ast.comprehension))


class DecidingLines:
    """Which lines may hold an expression that decides, so that most expressions need no visit."""

    __slots__ = ("_lines", "_ordered")

    def __init__(self, masked_lines: Iterable[str]) -> None:
        """Search lines without comments and strings, see ``syntax.masked``."""
        # the look for letters in a row is cheap and spares most lines the pattern
        self._ordered = [
            number
            for number, line in enumerate(masked_lines, start=1)
            if ("or" in line or "and" in line or "else" in line or '"' in line) and _SIGN.search(line)
        ]
        self._lines = frozenset(self._ordered)

    def touch(self, first: int, last: int) -> bool:
        """Return whether one of the lines from ``first`` to ``last`` may."""
        if first == last:
            return first in self._lines
        place = bisect_left(self._ordered, first)
        return place < len(self._ordered) and self._ordered[place] <= last


def decisions_in(expressions: Iterable[ast.AST | None], lines: DecidingLines) -> int:
    """Return the decisions of expressions, or of statements that hold no others.

    Contract: no recursion; linear in the number of nodes of those that stand on deciding lines.
    """
    count = 0
    waiting: list[Any] = []
    for expression in expressions:
        if expression is not None:
            first = getattr(expression, "lineno", 1)
            if lines.touch(first, getattr(expression, "end_lineno", None) or first):
                waiting.append(expression)
    while waiting:
        node = waiting.pop()
        if type(node) in _LEAVES:
            continue
        if type(node) in _DECIDING:
            count += _own_decisions(node)
        # a look at what a node holds, in place of `ast.iter_child_nodes`, takes half the time
        for held in vars(node).values():
            if type(held) is list:
                waiting.extend(held)
            elif type(held) not in _LEAVES:
                waiting.append(held)
    return count


def _own_decisions(node: ast.BoolOp | ast.IfExp | ast.comprehension) -> int:
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    return 1 if isinstance(node, ast.IfExp) else 1 + len(node.ifs)


def decisions_of(statement: ast.stmt, lines: DecidingLines) -> int:
    """Return the decisions of a statement without those of the statements it holds."""
    if type(statement) not in _HOLDING:
        if lines.touch(statement.lineno, statement.end_lineno or statement.lineno):
            return decisions_in((statement,), lines)
        return 0
    if isinstance(statement, ast.If | ast.While):
        return 1 + decisions_in((statement.test,), lines)
    if isinstance(statement, ast.For | ast.AsyncFor):
        return 1 + decisions_in((statement.target, statement.iter), lines)
    if isinstance(statement, ast.Try | ast.TryStar):
        types = [handler.type for handler in statement.handlers]
        return len(types) + decisions_in(types, lines)
    if isinstance(statement, ast.With | ast.AsyncWith):
        parts = [part for item in statement.items for part in (item.context_expr, item.optional_vars)]
        return decisions_in(parts, lines)
    if isinstance(statement, ast.Match):
        guards = [case.guard for case in statement.cases if case.guard is not None]
        failing = sum(1 for case in statement.cases if case.guard or not _always_fits(case.pattern))
        return failing + len(guards) + decisions_in((statement.subject, *guards), lines)
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        arguments = statement.args
        annotated = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        parts = [*statement.decorator_list, statement.returns, *arguments.defaults, *arguments.kw_defaults]
        return decisions_in((*parts, *annotated, arguments.vararg, arguments.kwarg), lines)
    if isinstance(statement, ast.ClassDef):
        return decisions_in((*statement.decorator_list, *statement.bases, *statement.keywords), lines)
    return 0


def _always_fits(pattern: ast.pattern) -> bool:
    return isinstance(pattern, ast.MatchAs) and pattern.pattern is None
