"""Python decisions: a function is as complex as its syntax tree says, and no visit is saved wrongly."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from sessiontree.survey.lines import lines_of
from sessiontree.survey.python_source import PythonSource, parse_python
from sessiontree.survey.syntax import masked

Complexities = Callable[[str], list[tuple[int, int]]]

SNIPPETS = [
    ("pass", 1),
    ("return a", 1),
    ("if a: pass", 2),
    ("if a: pass\nelse: pass", 2),
    ("if a: pass\nelif b: pass\nelse: pass", 3),
    ("for x in y: pass\nelse: pass", 2),
    ("while a: pass", 2),
    ("while a and b or c: pass", 4),
    ("return a and b and c", 3),
    ("return a if b else c", 2),
    ("return [x for x in y if a if b]", 4),
    ("return {x: y for x in a for y in b}", 3),
    ("return sum(x for x in y)", 2),
    ("return lambda x: x or 1", 2),
    ("return f'{a if b else c}'", 2),
    ("return rf'''\n{a or b}'''", 2),
    ("try: pass\nexcept A: pass\nexcept B: pass\nelse: pass\nfinally: pass", 3),
    ("try: pass\nexcept* (A or B): pass", 3),
    ("with a or b as c: pass", 2),
    ("assert a, b or c", 2),
    ("match a:\n    case 1 | 2: pass\n    case _: pass", 2),
    ("match a:\n    case [x] if x or y: pass\n    case other: pass", 4),
    ("match a:\n    case x if x: pass", 3),
    ("x = (\n    a\n    or b\n)", 2),
    ("x = [\n    a\n    for a in b\n]", 2),
    ("def g():\n    if a: pass", 1),
    ("class A:\n    if a: pass\n    x = a or b", 1),
    ("def g(a=b or c): pass", 2),
    ("@d(a or b)\ndef g(): pass", 2),
    ("'''if a and b or c'''", 1),
    ("x = 'a if b else c'  # if a and b", 1),
    ("async with a: pass\nasync for x in y: pass\nreturn [x async for x in y]", 3),
]


def measured(text: str) -> list[tuple[int, int]]:
    """Return line and complexity of each function."""
    source = parse_python(text, lines_of(masked(text, "python")))
    assert isinstance(source, PythonSource)
    return sorted((one.line, one.complexity) for one in source.definitions if one.kind == "function")


@pytest.mark.parametrize(("body", "complexity"), SNIPPETS, ids=range(len(SNIPPETS)))
def test_complexity_of_known_snippets(body: str, complexity: int) -> None:
    """One more than the decisions, those of functions and classes inside left out."""
    text = "async def f():\n" + "".join(f"    {line}\n" for line in body.split("\n"))
    assert measured(text)[0] == (1, complexity)


def visited(text: str) -> list[tuple[int, int]]:
    """Return the same from a visit of every node there is."""
    functions = [
        node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return sorted((function.lineno, 1 + _decisions(list(function.body))) for function in functions)


def _decisions(waiting: list[ast.AST] | list[ast.stmt]) -> int:
    count = 0
    nodes: list[ast.AST] = list(waiting)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If | ast.While | ast.For | ast.AsyncFor | ast.IfExp | ast.ExceptHandler):
            count += 1
        elif isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            count += 1 + len(node.ifs)
        elif isinstance(node, ast.match_case):
            fits_all = isinstance(node.pattern, ast.MatchAs) and node.pattern.pattern is None
            count += (node.guard is not None) + (node.guard is not None or not fits_all)
        inside: list[ast.stmt] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inside = node.body
        nodes.extend(child for child in ast.iter_child_nodes(node) if child not in inside)
    return count


def is_what_the_whole_tree_says(look: Complexities, files: list[Path]) -> None:
    """Every function of real files has the complexity that a visit of every node gives."""
    for path in files:
        text = path.read_text("utf-8")
        assert look(text) == visited(text), path


@pytest.mark.slow
def test_real_functions_are_as_complex_as_their_whole_tree_says(python_files: list[Path]) -> None:
    """Passing expressions by that can't decide misses none that does."""
    is_what_the_whole_tree_says(measured, python_files[::2])


def test_words_in_statements_alone_are_found_out(python_files: list[Path]) -> None:
    """The property kills a look that leaves out what expressions decide."""

    def statements_alone(text: str) -> list[tuple[int, int]]:
        source = parse_python(text, [])
        assert isinstance(source, PythonSource)
        return sorted((one.line, one.complexity) for one in source.definitions if one.kind == "function")

    with pytest.raises(AssertionError):
        is_what_the_whole_tree_says(statements_alone, python_files[::2])
