"""Every public name has a docstring, which names arguments, units and errors.

It is what editors show and what the reference pages are made of.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import itertools
import re
import sys
import textwrap
import typing
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pydantic import BaseModel

PUBLIC = ("sessiontree", "sessiontree.sync", "sessiontree.facts", "sessiontree.bench")
TESTING = ("context", "fake_provider.fake_reply", "fake_provider.fake_server", "force", "strategies")
"""The modules of ``sessiontree.testing`` that hold its public names."""
NAMES_OF_QUANTITIES = re.compile(
    r"(?:^|_)(?:timeout|wait|delay|pause|interval|ttl|grace|deadline|age|seconds|size|length|bytes|"
    r"tokens|memory|cost|price|usd|budget)(?:_|$)"
)
UNIT_IN_NAME = re.compile(r"(?:_s|_ms|_ns|bytes|chars|tokens|_usd)$")
UNIT_IN_WORDS = re.compile(
    r"\b(?:(?:milli)?seconds?|minutes?|hours?|days?|bytes?|[KMG]i?B|tokens?|dollars?|USD|characters?|pixels?|"
    r"sequence number|position|number of)\b",
    re.IGNORECASE,
)
NOT_MADE_BY_PROGRAMS = {
    *("Approvals", "ClientCalls", "FunctionTool", "PendingApproval", "PendingQuestion", "PendingReply"),
    *("FactReader", "ProgressReader", "Questions"),
    *("SchemaTool", "SessionHandle", "ToolContext", "WaitingCall"),
}
"""A program gets these objects; what makes them has no readers outside."""


@dataclasses.dataclass(frozen=True)
class Callee:
    """A public function or method, its place, and what else a reader of it sees."""

    place: str
    function: Callable[..., Any]
    around: str
    """The docstring of its class, or nothing."""


def find_undocumented(module: str, *, own: bool = False) -> list[str]:
    """Return what the docstrings of a module's public names leave out.

    Args:
        module: The module; its public names are those of ``__all__``.
        own: Take the public classes and functions that it defines instead.
    """
    loaded = importlib.import_module(module)
    found: list[str] = []
    for name in _own_names(loaded) if own else loaded.__all__:
        value = getattr(loaded, name)
        if isinstance(value, type):
            found += _in_class(name, value)
        elif inspect.isfunction(value):
            found += _in_callee(Callee(name, value, ""))
        elif not _is_described(loaded, name):
            found.append(f"{name}: no docstring")
    return found


def _own_names(module: ModuleType) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and not isinstance(value, typing.TypeVar)
        and getattr(value, "__module__", "") == module.__name__
    ]


def _in_class(name: str, cls: type) -> Iterator[str]:
    """Yield what is missing in a class: its docstring, its fields, its public methods and properties."""
    if not _own_doc(cls):
        yield f"{name}: no docstring"
    around = " ".join(filter(None, (_own_doc(each) for each in cls.__mro__)))
    docs = _field_docs(cls)
    for field, annotation in _fields(cls):
        said = docs.get(field, "")
        if _is_settings(cls) and not said and not _names(around, field):
            yield f"{name}.{field}: not described"
        elif _lacks_unit(field, annotation, said or around):
            yield f"{name}.{field}: no unit"
    for member, value in _members(cls):
        if isinstance(value, property):
            if not inspect.getdoc(value) and not _names(around, member):
                yield f"{name}.{member}: no docstring"
        else:
            overridden = (inspect.getdoc(vars(each)[member]) for each in cls.__mro__ if member in vars(each))
            yield from _in_callee(
                Callee(f"{name}.{member}", value, " ".join([around, *filter(None, overridden)]))
            )


def _is_settings(cls: type) -> bool:
    """Whether a class's fields are what a program chooses, and arguments therefore."""
    return typing.is_typeddict(cls) or issubclass(cls, BaseModel)


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties of a class, also inherited from this project's classes."""
    for name in dict.fromkeys(name for each in cls.__mro__ if _is_ours(each) for name in vars(each)):
        has_fields = dataclasses.is_dataclass(cls) or _is_settings(cls) or getattr(cls, "_is_protocol", False)
        is_constructor = name == "__init__" and not has_fields and cls.__name__ not in NOT_MADE_BY_PROGRAMS
        if name.startswith("_") and not is_constructor:
            continue
        value = inspect.getattr_static(cls, name)
        if isinstance(value, staticmethod | classmethod):
            value = value.__func__
        if isinstance(value, property) or inspect.isfunction(value):
            yield name, value


def _in_callee(callee: Callee) -> Iterator[str]:
    """Yield what is missing in a function: a docstring, its arguments, their units, the errors it raises."""
    function = inspect.unwrap(callee.function)
    own = inspect.getdoc(callee.function) or ""
    doc = f"{own} {callee.around}"
    if not own and function.__name__ != "__init__":
        yield f"{callee.place}: no docstring"
        return
    for parameter in inspect.signature(function).parameters.values():
        name = parameter.name
        if name in {"cls", "self"} or name.startswith("_"):
            continue
        if parameter.kind is parameter.VAR_KEYWORD and "Unpack" in str(parameter.annotation):
            yield from _in_options(function, str(parameter.annotation))
        elif not _names(doc, name):
            yield f"{callee.place}({name}): not described"
        elif _lacks_unit(name, str(parameter.annotation), doc):
            yield f"{callee.place}({name}): no unit"
    for error in sorted(_raised(function)):
        if not _names(doc, error):
            yield f"{callee.place}: raises {error}, which is not described"


def _in_options(function: Callable[..., Any], annotation: str) -> Iterator[str]:
    """Yield the keys of an options' class that have no words of their own."""
    name = annotation.partition("[")[2].rpartition("]")[0].rpartition(".")[2]
    options = getattr(sys.modules[function.__module__], name, None) or getattr(
        sys.modules["sessiontree"], name
    )
    docs = _field_docs(options)
    for key in options.__annotations__:
        said = docs.get(key, "")
        if not said:
            yield f"{name}[{key}]: not described"
        elif _lacks_unit(key, _source_of(options.__annotations__[key]), said):
            yield f"{name}[{key}]: no unit"


def _fields(cls: type) -> list[tuple[str, str]]:
    """Return the public arguments of a dataclass, and of a class that says them by annotations."""
    if dataclasses.is_dataclass(cls):
        fields = [(each.name, str(each.type)) for each in dataclasses.fields(cls) if each.init]
    else:
        fields = [
            (name, _source_of(kind))
            for each in cls.__mro__
            if _is_ours(each)
            for name, kind in vars(each).get("__annotations__", {}).items()
        ]
    return [(name, kind) for name, kind in fields if not name.startswith("_")]


def _source_of(annotation: object) -> str:
    return str(getattr(annotation, "__forward_arg__", annotation))


def _field_docs(cls: type) -> dict[str, str]:
    """Return the strings below a class's fields, also inherited.

    A TypedDict's docstring may name the class that describes its keys.
    """
    found: dict[str, str] = {}
    if typing.is_typeddict(cls):
        module = sys.modules[cls.__module__]
        node = next(each for each in _classes(cls.__module__) if each.name == cls.__name__)
        bases = [getattr(module, each.id) for each in node.bases if isinstance(each, ast.Name)]
        said_elsewhere = re.findall(r":class:`(\w+)`", cls.__doc__ or "")
        bases += [getattr(sys.modules["sessiontree"], name) for name in said_elsewhere]
        for each in bases:
            if each is not typing.TypedDict:
                found |= _field_docs(each)
        return found | _docs_below(cls.__module__, cls.__name__)
    for each in reversed(cls.__mro__):
        if _is_ours(each):
            found |= _docs_below(each.__module__, each.__name__)
    return found


@cache
def _docs_below(module: str, name: str) -> dict[str, str]:
    """Return the strings below the names in a class, or in the module, as editors and reference show them."""
    tree = _parse(module)
    body: list[ast.stmt] = tree.body
    if name:
        body = next((each.body for each in _classes(module) if each.name == name), [])
    found: dict[str, str] = {}
    for node, after in itertools.pairwise(body):
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            found |= {each.id: str(after.value.value) for each in targets if isinstance(each, ast.Name)}
    return found


def _is_described(module: ModuleType, name: str) -> bool:
    """Whether an alias or a constant has words of its own where it is defined."""
    home = module.__name__
    if name in getattr(module, "_HOMES", {}):
        home = f"{home}.{module._HOMES[name]}"
    else:
        imports = (node for node in ast.walk(_parse(home)) if isinstance(node, ast.ImportFrom))
        homes = [node.module for node in imports for each in node.names if each.name == name]
        home = homes[0] or home if homes else home
    return bool(_docs_below(home, "").get(name))


@cache
def _parse(module: str) -> ast.Module:
    return ast.parse(Path(str(importlib.import_module(module).__file__)).read_text("utf-8"))


@cache
def _classes(module: str) -> list[ast.ClassDef]:
    return [node for node in ast.walk(_parse(module)) if isinstance(node, ast.ClassDef)]


def _raised(function: Callable[..., Any]) -> set[str]:
    """Return the names of the errors that a function raises in its own body."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except OSError:  # made at run time
        return set()
    raised = (node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise))
    called = (node.func for node in raised if isinstance(node, ast.Call))
    names = {node.id if isinstance(node, ast.Name) else getattr(node, "attr", "") for node in called}
    return {name for name in names if name[:1].isupper() and name != "NotImplementedError"}


def _own_doc(cls: type) -> str:
    """Return a class's docstring, unless it is the one that a dataclass makes, or a stranger's."""
    doc = vars(cls).get("__doc__") or ""
    return "" if not _is_ours(cls) or doc.startswith(f"{cls.__name__}(") else inspect.cleandoc(doc)


def _is_ours(cls: type) -> bool:
    return cls.__module__.partition(".")[0] in {"sessiontree", "planted_docs"}


def _names(doc: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", doc, re.IGNORECASE) is not None


def _lacks_unit(name: str, annotation: str, doc: str) -> bool:
    """Whether a quantity says its unit neither by its name nor in words."""
    is_number = re.match(r"(?:Annotated\[)?(?:int|float)\b", annotation) is not None
    return (
        is_number
        and bool(NAMES_OF_QUANTITIES.search(name))
        and not (UNIT_IN_NAME.search(name) or UNIT_IN_WORDS.search(doc))
    )


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_are_described(module: str) -> None:
    """Nobody has to read code in order to call what is exported."""
    assert find_undocumented(module) == []


@pytest.mark.parametrize("module", TESTING)
def test_public_names_of_testing_are_described(module: str) -> None:
    """Authors of tools and models test with these."""
    assert find_undocumented(f"sessiontree.testing.{module}", own=True) == []


PLANTED = '''
from __future__ import annotations
from typing import TypeAlias, TypedDict
from pydantic import BaseModel
from typing_extensions import Unpack

__all__ = ["Alias", "Bare", "Chosen", "Options", "Whole", "run"]
Alias: TypeAlias = int
Whole: TypeAlias = int | None
"""A whole number."""

class Shared(TypedDict, total=False):
    told: str
    """Described in the base."""

class Options(Shared, total=False):
    """Options."""
    silent: str
    wait: float | None
    """How long it waits."""

class Chosen(BaseModel):
    """Settings."""
    colour: str
    size: int
    """How large it is, in bytes."""

class Bare:
    def __init__(self, given: int) -> None:
        self._given = given

    @property
    def state(self) -> int:
        return self._given

    def stop(self, reason: str) -> None:
        """Stop it."""
        raise KeyError(reason)

    def end(self, reason: str) -> None:
        """End it for a ``reason``.

        Raises:
            LookupError: it has ended.
        """
        raise LookupError(reason)

    def _hidden(self, word: str) -> None: ...

def run(timeout: float, pause_s: float, **options: Unpack[Options]) -> None:
    """Run until the timeout, with a pause_s after it."""
'''
FOUND = {
    "Alias: no docstring",
    "Bare.__init__(given): not described",
    "Bare.state: no docstring",
    "Bare.stop(reason): not described",
    "Bare.stop: raises KeyError, which is not described",
    "Bare: no docstring",
    "Chosen.colour: not described",
    "Options.silent: not described",
    "Options.wait: no unit",
    "Options[silent]: not described",
    "Options[wait]: no unit",
    "run(timeout): no unit",
}


def test_planted_gaps_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing is found: docstrings, arguments, keys of options, units and errors."""
    (tmp_path / "planted_docs.py").write_text(PLANTED)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        assert set(find_undocumented("planted_docs")) == FOUND
    finally:
        sys.modules.pop("planted_docs", None)
