"""Replay: facts that any release wrote, read as values of this release, and the state that they make."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sessiontree.contracts import session_facts, stimuli, tree_facts
from sessiontree.contracts.codec import FORMER_KINDS, current_versions, from_wire, parts_of
from sessiontree.contracts.errors import JournalCorrupt, JournalTooNew
from sessiontree.contracts.older_facts import NESTED, STEPS, Step
from sessiontree.contracts.settings import Limits
from sessiontree.contracts.tree_config import SessionSpec
from sessiontree.session.evolve import evolve
from sessiontree.session.state import SessionState, initial


class Upcasters:
    """The steps of every kind of fact.

    Args:
        steps: (kind, v) → the function from v to v + 1. The function need not set ``v``.
        current: Every kind and its current version; former kinds too, with the version of what they are now.
        former: By a former kind, the kind it is now; steps are listed under that.
        nested: By kind, the members that hold another recorded value.

    Raises:
        ValueError: a step of an unknown kind, a step from the current version or beyond, or a gap
            between a step and the current version.
    """

    def __init__(
        self,
        steps: Mapping[tuple[str, int], Step],
        current: Mapping[str, int],
        *,
        former: Mapping[str, str] | None = None,
        nested: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        for kind, version in steps:
            if version >= current.get(kind, version):
                raise ValueError(f"no version follows {version} of the fact kind {kind!r}")
            if version + 1 < current[kind] and (kind, version + 1) not in steps:
                raise ValueError(f"no step leads on from version {version + 1} of the fact kind {kind!r}")
        self._steps = dict(steps)
        self._current = dict(current)
        self._former = dict(former or {})
        self._nested = dict(nested or {})

    def upcast(self, fact: dict[str, Any]) -> dict[str, Any]:
        """Return the fact in its current form; the given one where it is current.

        Raises:
            JournalTooNew: a later release wrote it.
            JournalCorrupt: its kind or version names nothing this release ever wrote.
        """
        kind, version = fact.get("kind"), fact.get("v")
        if not isinstance(kind, str) or not isinstance(version, int) or isinstance(version, bool):
            raise JournalCorrupt("fact", "it names no kind and version")
        now = self._former.get(kind)
        if now is not None:
            kind, fact = now, {**fact, "kind": now}
        current = self._current.get(kind)
        if current is None or version > current:
            raise JournalTooNew("fact", f"{kind!r} version {version} is unknown here; use a later release")
        while version < current:
            step = self._steps.get((kind, version))
            if step is None:
                raise JournalCorrupt("fact", f"no release wrote {kind!r} version {version}")
            version += 1
            fact = {"kind": kind, "v": version, **_members(step(fact))}
        for member in self._nested.get(kind, ()):
            if isinstance(held := fact.get(member), dict):
                upcast = self.upcast(held)
                if upcast is not held:
                    fact = {**fact, member: upcast}
        return fact


def _members(fact: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fact.items() if name not in {"kind", "v"}}


FACTS = (session_facts, stimuli, tree_facts)
"""Rooms whose import makes every kind of fact known."""

UPCASTERS = Upcasters(STEPS, current_versions(), former=FORMER_KINDS, nested=NESTED)
"""Brings facts of any release to the current kinds and versions."""


def read_fact(text: str) -> Any:
    """Return the fact of a journaled text, in the form of this release; it may hold those that followed.

    Raises:
        JournalTooNew: a later release wrote it.
        JournalCorrupt: it names nothing any release wrote.
    """
    return from_wire(UPCASTERS.upcast(json.loads(text)))


def read_facts(text: str) -> tuple[Any, ...]:
    """Return the facts of a journaled text one by one, in their order.

    Raises:
        JournalTooNew, JournalCorrupt: as :func:`read_fact`.
    """
    return parts_of(read_fact(text))


def replay_session(spec: SessionSpec, limits: Limits, texts: Iterable[str], id_key: str = "") -> SessionState:
    """Rebuild a session's state from its facts, oldest first; give ``id_key`` if the session is to go on."""
    state = initial(spec, limits, id_key)
    for text in texts:
        evolve(state, read_fact(text))
    return state
