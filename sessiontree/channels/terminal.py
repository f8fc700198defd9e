"""The terminal as a channel: messages are printed, requests are asked and answered by a key."""

from __future__ import annotations

import asyncio
import threading
from typing import TextIO

from sessiontree.channels.shown import prompt_of, visible
from sessiontree.contracts.approvals import ApprovalAnswer, ApprovalRequest

QUESTION = "allow? [y]es once, [a]lways this tool, [n]o: "
_ANSWERS = {
    "y": ApprovalAnswer(approve=True),
    "yes": ApprovalAnswer(approve=True),
    "a": ApprovalAnswer(approve=True, always=True),
    "always": ApprovalAnswer(approve=True, always=True),
    "n": ApprovalAnswer(approve=False, reason="said no at the terminal"),
    "no": ApprovalAnswer(approve=False, reason="said no at the terminal"),
}


class TerminalChannel:
    """Asks one request at a time; an end of input means no.

    Args:
        reads: Where answers come from.
        writes: Where messages and questions go.
    """

    def __init__(self, reads: TextIO, writes: TextIO) -> None:
        self._reads = reads
        self._writes = writes
        self._turn = asyncio.Lock()
        self._line: asyncio.Future[str] | None = None
        self._withdrawn = False

    async def send(self, text: str) -> None:
        """Print a message, its invisible characters made visible line by line."""
        for line in text.splitlines() or [""]:
            self._writes.write(visible(line) + "\n")
        self._writes.flush()

    async def show(self, tool: str, display: str) -> None:
        """Print what a tool of the session says to people."""
        await self.send(f"({tool}: {display})")

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        """Show a request and wait for a key; anything but a known answer asks again.

        A line typed for a question that was withdrawn meanwhile never answers the next one.
        """
        async with self._turn:
            self._writes.write(prompt_of(request) + "\n")
            while True:
                self._writes.write(QUESTION)
                self._writes.flush()
                try:
                    line = await self._read_line()
                except asyncio.CancelledError:
                    self._withdrawn = True
                    self._writes.write("\n(the question was withdrawn)\n")
                    self._writes.flush()
                    raise
                if self._withdrawn and line != "":
                    self._withdrawn = False
                    self._writes.write("(that line was for the withdrawn question)\n")
                    continue
                if line == "":
                    self._writes.write("\n")
                    return ApprovalAnswer(approve=False, reason="the terminal's input ended")
                answer = _ANSWERS.get(line.strip().lower())
                if answer is not None:
                    return answer

    async def _read_line(self) -> str:
        """Read in a daemon thread, so that a person who never answers keeps no process alive.

        A question withdrawn while the thread waits leaves it waiting; its line is taken, and dropped, later.
        """
        if self._line is None or self._line.done():
            loop = asyncio.get_running_loop()
            line: asyncio.Future[str] = loop.create_future()
            self._line = line

            def read() -> None:
                text = self._reads.readline()
                if not loop.is_closed():
                    loop.call_soon_threadsafe(_settle, line, text)

            threading.Thread(target=read, name="terminal", daemon=True).start()
        return await asyncio.shield(self._line)


def _settle(line: asyncio.Future[str], text: str) -> None:
    if not line.done():
        line.set_result(text)
