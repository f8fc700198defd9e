"""Replay: facts of this release and those before it, read as values, and the state that they make."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from sessiontree.contracts.errors import JournalCorrupt, JournalTooNew
from sessiontree.contracts.facts import session_facts, stimuli, tree_facts
from sessiontree.contracts.facts.tree_config import SessionSpec, TreeConfig
from sessiontree.contracts.recorded.codec import (
    from_wire,
    list_current_versions,
    list_parts,
    list_recorded_members,
)
from sessiontree.contracts.settings.settings import Limits
from sessiontree.session.evolve import evolve
from sessiontree.session.state import SessionState, make_initial_state

Wire: TypeAlias = dict[str, Any]
Step: TypeAlias = Callable[[Wire], Wire]
"""Takes the JSON object of version v and returns it as of v + 1; pure, never changes its argument."""

STEPS: Final[Mapping[tuple[str, int], Step]] = {}
"""By kind and version, the step to the next version. A step is never edited once a release has written the
version to which it leads."""


class Upcasters:
    """Brings recorded values to the current versions of their kinds, with all that they contain.

    Args:
        steps: (kind, v) → the function from v to v + 1. The function need not set ``v``.
        current: Every kind and its current version.
        nested: Returns a kind's members that contain other recorded values, each alone or in a list.

    Raises:
        ValueError: a step of an unknown kind, a step from the current version or beyond, or a gap
            between a step and the current version.
    """

    def __init__(
        self,
        steps: Mapping[tuple[str, int], Step],
        current: Mapping[str, int],
        nested: Callable[[str], Sequence[str]],
    ) -> None:
        for kind, version in steps:
            if version >= current.get(kind, version):
                raise ValueError(f"no version follows {version} of the fact kind {kind!r}")
            if version + 1 < current[kind] and (kind, version + 1) not in steps:
                raise ValueError(f"no step leads on from version {version + 1} of the fact kind {kind!r}")
        self._steps = dict(steps)
        self._current = dict(current)
        self._nested = nested
        self._members: dict[str, Sequence[str]] = {}
        """What ``nested`` returned, by kind: it reads annotations."""

    def upcast(self, wire: Wire) -> Wire:
        """Return a value in its current form; the given object where it is current.

        Raises:
            JournalTooNew: a later release wrote it.
            JournalCorrupt: its kind or version names nothing a release ever wrote.
        """
        kind, version = wire.get("kind"), wire.get("v")
        if not isinstance(kind, str) or not isinstance(version, int) or isinstance(version, bool):
            raise JournalCorrupt("fact", "it names no kind and version")
        current = self._current.get(kind)
        if current is None or version > current:
            raise JournalTooNew("fact", f"{kind!r} version {version} is unknown here; use a later release")
        while version < current:
            step = self._steps.get((kind, version))
            if step is None:
                raise JournalCorrupt("fact", f"no release wrote {kind!r} version {version}")
            version += 1
            wire = {**step(wire), "kind": kind, "v": version}
        members = self._members.get(kind)
        if members is None:
            members = self._members[kind] = self._nested(kind)
        for member in members:
            inner = wire.get(member)
            upcast = self._upcast_inner(inner)
            if upcast is not inner:
                wire = {**wire, member: upcast}
        return wire

    def _upcast_inner(self, inner: object) -> object:
        if isinstance(inner, dict):
            return self.upcast(inner)
        if isinstance(inner, list):
            upcast = [self._upcast_inner(each) for each in inner]
            return upcast if any(new is not old for new, old in zip(upcast, inner, strict=True)) else inner
        return inner


FACTS = (session_facts, stimuli, tree_facts)
"""Rooms whose import makes every kind of fact known."""

UPCASTERS = Upcasters(STEPS, list_current_versions(), list_recorded_members)
"""Brings facts of every release up to this one to the current versions."""


def _read(wire: Wire) -> Any:
    try:
        return from_wire(wire)
    except (KeyError, TypeError, ValueError):
        # Of another version, or damaged. What is current is decoded without this look at everything in it.
        return from_wire(UPCASTERS.upcast(wire))


def read_fact(text: str) -> Any:
    """Return the fact of a journaled text, in the form of this release; it may hold those that followed.

    Raises:
        JournalTooNew: a later release wrote it.
        JournalCorrupt: it is nothing a release ever wrote.
    """
    try:
        return _read(json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise JournalCorrupt("fact", f"it can't be read: {type(error).__name__}: {error}") from error


def read_facts(text: str) -> tuple[Any, ...]:
    """Return the facts of a journaled text one by one, in their order.

    Raises:
        JournalTooNew, JournalCorrupt: as :func:`read_fact`.
    """
    return list_parts(read_fact(text))


def read_config(row0: Mapping[str, Any]) -> TreeConfig:
    """Return the configuration in a tree's first row, in the form of this release.

    Raises:
        JournalTooNew, JournalCorrupt: as :func:`read_fact`.
    """
    config: TreeConfig = _read(dict(row0))
    return config


def replay_session(spec: SessionSpec, limits: Limits, texts: Iterable[str], id_key: str = "") -> SessionState:
    """Rebuild a session's state from its facts, oldest first; give ``id_key`` if the session is to go on."""
    state = make_initial_state(spec, limits, id_key)
    for text in texts:
        evolve(state, read_fact(text))
    return state
