"""Whatever the signature of a public name says can be imported from the package, to annotate code with it."""

from __future__ import annotations

import ast
import builtins
import importlib
import sys
import types
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

import sessiontree
from sessiontree import facts
from sessiontree.contracts.facts import session_facts, tree_facts
from sessiontree.contracts.facts.session_facts import SessionFact
from sessiontree.contracts.facts.tree_facts import TreeFact
from sessiontree.contracts.recorded.codec import list_recorded_classes
from sessiontree.contracts.reports import events

RECORDED = set(list_recorded_classes())
NOT_FOR_PROGRAMS = {
    *(
        f"{name}.__init__"
        for name in ("Approvals", "ClientCalls", "FunctionTool", "PendingReply", "Questions")
    ),
    *(f"{name}.__init__" for name in ("FactReader", "ProgressReader", "SchemaTool", "SessionHandle")),
    "ToolContext.__init__",
    "WaitingCall.__init__",
}
"""What this package alone calls: a program gets these objects and never makes one."""


def unexported(package: types.ModuleType) -> list[str]:
    """Return the types in public signatures of a package that are not public names of it, each with a place.

    Signatures are those of functions and of public methods, also inherited; and the types of public members.
    A public alias, and a private one wherever it is used, is followed into what it stands for.
    """
    public = {*package.__all__, *facts.__all__}
    found: dict[str, str] = {}
    for name in package.__all__:
        home = package._HOMES[name]
        for used, module in _used_by(f"{package.__name__}.{home}", name):
            if used not in public and _is_of(package.__name__, module, used):
                found.setdefault(used, f"{used} in {name}")
    return sorted(found.values())


def unexported_by_facts() -> list[str]:
    """Return the types of the fields of facts that no public module exports, each with a place."""
    public = {*sessiontree.__all__, *facts.__all__, "Recorded"}  # an annotation for any recorded value
    found: dict[str, str] = {}
    for name in facts.__all__:
        home, real = _home(facts.__name__, name)
        for used, module in _used_by(home, real):
            if used not in public and _is_of(sessiontree.__name__, module, used):
                found.setdefault(used, f"{used} in {name}")
    return sorted(found.values())


def _is_of(package: str, module: str, name: str) -> bool:
    """Whether a name of a module is a type of the package: not a builtin, a stranger's or a type variable."""
    home, name = _home(module, name)
    if not home.startswith(package) or hasattr(builtins, name):
        return False
    kind = type(getattr(sys.modules.get(home) or importlib.import_module(home), name, None)).__name__
    return kind not in {"TypeVar", "ParamSpec", "module"}


def _used_by(module: str, name: str) -> Iterator[tuple[str, str]]:
    """Yield the names in the signatures of a public name, each with the module that uses it."""
    node = _definitions(module).get(name)
    if isinstance(node, ast.ClassDef):
        yield from _used_by_class(module, node)
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield from _followed(module, _annotations(node))
    elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None and _is_alias(node):
        yield from _followed(module, [node.value])


def _used_by_class(module: str, node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for base in _names(node.bases):
        home, name = _home(module, base)
        if home.partition(".")[0] == module.partition(".")[0] and home != module.partition(".")[0]:
            yield from _used_by(home, name)
    for part in node.body:
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
            if not part.target.id.startswith("_"):
                yield from _followed(module, [part.annotation])
        elif isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
            is_private = part.name.startswith("_") and not part.name.endswith("__")
            if not is_private and f"{node.name}.{part.name}" not in NOT_FOR_PROGRAMS:
                yield from _followed(module, _annotations(part))


def _followed(module: str, annotations: list[ast.expr]) -> Iterator[tuple[str, str]]:
    for name in _names(annotations):
        if name.startswith("_") or _is_marked(*_home(module, name)):
            yield from _used_by(*_home(module, name))
        else:
            yield name, module


def _is_marked(module: str, name: str) -> bool:
    """Whether a name stands for a type and how a value of it is checked: programs give plain values."""
    node = _definitions(module).get(name) if module.startswith(sessiontree.__name__) else None
    value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
    return isinstance(value, ast.Subscript) and ast.unparse(value.value) == "Annotated"


def _annotations(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.expr]:
    given = node.args
    all_of_them = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    found = [each.annotation for each in all_of_them if each is not None and not each.arg.startswith("_")]
    return [each for each in [*found, node.returns] if each is not None]


def _is_alias(node: ast.Assign | ast.AnnAssign) -> bool:
    return isinstance(node, ast.Assign) or "TypeAlias" in _names([node.annotation])


def _names(annotations: list[ast.expr]) -> Iterator[str]:
    """Yield the names in annotations, also in quoted ones; not literals, nor what Annotated adds."""
    todo: list[ast.AST] = list(annotations)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            todo.append(ast.parse(node.value, mode="eval").body)
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            is_literal, is_annotated = node.value.id == "Literal", node.value.id == "Annotated"
            if is_annotated and isinstance(node.slice, ast.Tuple):
                todo.append(node.slice.elts[0])
            elif not is_literal:
                todo += [node.value, node.slice]
        elif not isinstance(node, ast.Call):
            todo += ast.iter_child_nodes(node)


def _home(module: str, name: str) -> tuple[str, str]:
    """Return where a name of a module is defined: module, name."""
    came = _imports(module).get(name)
    if came is None:
        return module, name
    if came[0] == module.partition(".")[0]:
        return f"{came[0]}.{sys.modules[came[0]]._HOMES[came[1]]}", came[1]
    return _home(*came) if came[0].startswith(module.partition(".")[0]) else came


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(Path(str(importlib.import_module(module).__file__)).read_text())


@cache
def _imports(module: str) -> dict[str, tuple[str, str]]:
    return {
        each.asname or each.name: (node.module, each.name)
        for node in ast.walk(_tree(module))
        if isinstance(node, ast.ImportFrom) and node.module
        for each in node.names
    }


@cache
def _definitions(module: str) -> dict[str, ast.stmt]:
    found: dict[str, ast.stmt] = {}
    for node in _tree(module).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found[node.name] = node
        for target in getattr(node, "targets", [getattr(node, "target", None)]):
            if isinstance(target, ast.Name):
                found[target.id] = node
    return found


@pytest.mark.slow
def test_types_of_public_signatures_are_public() -> None:
    """A program that is checked strictly annotates its models, tools and hooks from one place."""
    assert unexported(sessiontree) == []


def test_types_of_facts_are_public() -> None:
    """A program that reads the journal needs two modules: ``sessiontree`` and ``sessiontree.facts``."""
    assert unexported_by_facts() == []


def test_every_fact_and_event_is_public() -> None:
    """What ``events()`` and ``progress()`` yield, class by class, with a docstring each."""
    recorded = {
        cls
        for room in (session_facts, tree_facts)
        for cls in vars(room).values()
        if isinstance(cls, type) and cls.__module__ == room.__name__ and cls in RECORDED
    }
    assert recorded == set(get_args(SessionFact) + get_args(TreeFact))
    assert {cls.__name__ for cls in recorded} <= set(facts.__all__)
    told = {cls for alias in (events.ModelEvent, events.ToolEvent, events.Event) for cls in get_args(alias)}
    assert {cls.__name__ for cls in told if isinstance(cls, type)} <= set(sessiontree.__all__)
    assert all(cls.__doc__ for cls in recorded | told)


ROOM = """
from __future__ import annotations
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, TypeVar
if TYPE_CHECKING:
    from planted_types.other import Hidden
    from planted_types import Shown

T = TypeVar("T")
_Private: TypeAlias = "list[Beneath]"

class Base:
    def inherited(self) -> Above: ...

class Shown(Base):
    member: Annotated[Member, print(Literal)]
    _kept: Kept
    def __init__(self, given: Given, _own: Kept) -> None: ...
    def method(self, one: Literal["Hidden"], *, two: _Private) -> dict[str, T]: ...
    def _helper(self) -> Kept: ...

def work(one: Hidden | None, two: "Shown") -> Path: ...
"""
FOUND = {"Above in Shown", "Beneath in Shown", "Given in Shown", "Hidden in work", "Member in Shown"}


def test_planted_types_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inherited, in members, behind private aliases, quoted or for checkers alone; not what is private."""
    place = tmp_path / "planted_types"
    place.mkdir()
    (place / "__init__.py").write_text(
        '_HOMES = {"Shown": "room", "work": "room"}\n__all__ = sorted(_HOMES)\n'
    )
    kept = "".join(f"class {name}: ...\n" for name in ("Above", "Beneath", "Given", "Member", "Kept"))
    (place / "room.py").write_text(ROOM.replace("class Base", f"from pathlib import Path\n{kept}class Base"))
    (place / "other.py").write_text("class Hidden: ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    try:
        assert set(unexported(importlib.import_module("planted_types"))) == FOUND
    finally:
        for name in [each for each in sys.modules if each.startswith("planted_types")]:
            del sys.modules[name]
