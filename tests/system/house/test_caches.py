"""What is remembered by name is bounded (REL-L67): no cache grows with the names strangers make up."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

CLOSED = {
    "survey/source/languages.py:find_grammar": "grammars of the survey's table",
    "sandbox/commands/kernel_support.py:_try": "the launcher's own path",
    "sandbox/commands/command_plan.py:_filter": "kinds of machines",
    "control/call_codec.py:_call_codec": "methods that interfaces declare",
    "control/call_codec.py:_find_encoder": "classes of answers and arguments",
    "control/call_codec.py:make_decoder": "types that interfaces declare",
    "contracts/settings/given_values.py:_make_adapter": "classes that declare members",
    "runtime/transport/rpc.py:_make_proxy_class": "interfaces",
    "runtime/transport/rpc.py:collect_methods": "interfaces and the classes that implement them",
    "view/bundle.py:read_module": "modules of the page",
    "view/bundle.py:join_modules": "modules of the page",
    "web/web.py:(called)": "no argument at all: the certificates of one web",
}
"""Functions with an unbounded cache, and the few values their parameter takes."""


def unbounded(module: str, source: str) -> Iterator[str]:
    """Yield ``<module>:<function>`` of each cache that keeps an answer for every argument it ever saw."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            takes = bool(node.args.args or node.args.posonlyargs or node.args.kwonlyargs or node.args.vararg)
            if takes and any(_keeps_all(each) for each in node.decorator_list):
                yield f"{module}:{node.name}"
        elif isinstance(node, ast.Call) and _keeps_all(node.func):
            yield f"{module}:(called)"


def _keeps_all(decorator: ast.expr) -> bool:
    """Whether a decorator is a cache without a bound."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    if name == "cache":
        return True
    if name != "lru_cache" or not isinstance(decorator, ast.Call):
        return False
    given = [*decorator.args, *(each.value for each in decorator.keywords if each.arg == "maxsize")]
    return any(isinstance(bound, ast.Constant) and bound.value is None for bound in given)


@pytest.mark.covers("REL-L67")
def test_every_cache_has_a_bound_or_few_arguments(shipped_modules: list[Path], checkout: Path) -> None:
    """A cache without a bound takes no argument, or one of a list that is closed."""
    found = {
        each
        for path in shipped_modules
        for each in unbounded(
            path.relative_to(checkout).as_posix().removeprefix("sessiontree/"), path.read_text("utf-8")
        )
    }
    assert found == set(CLOSED)


@pytest.mark.parametrize(
    ("planted", "found"),
    [
        ("@cache\ndef f(name): ...", ["x.py:f"]),
        ("@functools.cache\nasync def f(*, name): ...", ["x.py:f"]),
        ("@lru_cache(maxsize=None)\ndef f(name): ...", ["x.py:f"]),
        ("@functools.lru_cache(None)\ndef f(*names): ...", ["x.py:f"]),
        ("known = lru_cache(maxsize=None)(look)", ["x.py:(called)"]),
        ("known = functools.cache(look)", ["x.py:(called)"]),
        ("@cache\ndef f(): ...", []),
        ("@lru_cache\ndef f(name): ...", []),
        ("@lru_cache(maxsize=16)\ndef f(name): ...", []),
        ("known = lru_cache(maxsize=16)(look)", []),
    ],
)
def test_planted_cache_is_found(planted: str, found: list[str]) -> None:
    """However it is written; and what is bounded is let be."""
    assert list(unbounded("x.py", planted)) == found
