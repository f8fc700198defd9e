"""How long a tree did nothing but wait for what others share with it: hosts, rate limiters, retries.

Waiting for a person, a child or a model's reply is not meant. A tree that works in one session and waits in
another one works.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final, Literal, Protocol, TypeAlias

WaitsFor: TypeAlias = Literal["host", "limiter", "retry"]
_KINDS: Final[tuple[WaitsFor, ...]] = ("host", "limiter", "retry")


class Busy(Protocol):
    """What is known here of a live session."""

    session: str
    idle: bool
    """Whether nothing of it runs on its host."""


class WaitTimes:
    """Adds up the waits of one tree; each note costs the same however many sessions live.

    Args:
        lives: The tree's live sessions, by id.
    """

    __slots__ = ("_asking", "_held", "_lives", "_since_s", "_total_s", "_working")

    def __init__(self, lives: Mapping[str, Busy]) -> None:
        self._lives = lives
        self._held: dict[str, list[WaitsFor]] = {}
        """What each session waits for."""
        self._asking: set[str] = set()
        """Sessions whose model was asked and has not replied."""
        self._working: set[str] = set()
        """Live sessions that wait for nothing and are not idle."""
        self._total_s = 0.0
        self._since_s: float | None = None
        """Since when the tree only waits; None = it does not."""

    def hold(self, session: str, what: WaitsFor) -> None:
        """Note that a session begins to wait."""
        held = self._held.setdefault(session, [])
        if what not in held:
            held.append(what)
            self.on_stirred(session)

    def release(self, session: str, what: WaitsFor) -> None:
        """Note that it does not wait for that any more."""
        held = self._held.get(session, [])
        if what in held:
            held.remove(what)
            if not held:
                del self._held[session]
            self.on_stirred(session)

    def asked(self, session: str) -> None:
        """Note that a session's model is asked."""
        self._asking.add(session)
        self.on_stirred(session)

    def answered(self, session: str) -> None:
        """Note that a session waits for no reply of its model."""
        self._asking.discard(session)
        self.release(session, "limiter")
        self.on_stirred(session)

    def on_stirred(self, session: str) -> None:
        """Note that a session began or stopped to work."""
        live = self._lives.get(session)
        is_busy = live is not None and (not live.idle or session in self._asking)
        if is_busy and session not in self._held:
            self._working.add(session)
        else:
            self._working.discard(session)
        self._look()

    def forget(self, session: str) -> None:
        """Note that a session has ended."""
        self._asking.discard(session)
        self._held.pop(session, None)
        self._working.discard(session)
        self._look()

    def measure_waited_s(self) -> float:
        """Return how long the tree has only waited so far, in seconds."""
        self._look()
        return self._total_s

    def _look(self) -> None:
        if self._since_s is None and not self._held:
            return
        now_s = time.monotonic()
        if self._since_s is not None:
            self._total_s += now_s - self._since_s
        self._since_s = now_s if self._held and not self._working else None
