"""Turns: how many commands run at a time, in one session and in one process, and who is next.

A command takes processes, memory and room of its own, within its bounds. Their number multiplies the bounds,
so it is bounded too. Sessions take turns; within a session, commands begin in the order in which they came.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Final

COMMANDS_PER_CPU: Final = 8
LEAST_COMMANDS: Final = 32


def compute_command_limit() -> int:
    """Return how many commands of one process run at a time.

    Twice as many as one session may have by default, so that a busy session leaves room for others. Commands
    often wait, for a disk or for a time, so a few for each processor keep it busy; more would only wait for
    each other, and hold their memory meanwhile.
    """
    return max(LEAST_COMMANDS, COMMANDS_PER_CPU * (os.cpu_count() or 1))


class Turns:
    """The turns of one process. Everything happens on one loop.

    Args:
        most: How many have a turn at a time.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._given = 0
        self._waiting: OrderedDict[SessionTurns, None] = OrderedDict()
        """The sessions in which somebody waits; the first one is next."""

    def make_session_turns(self, most: int) -> SessionTurns:
        """Return the turns of one more session, of which at most so many are given at a time."""
        return SessionTurns(self, most)

    def has_room(self) -> bool:
        """Whether one more may have a turn in this process."""
        return self._given < self._most

    def count(self, change: int) -> None:
        """Count a turn that was given (1) or came back (-1)."""
        self._given += change

    def line_up(self, session: SessionTurns, *, waits: bool) -> None:
        """Keep a session's place while somebody waits in it; a session that comes is the last."""
        if waits:
            self._waiting.setdefault(session)
        else:
            self._waiting.pop(session, None)

    def admit(self) -> None:
        """Give the turns that are free, one to each session in its turn."""
        passed = 0
        while self.has_room() and passed < len(self._waiting):
            session = next(iter(self._waiting))
            # Moved before it is asked: whether or not it takes the turn, the next session is asked then, so
            # none can keep the others waiting.
            self._waiting.move_to_end(session)
            if session.admit_first():
                passed = 0
            elif session in self._waiting:  # else all who waited in it were cancelled
                passed += 1


class SessionTurns:
    """The turns of one session; see :class:`Turns`, which makes it."""

    def __init__(self, turns: Turns, most: int) -> None:
        self._turns = turns
        self.most = most
        self._given = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._waking = 0
        """How many have a turn and have not run since; who comes meanwhile must not begin before them."""

    @property
    def waiting(self) -> int:
        """How many wait for a turn."""
        return len(self._waiting)

    def enter_at_once(self) -> bool:
        """Take a turn without waiting; return False if that is not possible now."""
        # A newcomer may not overtake those that wait, nor those that have a turn and have not run since.
        if self._waiting or self._waking or not self._may_enter():
            return False
        self._take()
        return True

    async def enter(self) -> None:
        """Wait for a turn and take it. A caller that is cancelled meanwhile has none."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._turns.line_up(self, waits=True)
        self._turns.admit()
        try:
            if turn.done():  # those who got their turn before and have not run since begin first
                await asyncio.sleep(0)
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it got its turn at the same moment
                self._waking -= 1
                # The turn was given between the cancellation and now; kept, it would be lost for good.
                self.leave()
            elif turn in self._waiting:
                self._waiting.remove(turn)
                self._turns.line_up(self, waits=bool(self._waiting))
            raise
        self._waking -= 1

    def leave(self) -> None:
        """Give a turn back; once for each that was taken."""
        self._given -= 1
        self._turns.count(-1)
        self._turns.admit()

    def admit_first(self) -> bool:
        """Give the first who waits a turn; return False if this session may have no more now."""
        while self._waiting and self._waiting[0].done():  # cancelled; its caller has not run since
            self._waiting.popleft()
        if not self._waiting or not self._may_enter():
            self._turns.line_up(self, waits=bool(self._waiting))
            return False
        self._take()
        self._waking += 1
        self._waiting.popleft().set_result(None)
        self._turns.line_up(self, waits=bool(self._waiting))
        return True

    def _may_enter(self) -> bool:
        return self._given < self.most and self._turns.has_room()

    def _take(self) -> None:
        self._given += 1
        self._turns.count(1)


@dataclass(frozen=True, slots=True)
class CommandTurns:
    """What one process gives turns for.

    A call that may run commands has one while it runs, and each command has one besides. The first kind is
    waited for before the call's time begins; the second kind bounds a call that starts many commands.
    """

    calls: Turns = field(default_factory=lambda: Turns(compute_command_limit()))
    commands: Turns = field(default_factory=lambda: Turns(compute_command_limit()))
