"""Every error crosses processes whole, and the tree drawn in the errors' docstring is the real one."""

from __future__ import annotations

import ast
import copy
import inspect
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from sessiontree.contracts import errors
from sessiontree.contracts.errors import SessionTreeError
from tests.system.house.error_fixtures import sample_of

ROOT = Path(__file__).parents[3]
DRAWN = re.compile(r"^(?P<rails>[ │├└─]*)(?P<names>[A-Z]\w*(?: · [A-Z]\w*)*)(?P<rest>.*)$")


def all_errors() -> list[type[SessionTreeError]]:
    """Return the root and every class below it that the errors' module defines, each once."""
    classes = {value for value in vars(errors).values() if inspect.isclass(value)}
    return sorted((cls for cls in classes if issubclass(cls, SessionTreeError)), key=lambda cls: cls.__name__)


def assert_crosses_processes(error: SessionTreeError) -> None:
    """Every way of copying keeps type, fields, attributes and text."""
    copies: list[Any] = [copy.copy(error), copy.deepcopy(error)]
    copies += [
        pickle.loads(pickle.dumps(error, protocol)) for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)
    ]
    for other in copies:
        assert type(other) is type(error)
        assert other.args == error.args
        assert str(other) == str(error)
        assert vars(other) == vars(error)


def drawn_tree(text: str) -> dict[str, str]:
    """Return child to parent as drawn with rails; several names on one line are siblings.

    The root's parent is ``Exception``.
    """
    parents: dict[str, str] = {}
    path: list[str] = []
    for line in text.splitlines():
        found = DRAWN.match(line.removeprefix("    ")) if line.startswith("    ") else None
        if found is None:
            continue
        depth = len(found["rails"]) // 3
        names = found["names"].split(" · ")
        for name in names:
            parents[name] = path[depth - 1] if depth else "Exception"
        path[depth:] = [names[-1]]
    return parents


def real_tree() -> dict[str, str]:
    """Return child to parent as the classes stand."""
    return {cls.__name__: cls.__bases__[0].__name__ for cls in all_errors()}


@pytest.mark.parametrize("cls", all_errors(), ids=lambda cls: cls.__name__)
def test_error_crosses_processes_whole(cls: type[SessionTreeError]) -> None:
    """Type, fields, attributes and text survive copying and pickling."""
    error = sample_of(cls)
    assert_crosses_processes(error)
    assert str(error)


@pytest.mark.parametrize("cls", all_errors(), ids=lambda cls: cls.__name__)
def test_error_has_one_parent_and_says_what_it_is(cls: type[SessionTreeError]) -> None:
    """The errors form a tree, and each has its own docstring."""
    assert len(cls.__bases__) == 1
    assert cls.__dict__["__doc__"].strip()


@pytest.mark.covers("A24")
def test_drawn_tree_is_the_real_one() -> None:
    """The docstring's drawing names every class under its parent, and nothing else."""
    assert drawn_tree(errors.__doc__ or "") == real_tree()


@pytest.mark.covers("S35")
def test_drawn_aliases_are_the_real_ones() -> None:
    """Each alias in the drawing is another name of that very class, and every other name is drawn."""
    drawn = dict(re.findall(r"(\w+) .*\(alias (\w+)\)", errors.__doc__ or ""))
    real = {
        value.__name__: name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, SessionTreeError) and value.__name__ != name
    }
    assert drawn == real
    assert real == {"ValidationError": "ToolInputError", "PermissionDenied": "ToolAuthorizationError"}


MAX_ERRORS = 32


def classes_below(root: type[SessionTreeError], sources: dict[str, str]) -> dict[str, str]:
    """Return name to file of every class in the sources that inherits from an error, by whatever way."""
    parents: dict[str, tuple[str, list[str]]] = {}
    for path, text in sources.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                parents[node.name] = (path, [ast.unparse(base).split(".")[-1] for base in node.bases])
    found = {root.__name__: parents[root.__name__][0]} if root.__name__ in parents else {}
    while more := {
        name: path
        for name, (path, bases) in parents.items()
        if name not in found and any(base in found for base in bases)
    }:
        found |= more
    return found


def package_sources() -> dict[str, str]:
    """Return path to text of every module that is shipped."""
    files = [path for top in ("sessiontree", "tools") for path in (ROOT / top).rglob("*.py")]
    return {str(path.relative_to(ROOT)): path.read_text() for path in files}


def test_errors_are_few_and_in_one_file() -> None:
    """A program learns at most 32 classes, all of one module; other rooms define none that reach it."""
    found = classes_below(SessionTreeError, package_sources())
    assert set(found.values()) == {"sessiontree/contracts/errors.py"}
    assert len(found) <= MAX_ERRORS


def test_planted_error_in_another_room_is_found() -> None:
    """The search follows a parent that is itself a child."""
    planted = {"a.py": "class SessionTreeError(Exception): ...", "b.py": "class A(e.SessionTreeError): ..."}
    planted["c.py"] = "class B(A): ..."
    assert classes_below(SessionTreeError, planted) == {"SessionTreeError": "a.py", "A": "b.py", "B": "c.py"}


@pytest.mark.parametrize("cls", all_errors(), ids=lambda cls: cls.__name__)
def test_error_says_why_to_catch_it(cls: type[SessionTreeError]) -> None:
    """A class is there because a program does something else about it; its docstring says what."""
    assert re.search(r"\bCatch it to \w+", cls.__dict__["__doc__"])


def test_no_permission_error_is_a_validation_error() -> None:
    """A refusal is never retried as if arguments were wrong: no inheritance between the two (ADR-0004)."""
    assert not issubclass(errors.PermissionDenied, errors.ValidationError)
    assert not issubclass(errors.ValidationError, errors.PermissionDenied)
    assert (errors.ValidationError.status, errors.PermissionDenied.status) == (400, 403)


class KeywordOnly(SessionTreeError):
    """Planted: a field that only a keyword can give."""

    def __init__(self, message: str, *, field: str = "x") -> None:
        super().__init__(message)
        self.field = field


class Forgetful(SessionTreeError):
    """Planted: a field that does not reach ``args``."""

    def __init__(self, message: str, field: str = "nothing") -> None:
        super().__init__(message)
        self.field = field


class Rewording(SessionTreeError):
    """Planted: a text that pickling builds upon once more."""

    def __init__(self, elapsed: str) -> None:
        super().__init__(f"after {elapsed}")


class Unpicklable(SessionTreeError):
    """Planted: keeps its fields, but makes a copy from the first alone."""

    def __init__(self, message: str, field: str = "nothing") -> None:
        super().__init__(message, field)

    def __reduce__(self) -> tuple[type[Unpicklable], tuple[str]]:
        return Unpicklable, (self.args[0],)


def test_planted_keyword_only_field_is_found() -> None:
    """The sampler refuses an error whose field pickling would lose."""
    with pytest.raises(AssertionError, match="keyword-only"):
        sample_of(KeywordOnly)


@pytest.mark.parametrize("cls", [Forgetful, Rewording])
def test_planted_field_outside_args_is_found(cls: type[SessionTreeError]) -> None:
    """The sampler refuses an error that does not keep what it was given."""
    with pytest.raises(AssertionError, match="args"):
        sample_of(cls)


def test_planted_lossy_error_is_found() -> None:
    """The property fails on an error that does not survive pickling."""
    with pytest.raises(AssertionError):
        assert_crosses_processes(sample_of(Unpicklable))


def test_planted_drawing_is_read_as_drawn() -> None:
    """The reader of the drawing tells a moved child from the right one."""
    drawing = "    Root\n    ├─ A      text\n    │  ├─ B · C\n    │  └─ D   more\n    │     └─ E\n    └─ F"
    right = {"Root": "Exception", "A": "Root", "B": "A", "C": "A", "D": "A", "E": "D", "F": "Root"}
    assert drawn_tree(drawing) == right
    assert drawn_tree(drawing.replace("    │     └─ E", "    ├─ E")) == {**right, "E": "Root"}
