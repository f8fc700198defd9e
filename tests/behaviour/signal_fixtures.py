"""What tests and their doubles share across processes: flags, turnstiles, logs and counters.

Each is a name on the test's switchboard. Made in the test's process from the switchboard, it is pickled as
address, token and name, and good wherever it arrives.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any, Self

from tests.behaviour.switchboard_fixtures import Line, Remote, Switchboard


class Signal:
    """A name on a switchboard.

    Args:
        board: The switchboard of this process, or the way to one.
        name: The name; None = a new one.
    """

    def __init__(self, board: Switchboard | Remote, name: str | None = None) -> None:
        """Name something."""
        self._remote = board.remote if isinstance(board, Switchboard) else board
        self._line: Line = board
        self.name = name if name is not None else f"{type(self).__name__}-{secrets.token_hex(8)}"
        """What it is called on the switchboard."""

    def __reduce__(self) -> tuple[type[Self], tuple[Remote, str]]:
        """Return the address and the name; the switchboard stays where it is."""
        return type(self), (self._remote, self.name)


class Flag(Signal):
    """Up or down; once up it stays up."""

    def set(self) -> None:
        """Raise it."""
        self._line.ask((self.name, "lift", 1))

    def is_set(self) -> bool:
        """Whether it is up."""
        return bool(self._line.ask((self.name, "level")))

    async def wait(self) -> None:
        """Wait until it is up."""
        await self._line.ask_later((self.name, "wait", 1, 0))

    def wait_blocking(self, timeout_s: float | None = None) -> bool:
        """Block the thread until it is up; False where the time was over first."""
        try:
            self._line.ask((self.name, "wait", 1, 0), timeout_s)
        except TimeoutError:
            return False
        return True


class Turnstile(Signal):
    """Lets through as many as it was released for."""

    def release(self, count: int = 1) -> None:
        """Let so many more through."""
        self._line.ask((self.name, "add", count))

    async def acquire(self) -> None:
        """Wait to be let through."""
        await self._line.ask_later((self.name, "wait", 1, 1))


class Log(Signal):
    """Values with a JSON form, in the order they were written; compares as a list."""

    __hash__ = None  # type: ignore[assignment]

    def append(self, item: Any) -> None:
        """Write something; everybody can read it when this returns."""
        self._line.ask((self.name, "append", item))

    def items(self) -> list[Any]:
        """Return what was written so far."""
        found: list[Any] = self._line.ask((self.name, "items"))
        return found

    async def holds(self, count: int) -> list[Any]:
        """Wait until so many were written, and return what is there."""
        await self._line.ask_later((self.name, "wait", count, 0))
        return self.items()

    def __len__(self) -> int:
        """Return how many were written so far."""
        return len(self.items())

    def __iter__(self) -> Iterator[Any]:
        """Yield what was written so far."""
        return iter(self.items())

    def __eq__(self, other: object) -> bool:
        """Whether what was written so far is this list."""
        return self.items() == (other.items() if isinstance(other, Log) else other)

    def __repr__(self) -> str:
        """Show what was written so far."""
        return f"Log({self.items()})"


class Counter(Signal):
    """A number that only rises."""

    def add(self, count: int = 1) -> int:
        """Count, and return the number then: each caller gets another."""
        number: int = self._line.ask((self.name, "add", count))
        return number

    def value(self) -> int:
        """Return the number now."""
        number: int = self._line.ask((self.name, "level"))
        return number
