"""The supervisor's way to memory in another process: started with the first use, told what it must know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sessiontree.runtime.memory_words import Ended, MemoryProcess, MemoryRight, Told, Whose
from sessiontree.runtime.reports import ActorRow

NAME = "memory"


class MemoryLink:
    """Memory in a process of its own. The engine starts that again when it dies; it then knows nothing.

    Args:
        start: Starts it.
    """

    def __init__(self, start: Callable[[], MemoryProcess]) -> None:
        """Begin without it."""
        self._start = start
        self._process: MemoryProcess | None = None
        self._pid = 0
        self._told: set[str] = set()
        """Grants it may have kept."""
        self._ended: list[Ended] = []
        """Trees whose end it may not have heard of yet."""

    def way(self) -> Any:
        """Return what hosts need to ask it, starting it if it does not run."""
        if self._process is None:
            self._process = self._start()
        return self._process.way

    def begun(self, pid: int) -> None:
        """Hear that it begins, in a process that knows no grant yet."""
        self._pid = pid
        self._told.clear()
        self._ended.clear()

    def told(self, wanted: Sequence[tuple[str, MemoryRight]], answers: Sequence[Whose]) -> Told:
        """Return what it is told, noting it, so that it hears when that is true no more."""
        for (grant, right), answer in zip(wanted, answers, strict=True):
            if right == "recall" and not isinstance(answer, Exception):
                self._told.add(grant)
        ended, self._ended = tuple(self._ended), []
        return Told(answers, ended)

    def revoked(self, grant: str) -> None:
        """Say that a grant counts no more."""
        if self._process is not None and grant in self._told:
            self._told.discard(grant)
            self._process.tell("revoked", grant)

    def ended(self, end: Ended) -> None:
        """Say that a tree's Main has completed; memory that does not run asks when it begins."""
        if self._process is not None:
            # Also with the next answer: calls of an engine may overtake each other.
            self._ended.append(end)
            self._process.tell("ended", end)

    def actors(self) -> list[ActorRow]:
        """Return its process, if it runs."""
        if self._process is None:
            return []
        return [ActorRow(NAME, "memory", self._pid, "starting" if self._pid == 0 else "structural")]

    async def close(self) -> None:
        """Let it write what is to be written, and end it."""
        if self._process is not None:
            process, self._process = self._process, None
            await process.end()
