"""Every public method of the async classes has a sync twin with the same parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from sessiontree import sync
from sessiontree.api.runtime import runtime
from sessiontree.api.stored import stored_trees
from sessiontree.api.tree import (
    client_calls,
    fact_reader,
    own_workspaces,
    pending_reply,
    questions,
    session_tree,
)
from sessiontree.api.tree import inbox as desk
from sessiontree.api.tree import session_handle as handle
from sessiontree.runtime.transport import progress

Taken = Callable[[type, type, bool], list[str]]

TWINS: list[tuple[type, type, bool]] = [
    (session_tree.SessionTree, sync.SessionTree, True),
    (runtime.Runtime, sync.Runtime, True),
    (stored_trees.StoredTrees, sync.StoredTrees, True),
    (desk.Approvals, sync.Approvals, False),
    (client_calls.ClientCalls, sync.ClientCalls, False),
    (client_calls.WaitingCall, sync.WaitingCall, False),
    (handle.SessionHandle, sync.SessionHandle, False),
    (pending_reply.PendingReply, sync.PendingReply, False),
    (desk.PendingApproval, sync.PendingApproval, False),
    (questions.PendingQuestion, sync.PendingQuestion, False),
    (questions.Questions, sync.Questions, False),
    (own_workspaces.OwnWorkspaces, sync.OwnWorkspaces, False),
    (fact_reader.FactReader, sync.FactReader, False),
    (progress.ProgressReader, sync.ProgressReader, False),
]
"""Async class, its twin, and whether programs make it themselves."""
RENAMED = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "aclose": "close",
    "__await__": "result",
}


def differences(original: type, twin: type, made_by_programs: bool) -> list[str]:
    """Return what the twin lacks, or takes otherwise."""
    found = []
    for name, member in _list_members(original).items():
        public = not name.startswith("_") or name in RENAMED or (name == "__init__" and made_by_programs)
        if not public or not _is_method(member):
            continue
        counterpart = inspect.getattr_static(twin, RENAMED.get(name, name), None)
        if counterpart is None:
            found.append(f"{twin.__name__} has no {RENAMED.get(name, name)}")
        elif type(member) is not type(counterpart):
            found.append(f"{name} is another kind of thing")
        elif not isinstance(member, property) and _taken(member) != _taken(counterpart):
            found.append(f"{name} takes {_taken(counterpart)}, not {_taken(member)}")
    return found


def _list_members(original: type) -> dict[str, object]:
    """Return what a class defines, or inherits from a class of this project."""
    ours = [each for each in original.__mro__ if each.__module__.startswith(("sessiontree.", __name__))]
    return {name: member for each in reversed(ours) for name, member in vars(each).items()}


def _is_method(member: object) -> bool:
    return isinstance(member, property | classmethod | staticmethod) or inspect.isfunction(member)


def _taken(member: Any) -> list[tuple[str, str, object]]:
    function = getattr(member, "__func__", member)
    parameters = inspect.signature(function).parameters.values()
    public = (parameter for parameter in parameters if not parameter.name.startswith("_"))
    return [(parameter.name, str(parameter.kind), parameter.default) for parameter in public]


@pytest.mark.parametrize(
    ("original", "twin", "made"), TWINS, ids=lambda value: getattr(value, "__name__", None)
)
def test_twin_takes_what_the_original_takes(original: type, twin: type, made: bool) -> None:
    """Names, kinds and defaults of all parameters are the same."""
    assert differences(original, twin, made) == []


@pytest.mark.parametrize("twin", [twin for _, twin, _ in TWINS], ids=lambda twin: twin.__name__)
def test_twin_has_nothing_to_await_and_says_what_it_does(twin: type) -> None:
    """No public method is a coroutine function, and each has a docstring."""
    public = {name: member for name, member in vars(twin).items() if not name.startswith("_")}
    for name, member in public.items():
        function = getattr(member, "fget", None) or getattr(member, "__func__", member)
        if inspect.isfunction(function):
            assert not inspect.iscoroutinefunction(function), name
            assert inspect.getdoc(function), name


def test_requests_are_asked_for_in_the_same_way() -> None:
    """``approvals.pending`` of the original is the desk's own method, and takes as little."""
    assert _taken(desk.HumanInbox.pending) == _taken(sync.Approvals.pending)


def test_every_class_that_is_exported_is_compared_or_a_channel() -> None:
    """A class added to the room is added to the table above."""
    compared = {twin.__name__ for _, twin, _ in TWINS}
    assert set(sync.__all__) - compared == {"QueueChannel", "TerminalChannel"}


class Original:
    """What the planted twins should be twins of."""

    def __init__(self, place: str, *, slots: int | None = None) -> None:
        """Take a place."""

    async def send(self, text: str, mode: str = "follow_up") -> str:
        """Say something."""
        return text

    @property
    def place(self) -> str:
        """A place."""
        return ""


class Faithful:
    """No fault."""

    def __init__(self, place: str, *, slots: int | None = None) -> None:
        """Take a place."""

    def send(self, text: str, mode: str = "follow_up") -> str:
        """Say something."""
        return text

    @property
    def place(self) -> str:
        """A place."""
        return ""


class Heir(Original):
    """Defines nothing of its own."""


class Lacking(Faithful):
    """A method is not there."""

    send = None  # type: ignore[assignment]


class Shorter(Faithful):
    """A parameter is missing."""

    def send(self, text: str) -> str:  # type: ignore[override]
        """Say something."""
        return text


class OtherDefault(Faithful):
    """A default is another."""

    def send(self, text: str, mode: str = "steer") -> str:
        """Say something."""
        return text


class ByPosition(Faithful):
    """A keyword became a position."""

    def __init__(self, place: str, slots: int | None = None) -> None:
        """Take a place."""


class Called(Faithful):
    """A property became a method."""

    def place(self) -> str:  # type: ignore[override]
        """A place."""
        return ""


def test_faithful_twin_has_no_differences() -> None:
    """The comparison finds nothing where nothing is."""
    assert differences(Original, Faithful, True) == []


@pytest.mark.parametrize("twin", [Lacking, Shorter, OtherDefault, ByPosition, Called])
def test_planted_difference_is_found(twin: type) -> None:
    """Each way of drifting apart is one difference."""
    assert len(differences(Original, twin, True)) == 1
    assert differences(Heir, twin, True) == differences(Original, twin, True)
