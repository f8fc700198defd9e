"""JSON from outside: whoever expects that it can't be read expects every way in which it can't be read."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

EXPECTED = {"ValueError", "JSONDecodeError"}
ENOUGH = {"RecursionError", "Exception", "BaseException"}


def list_caught(node: ast.AST) -> set[str]:
    """Return the names of the errors that a statement catches."""
    caught: list[ast.expr] = []
    if isinstance(node, ast.Try):
        caught = [each.type for each in node.handlers if each.type is not None]
    elif isinstance(node, ast.With):
        calls = [each.context_expr for each in node.items if isinstance(each.context_expr, ast.Call)]
        caught = [name for call in calls if ast.unparse(call.func).endswith("suppress") for name in call.args]
    parts = [part for each in caught for part in (each.elts if isinstance(each, ast.Tuple) else [each])]
    return {ast.unparse(part).rpartition(".")[2] for part in parts}


def list_half_readers(text: str) -> Iterator[int]:
    """Yield the lines that read JSON and expect ``ValueError``, but no nesting that is too deep."""
    for node in ast.walk(ast.parse(text)):
        caught = list_caught(node)
        if not isinstance(node, ast.Try | ast.With) or not caught & EXPECTED or caught & ENOUGH:
            continue
        for inner in (each for statement in node.body for each in ast.walk(statement)):
            if isinstance(inner, ast.Call) and ast.unparse(inner.func) == "json.loads":
                yield inner.lineno


def test_each_reader_expects_deep_nesting(checkout: Path) -> None:
    """``parse_json`` raises ``ValueError`` alone; ``json.loads`` may raise ``RecursionError``, too."""
    found = [
        f"{path.relative_to(checkout)}:{line}"
        for room in ("sessiontree", "tools")
        for path in sorted((checkout / room).rglob("*.py"))
        if "json.loads" in (text := path.read_text("utf-8"))
        for line in list_half_readers(text)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("try:\n    json.loads(x)\nexcept ValueError:\n    pass", True),
        ("with suppress(OSError, ValueError):\n    a = f(json.loads(x))", True),
        ("try:\n    json.loads(x)\nexcept (json.JSONDecodeError, KeyError):\n    pass", True),
        ("try:\n    json.loads(x)\nexcept (ValueError, RecursionError):\n    pass", False),
        ("try:\n    parse_json(x)\nexcept ValueError:\n    pass", False),
        ("json.loads(x)", False),
    ],
)
def test_half_a_reader_is_found(text: str, *, is_found: bool) -> None:
    """In each form that catches an error."""
    assert bool(list(list_half_readers(text))) is is_found
