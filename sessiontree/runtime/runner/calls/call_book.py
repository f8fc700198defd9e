"""The calls of one session on this host: the phase that each is in, and the phases that may follow it.

What was *decided* about a call is in the state of the session's machine and in the journal. A phase here says
only what this host *does* for it, and is lost with the host. A call of which nothing is done here is
``ABSENT`` and not in the book: it waits in the machine, with the program, with a person or in an interpreter.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from typing import Any, Final

from sessiontree.contracts.recorded.approvals import CheckedCall
from sessiontree.contracts.tools.context import CallSignals
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.dispatch.results import PreparedCall
from sessiontree.sandbox import SessionTurns
from sessiontree.session.instructions import ExecuteCall, TakeAnswer


class CallPhase(IntEnum):
    """What a host does for a call."""

    ABSENT = 0
    """Nothing."""
    PREPARING = 1
    """Interceptors prepare it, now or after the calls before it."""
    PREPARED = 2
    """It was checked, and waits for what the machine decides: an intent, an approval."""
    READY = 3
    """It is to run: in the driver, or in a task that has not begun."""
    RUNNING = 4
    """It runs, waits for its turn among other calls, or waits for its next attempt."""
    ANSWERING = 5
    """Its result is made of the answer of the program or of a person."""
    SETTLING = 6
    """Interceptors settle its outcome, or have settled it and no fact says so yet."""


_ABSENT, _PREPARED = CallPhase.ABSENT, CallPhase.PREPARED
_READY, _RUNNING, _SETTLING = CallPhase.READY, CallPhase.RUNNING, CallPhase.SETTLING

ALLOWED: Final[Mapping[CallPhase, frozenset[CallPhase]]] = {
    # From nothing: it is prepared; it runs, because another host had prepared it; it was answered; or an
    # outcome came that was made at once: of a program, of a search, or of a call that may not be made.
    _ABSENT: frozenset({CallPhase.PREPARING, _PREPARED, _READY, CallPhase.ANSWERING, _SETTLING}),
    # It passed; it has its outcome already; or its arguments do not fit, or it was aborted.
    CallPhase.PREPARING: frozenset({_PREPARED, _SETTLING, _ABSENT}),
    # It may run; or it was handed over, began as a program, got its outcome at once, or was resolved.
    _PREPARED: frozenset({_READY, _ABSENT}),
    # It begins; it can't be prepared again; or it was aborted before it began.
    _READY: frozenset({_RUNNING, _SETTLING, _ABSENT}),
    # It ended, was abandoned, or asked a person for input. Never READY: nothing runs twice.
    _RUNNING: frozenset({_SETTLING, _ABSENT}),
    CallPhase.ANSWERING: frozenset({_SETTLING, _ABSENT}),
    _SETTLING: frozenset({_ABSENT}),
}
"""Each phase, and those that may follow it."""


@dataclass(slots=True)
class Running:
    """The run of a call that executes, waits for its turn, or waits for its next attempt."""

    prepared: PreparedCall
    signals: CallSignals
    task: asyncio.Task[Any] | None
    give_up_at: float = math.inf
    """Monotonic time at which it is abandoned; set when it was asked to stop."""
    unwanted: bool = False
    """Whether it is not tried again, because it was asked to stop or was abandoned."""
    inside: bool = False
    """Whether it holds the lock."""
    turns: SessionTurns | None = None
    """Those of which it has one; None = it needs none, or waits."""


@dataclass(slots=True)
class CallEntry:
    """A call for which this host does something."""

    key: str
    phase: CallPhase = CallPhase.ABSENT
    prepared: PreparedCall | None = None
    """The call as it was checked here; None = another host checked it, or it was not checked yet."""
    checked: CheckedCall | None = None
    """What is to run; None = it is not to run yet."""
    task: asyncio.Task[Any] | None = None
    """The task in which interceptors prepare it."""
    running: Running | None = None
    """Its run; None = it does not run, or was abandoned."""
    take: TakeAnswer | None = None
    """The answer that its result is made of."""
    begun_s: float | None = None
    """When its run began, or it began to wait for its answer, in seconds of the monotonic clock; noted only
    where interceptors settle it."""


class CallBook:
    """The calls of one session that are in a phase here. Only :meth:`move` changes a phase."""

    __slots__ = ("_calls", "find", "running", "to_start")

    def __init__(self) -> None:
        self._calls: dict[str, CallEntry] = {}
        self.find: Callable[[str], CallEntry | None] = self._calls.get
        """Returns a call; None if it is in no phase here. Bound, because every step of every call asks."""
        self.to_start: list[ExecuteCall] = []
        """Calls in ``READY`` that no task has been made for yet, in the order of their instructions."""
        self.running = 0
        """How many calls are in ``RUNNING``."""

    def move(self, call: CallEntry, phase: CallPhase) -> None:
        """Move a call to a phase; in ``ABSENT`` it leaves the book.

        Raises:
            RuntimeError: the phase may not follow the one that the call is in.
        """
        before = call.phase
        if phase not in ALLOWED[before]:
            raise RuntimeError(f"call {call.key} can't go from {before.name} to {phase.name}")
        if before is _RUNNING:
            self.running -= 1
        elif phase is _RUNNING:
            self.running += 1
        call.phase = phase
        if phase is _ABSENT:
            del self._calls[call.key]
        elif before is _ABSENT:
            self._calls[call.key] = call

    def enter(self, key: str, phase: CallPhase) -> CallEntry:
        """Move a call to a phase, from whichever it is in, and return it."""
        call = self._calls.get(key) or CallEntry(key)
        self.move(call, phase)
        return call

    def keep_prepared(self, prepared: PreparedCall) -> None:
        """Keep a checked call until it runs; one that was checked before is replaced."""
        call = self._calls.get(prepared.call.key) or CallEntry(prepared.call.key)
        if call.phase is not _PREPARED:
            self.move(call, _PREPARED)
        call.prepared = prepared

    def take_prepared(self, key: str) -> PreparedCall | None:
        """Remove a checked call that will not run here, and return it; None = another host checked it."""
        call = self._calls.get(key)
        if call is None:
            return None
        self.move(call, _ABSENT)
        return call.prepared

    def can_begin(self, key: str) -> bool:
        """Whether a call that is to be carried out is not under way here already.

        After a host was lost, a call may be owed twice: by the session's intent, and by the stimulus that the
        intent is durable. The second one may come while the call runs, or while its outcome is settled; then
        the call continues and does not begin again.
        """
        call = self._calls.get(key)
        return call is None or call.phase is _PREPARED

    def start(self, execute: ExecuteCall) -> None:
        """Let a call run as soon as the driver comes to it."""
        call = self._calls.get(execute.call.key) or CallEntry(execute.call.key)
        self.move(call, _READY)
        call.checked = execute.call
        self.to_start.append(execute)

    def resolve(self, key: str) -> None:
        """Forget a call that has its final result, unless something is still done for it here."""
        call = self._calls.get(key)
        if call is not None and (call.phase is _PREPARED or call.phase is _SETTLING):
            self.move(call, _ABSENT)

    def has_phase(self, key: str, phase: CallPhase) -> bool:
        """Whether a call is in a phase."""
        call = self._calls.get(key)
        return call is not None and call.phase is phase

    def list_running(self) -> Iterator[tuple[CallEntry, Running]]:
        """Yield the calls that run; meanwhile the book may change."""
        for call in list(self._calls.values()) if self.running else ():
            if call.running is not None:
                yield call, call.running
