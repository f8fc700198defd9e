"""What an object leads to, by everything a plain look can follow; and which of it is the runtime's own."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from types import FunctionType, ModuleType
from typing import Any

from sessiontree.runtime.rights.session_rights import PORTS

PLAIN = (str, bytes, int, float, complex, type(None), type, ModuleType)
MOST = 20_000
"""Objects after which a walk has left what belongs to a context."""
INSIDE = (
    "sessiontree.runtime",
    "sessiontree.dispatch",
    "sessiontree.sandbox",
    "sessiontree.workspace",
    "ray",
)
"""Packages whose objects know the way to handles."""


def reachable(start: object) -> list[tuple[str, Any]]:
    """Return every object that can be reached, each with one way to it.

    Followed are attributes, slots, properties, items of containers, bound methods, closures, defaults and
    partials. Not followed: modules, classes as such, and the globals of functions.
    """
    seen: dict[int, Any] = {}
    found: list[tuple[str, Any]] = []
    left: deque[tuple[str, Any]] = deque([("", start)])
    while left and len(found) < MOST:
        way, thing = left.popleft()
        if id(thing) in seen or isinstance(thing, PLAIN):
            continue
        seen[id(thing)] = thing
        found.append((way, thing))
        left.extend((f"{way}{step}", each) for step, each in _next(thing))
    return found


def _next(thing: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(thing, Mapping):
        yield from ((f"[{key!r}]", value) for key, value in thing.items())
        yield from ((f"<{key!r}>", key) for key in thing)
    elif isinstance(thing, list | tuple | set | frozenset | deque):
        yield from ((f"[{at}]", each) for at, each in enumerate(thing))
    elif isinstance(thing, FunctionType):
        yield from _of_function(thing)
    elif isinstance(thing, functools.partial):
        yield from ((".func", thing.func), (".args", thing.args), (".keywords", thing.keywords))
    yield from _attributes(thing)


def _attributes(thing: Any) -> Iterator[tuple[str, Any]]:
    names = set(getattr(thing, "__dict__", {}))
    for each in type(thing).__mro__:
        slots = vars(each).get("__slots__", ())
        names.update([slots] if isinstance(slots, str) else slots)
        for name, member in vars(each).items():
            if isinstance(member, property):
                names.add(name)
            if isinstance(member, FunctionType):
                yield from ((f".{name}{step}", found) for step, found in _of_function(member))
    for name in [*names, "__self__", "__func__", "__wrapped__", "__callback__"]:
        try:
            yield f".{name}", getattr(thing, name)
        except Exception:  # noqa: BLE001, S112 - what can't be had leads nowhere
            continue


def _of_function(function: FunctionType) -> Iterator[tuple[str, Any]]:
    for at, cell in enumerate(function.__closure__ or ()):
        with suppress(ValueError):  # an empty cell
            yield f".__closure__[{at}]", cell.cell_contents
    for name in ("__defaults__", "__kwdefaults__", "__wrapped__"):
        found = getattr(function, name, None)
        if found is not None:
            yield f".{name}", found


def handles(found: Iterable[tuple[str, Any]]) -> dict[str, str]:
    """Return the handles among reached objects: the name of what each can do, to a way to it."""
    own = [
        (way, thing) for way, thing in found if type(thing).__module__.startswith(("sessiontree", "tests"))
    ]
    return {name: way for way, thing in reversed(own) for name, port in PORTS.items() if _offers(thing, port)}


def insides(found: Iterable[tuple[str, Any]]) -> list[str]:
    """Return the ways to objects of the runtime's own, but facades and the record of a call's progress."""
    return [
        f"{way}: {type(thing).__module__}.{type(thing).__qualname__}"
        for way, thing in found
        if type(thing).__module__.startswith(INSIDE)
        and type(thing).__module__ != "sessiontree.runtime.rights.session_rights"
        and type(thing).__qualname__ != "_Line"
    ]


def _offers(thing: Any, port: type[Any]) -> bool:
    members = [name for name in vars(port) if not name.startswith("_")]
    own = {name: getattr(type(thing), name, None) for name in members}
    return all(
        callable(own[name]) or (isinstance(vars(port)[name], property) and own[name] is not None)
        for name in members
    )
