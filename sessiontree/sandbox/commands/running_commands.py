"""What each shell of a session has: commands that run, in turns, and their end with the session."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.handles.ports import Finished
from sessiontree.sandbox.commands.command_channel import CommandChannel
from sessiontree.sandbox.process_tree import ProcessIdentity
from sessiontree.sandbox.resources.command_turns import SessionTurns


class OneCommand(Protocol):
    """A command that runs."""

    def kill(self) -> set[ProcessIdentity]:
        """Have it killed; return its processes."""
        ...


class OneTurn:
    """A turn that was taken, and is given back once."""

    __slots__ = ("_turns",)

    def __init__(self, turns: SessionTurns) -> None:
        self._turns: SessionTurns | None = turns

    def leave(self) -> None:
        """Give the turn back, if that was not done yet."""
        turns, self._turns = self._turns, None
        if turns is not None:
            turns.leave()


class RunningCommands:
    """The part of a shell that knows which of its commands run.

    Args:
        cleanup_s: How long a command may take to end, in seconds, after its time-out or after its caller was
            cancelled; then it is killed.
        turns: How many commands run at a time; the others wait. None = any number.
    """

    def __init__(self, cleanup_s: float, turns: SessionTurns | None) -> None:
        self.cleanup_s = cleanup_s
        """How long a command may take to end, in seconds."""
        self._turns = turns
        self._has_ended = False
        self._running: set[OneCommand] = set()
        self._none_runs = asyncio.Event()
        self._none_runs.set()

    def end(self) -> set[ProcessIdentity]:
        """Kill the running commands; return their processes.

        From now on a command that must end is killed at once, because no caller can wait for it.
        """
        self.cleanup_s = 0.0
        self._has_ended = True
        return set().union(*(command.kill() for command in self._running))

    @property
    def is_running(self) -> bool:
        """Whether a command runs."""
        return bool(self._running)

    async def ended(self) -> None:
        """Wait until no command runs and nothing that one started still exists."""
        await self._none_runs.wait()

    async def take_turn(
        self, run: Callable[[], Awaitable[Finished]], channel: CommandChannel | None = None
    ) -> Finished:
        """Run a command in its turn; its channel can give the turn back early."""
        if self._turns is None:
            return await run()
        if not self._turns.enter_at_once():
            await self._turns.enter()
        turn = OneTurn(self._turns)
        if channel is not None:
            channel.leave_turn = turn.leave
        try:
            # The session may have left while this command waited for its turn; nobody would end it then.
            self._check_not_ended()
            return await run()
        finally:
            turn.leave()

    def _check_not_ended(self) -> None:
        if self._has_ended:
            raise ExecutionError("the command was not started: its session has left while it waited")

    @contextmanager
    def hold(self, command: OneCommand) -> Iterator[None]:
        """Count a command among those that run, while the block does."""
        self._running.add(command)
        self._none_runs.clear()
        try:
            yield
        finally:
            self._running.discard(command)
            if not self._running:
                self._none_runs.set()
