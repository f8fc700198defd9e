"""Python source: definitions, imports and documenting strings as the language itself sees them."""

from __future__ import annotations

import ast
import threading
import warnings
from pathlib import Path

import pytest

from sessiontree.survey.lines import lines_of
from sessiontree.survey.python_source import MAX_PARSED_CHARS, PythonSource, parse_python
from sessiontree.survey.syntax import masked


def parsed(text: str) -> PythonSource | str:
    """Return what a text's syntax tree says."""
    return parse_python(text, lines_of(masked(text, "python")))


MODULE = '''"""Doc."""
import os, sys.path
from . import a
from ..b import c
from x.y import z

@decorated
class Outer(object):
    """Two
    lines."""

    async def method(self):
        def inner():
            import late
            return 1
        return inner

if True:
    def chosen(): pass
else:
    def chosen(): pass
try:
    import tried
except ImportError:
    import caught
finally:
    import last
match 1:
    case 1:
        def matched():
            return 2
'''


def test_functions_classes_imports_and_documents_are_found_wherever_they_stand() -> None:
    """Nested, asynchronous, conditional and matched definitions count; names tell where they are."""
    source = parsed(MODULE)
    assert isinstance(source, PythonSource)
    assert [(one.kind, one.name, one.line, one.end_line) for one in source.definitions] == [
        ("class", "Outer", 8, 16),
        ("function", "Outer.method", 12, 16),
        ("function", "Outer.method.inner", 13, 15),
        ("function", "chosen", 19, 19),
        ("function", "chosen", 21, 21),
        ("function", "matched", 30, 31),
    ]
    assert source.imports == ("os", "sys.path", ".", "..b", "x.y", "late", "tried", "caught", "last")
    assert source.documented == ((1, 1), (9, 10))


@pytest.mark.slow
def test_real_files_have_as_many_functions_and_imports_as_the_whole_tree_shows(
    python_files: list[Path],
) -> None:
    """Visiting statements alone misses nothing that a visit of every node finds."""
    assert len(python_files) > 60
    for path in python_files:
        text = path.read_text("utf-8")
        source = parsed(text)
        assert isinstance(source, PythonSource), path
        nodes = list(ast.walk(ast.parse(text)))
        definitions = {
            (node.name, node.lineno, node.end_lineno)
            for node in nodes
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        }
        assert {
            (one.name.rpartition(".")[2], one.line, one.end_line) for one in source.definitions
        } == definitions
        imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        imported |= {
            "." * node.level + (node.module or "") for node in nodes if isinstance(node, ast.ImportFrom)
        }
        assert set(source.imports) == imported, path


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("def f(:\n", "syntax error at line 1"),
        ("x = 1\n  y = 2\n", "syntax error at line 2: unexpected indent"),
        ("print 'two'\n", "syntax error at line 1"),
        ("(" * 100_000, "syntax error at line 1: too many nested parentheses"),
        ("-" * 100_000 + "1", "nested too deeply"),
        ("a" + ".b" * 100_000, "nested too deeply"),
        ("1" + "+1" * 100_000, "nested too deeply"),
        ("if a: pass\n" + "elif a: pass\n" * 20_000, "nested too deeply"),
        ("x = " + "1" * 5_000, "syntax error at line 1"),
        ("x = '\0'", ""),
        ("1," * MAX_PARSED_CHARS, "over 500,000 characters"),
    ],
    ids=range(11),
)
def test_what_cannot_be_parsed_says_why_and_never_raises(text: str, problem: str) -> None:
    """Bad syntax, nesting, numbers and sizes are sentences; also in a thread, where the stack is smaller."""
    answers: list[PythonSource | str] = []
    thread = threading.Thread(target=lambda: answers.append(parsed(text)))
    thread.start()
    thread.join()
    assert isinstance(answers[0], str)
    assert problem in answers[0]


def test_odd_escapes_in_surveyed_files_warn_nobody() -> None:
    """Warnings about other people's strings do not surface, even where warnings are errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        source = parsed("import re\nx = '\\d'\ny = 0x1for x in y\n")
        assert isinstance(source, PythonSource)
        with pytest.raises((SyntaxWarning, DeprecationWarning, SyntaxError)):
            compile("x = '\\d'\n", "<another file>", "exec")


def test_repeated_parsing_leaves_one_warning_filter() -> None:
    """The list of filters does not grow with the number of files."""
    with warnings.catch_warnings():
        parsed("x = 1\n")
        before = len(warnings.filters)
        for _ in range(20):
            parsed("x = 1\n")
        assert len(warnings.filters) == before
