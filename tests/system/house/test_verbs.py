"""A function's name begins with a verb: what it does is said before what it does it to."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

VERBS = Path(__file__).with_name("verbs.txt")
"""Verbs in their base form, one a line, in alphabetical order."""
QUESTIONS = ("is", "has", "can", "may", "must", "should", "does", "was", "are", "needs", "accepts")
CONVERSIONS = ("to", "from")
HANDLERS = ("on",)
LEAST_SHARE = 0.65
VALUES = {"property", "cached_property", "setter"}


def begins_with_verb(name: str, verbs: set[str]) -> bool:
    """Whether a name says what the function does, answers, converts to or handles."""
    return name.lstrip("_").split("_")[0] in verbs.union(QUESTIONS, CONVERSIONS, HANDLERS)


def functions_in(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield every function that is called by its name: no special method, no property."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("__"):
            named = {getattr(each, "attr", getattr(each, "id", "")) for each in node.decorator_list}
            if named.isdisjoint(VALUES):
                yield node


def share_of_verbs(files: Iterable[Path], verbs: set[str]) -> float:
    """Return which share of the functions begins with a verb."""
    names = [node.name for path in files for node in functions_in(ast.parse(path.read_bytes()))]
    return sum(begins_with_verb(name, verbs) for name in names) / len(names)


def test_functions_begin_with_verbs(shipped_modules: list[Path]) -> None:
    """Two of three do at least; the rest are interfaces of others and plain values with an argument."""
    assert shipped_modules
    assert share_of_verbs(shipped_modules, set(VERBS.read_text("utf-8").split())) >= LEAST_SHARE


def test_verbs_are_in_order_and_unique() -> None:
    """The list is alphabetical and names no verb twice."""
    verbs = VERBS.read_text("utf-8").split()
    assert verbs == sorted(set(verbs))


def test_nouns_and_participles_do_not_count(tmp_path: Path) -> None:
    """What names its result is found; a property does not count."""
    path = tmp_path / "room.py"
    path.write_text(
        "def agent_of(x): ...\ndef packed(x): ...\ndef pack(x): ...\ndef is_packed(x): ...\n"
        "class Box:\n    @property\n    def content(self): ...\n    def __len__(self): ...\n"
    )
    assert share_of_verbs([path], {"pack"}) == 0.5
