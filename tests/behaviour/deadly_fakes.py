"""A model and tools that stop where their test wants to kill the program, whichever process they run in."""

from __future__ import annotations

from sessiontree import ModelRequest, ToolContext, ToolResult
from sessiontree.models.answers import Answer
from tests.behaviour import household_fakes as household
from tests.behaviour.effect_fakes import Append, Launch, Words
from tests.behaviour.signal_fixtures import Counter, Flag
from tests.behaviour.switchboard_fixtures import Switchboard


class Countdown:
    """Stops whoever reaches a point as the n-th, for good.

    Args:
        board: Where all processes count together.
        point: ``model`` (while a model is asked), ``before`` or ``after`` (an effect).
        number: From 1.
    """

    def __init__(self, board: Switchboard, point: str, number: int) -> None:
        self._point = point
        self._number = number
        self._passed = Counter(board)
        self._never = Flag(board)
        self.reached = Flag(board)
        """Up when somebody was stopped."""

    def reach(self, point: str) -> None:
        """Pass a point, or stop there: the thread, and in it an event loop with all it drives."""
        if point == self._point and self._passed.add() == self._number:
            self.reached.set()
            self._never.wait_blocking()


class DeadlyReply:
    """Replies as the household does."""

    def __init__(self, countdown: Countdown) -> None:
        self._countdown = countdown

    def __call__(self, request: ModelRequest) -> Answer:
        """Return what a session of the household says next."""
        self._countdown.reach("model")
        return household.reply(request)


class DeadlyAppend(Append):
    """Reaches its points."""

    def __init__(self, countdown: Countdown) -> None:
        self._countdown = countdown

    async def execute(self, params: Words, ctx: ToolContext) -> ToolResult:
        self._countdown.reach("before")
        result = await super().execute(params, ctx)
        self._countdown.reach("after")
        return result


class DeadlyLaunch(DeadlyAppend, Launch):
    """The same, for the Elevated tool."""

    name = Launch.name
    description = Launch.description
    tier = Launch.tier
