"""Bringing facts of earlier releases to the current form, one version step at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from sessiontree.contracts.errors import JournalCorrupt, JournalTooNew

Step: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]
"""Takes a fact of version v and returns it as of v + 1; pure, never changes its argument."""


class Upcasters:
    """The steps of every kind of fact.

    Args:
        steps: (kind, v) → the function from v to v + 1. The function need not set ``v``.
        current: Every kind and its current version.

    Raises:
        ValueError: a step of an unknown kind, a step from the current version or beyond, or a gap
            between a step and the current version.
    """

    def __init__(self, steps: Mapping[tuple[str, int], Step], current: Mapping[str, int]) -> None:
        for kind, version in steps:
            if version >= current.get(kind, version):
                raise ValueError(f"no version follows {version} of the fact kind {kind!r}")
            if version + 1 < current[kind] and (kind, version + 1) not in steps:
                raise ValueError(f"no step leads on from version {version + 1} of the fact kind {kind!r}")
        self._steps = dict(steps)
        self._current = dict(current)

    def upcast(self, fact: dict[str, Any]) -> dict[str, Any]:
        """Return the fact in its current form; the given one where it is current.

        Raises:
            JournalTooNew: a later release wrote it.
            JournalCorrupt: its kind or version names nothing this release ever wrote.
        """
        kind, version = fact.get("kind"), fact.get("v")
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
            fact = {**step(fact), "kind": kind, "v": version}
        return fact
