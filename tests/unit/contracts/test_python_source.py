"""Python source is parsed, whatever other threads parse meanwhile."""

from __future__ import annotations

import ast

import pytest

from sessiontree.contracts.values.python_source import parse_python


def test_disturbed_parse_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """As CPython raises it where another thread has parsed in between."""
    disturbed, parse = [True, True, False], ast.parse

    def parsed(source: str) -> ast.Module:
        if disturbed.pop(0):
            raise SystemError("AST constructor recursion depth mismatch (before=33, after=51)")
        return parse(source)

    monkeypatch.setattr(ast, "parse", parsed)
    assert ast.dump(parse_python("a = 1")) == ast.dump(parse("a = 1"))
    assert disturbed == []


def test_what_is_wrong_with_the_source_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once if it is the source's fault, and at last if it is the interpreter's."""
    with pytest.raises(SyntaxError):
        parse_python("a =")

    def broken(source: str) -> ast.Module:
        raise SystemError("broken")

    monkeypatch.setattr(ast, "parse", broken)
    with pytest.raises(SystemError, match="broken"):
        parse_python("a = 1")
