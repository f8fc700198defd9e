"""Asking: one connection to a runtime at the asking side; answers find their questions by id."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

from sessiontree.contracts.errors import ConfigError, JournalError, SessionTreeError
from sessiontree.control.error_codec import error_from_wire
from sessiontree.control.lines import MAX_LINE_BYTES, Lines
from sessiontree.control.place import knock
from sessiontree.control.requests import PROTOCOL, line_of

READ_BYTES = 64 * 1024
KNOCK_AGAIN_S = 0.02
"""How long to wait before knocking again where too many do."""


class RpcReply(NamedTuple):
    """An answer."""

    value: Any
    items: list[Any]


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A question whose answer is on its way."""

    answered: asyncio.Future[RpcReply]
    items: list[Any] = field(default_factory=list)


class Asking:
    """Asks a runtime, many questions at once. Made by :meth:`reach`."""

    def __init__(self, state_dir: Path, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._place = str(state_dir)
        self._reader = reader
        self._writer = writer
        self._lines = Lines()
        self._waiting: dict[int, _Waiting] = {}
        self._last_id = 0
        self._failure: SessionTreeError | None = None
        self._listening: asyncio.Task[None] | None = None
        self.release = ""
        """The runtime's release."""

    @classmethod
    async def reach(cls, state_dir: Path, timeout_s: float) -> Self | None:
        """Return a connection to the runtime of a state directory, None where none is at work there.

        Raises:
            JournalError: it does not answer in time, or the system refused.
            PermissionDenied: this process may not ask.
            SessionTreeError: too many ask already.
        """
        asking: Self | None = None
        try:
            async with asyncio.timeout(timeout_s):
                line = await _knock(state_dir)
                if line is None:
                    return None
                reader, writer = await asyncio.open_unix_connection(sock=line, limit=READ_BYTES)
                asking = cls(state_dir, reader, writer)
                return asking if await asking._greeted() else None
        except TimeoutError as error:
            reason = f"its runtime does not answer within {timeout_s:g} s: it is stopped, or very busy"
            raise JournalError(str(state_dir), f"{reason}; try again") from error
        finally:
            if asking is not None and asking._listening is None:
                await asking.close()

    @property
    def is_open(self) -> bool:
        """Whether the runtime can still be asked."""
        return self._failure is None

    async def close(self) -> None:
        """Hang up; whoever waits for an answer is told so."""
        self._fail(JournalError(self._place, "the connection to its runtime was closed here"))
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait({self._listening})
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()

    async def ask(self, ask: str, **given: Any) -> RpcReply:
        """Ask, and return the answer. Being cancelled withdraws the question.

        Raises:
            JournalError: the runtime is gone.
            ConfigError: the question has no JSON form, or is too long.
            SessionTreeError: as it was answered.
        """
        if self._failure is not None:
            raise self._failure
        self._last_id += 1
        number = self._last_id
        line = _question(number, ask, given)
        waiting = self._waiting[number] = _Waiting(asyncio.get_running_loop().create_future())
        try:
            self._writer.write(line)
            with suppress(OSError):  # whoever listens finds out, and tells why
                await self._writer.drain()
            return await waiting.answered
        except asyncio.CancelledError:
            if not self._writer.is_closing():
                self._writer.write(line_of({"withdraw": number}))
            raise
        finally:
            self._waiting.pop(number, None)

    async def _greeted(self) -> bool:
        """Hear the runtime's first words, then listen; False where it is gone already.

        Raises:
            SessionTreeError: it refuses, or speaks another protocol.
        """
        lines: list[bytes] = []
        while not lines:
            try:
                data = await self._reader.read(READ_BYTES)
            except OSError:
                return False
            if not data:
                return False
            lines = self._lines.take(data)
        first = _object(lines[0])
        if "error" in first:
            raise error_from_wire(first["error"])
        self.release = str(first.get("release"))
        if first.get("protocol") != PROTOCOL:
            reason = f"its runtime is of release {self.release} and speaks otherwise; ask with that release"
            raise JournalError(self._place, reason)
        for line in lines[1:]:
            self._take(line)
        self._listening = asyncio.create_task(self._listen())
        return True

    async def _listen(self) -> None:
        reason = "its runtime has ended, or hung up"
        try:
            while data := await self._reader.read(READ_BYTES):
                for line in self._lines.take(data):
                    self._take(line)
                if self._lines.is_overlong:
                    reason = "its runtime said something too long to be understood"
                    break
        except OSError as error:
            reason = f"its runtime has ended: {error.strerror or error}"
        self._fail(JournalError(self._place, f"{reason}; what it did is in the journal"))
        self._writer.close()

    def _take(self, line: bytes) -> None:
        said = _object(line)
        number = said.get("id")
        if number is None and "error" in said:
            self._fail(error_from_wire(said["error"]))
        waiting = self._waiting.get(number) if isinstance(number, int) else None
        if waiting is None or waiting.answered.done():
            return  # nobody waits for it any more
        if "items" in said:
            waiting.items.extend(said["items"])
        elif "error" in said:
            waiting.answered.set_exception(error_from_wire(said["error"]))
        else:
            waiting.answered.set_result(RpcReply(said.get("value"), waiting.items))

    def _fail(self, error: SessionTreeError) -> None:
        if self._failure is None:
            self._failure = error
        for waiting in self._waiting.values():
            if not waiting.answered.done():
                waiting.answered.set_exception(self._failure)


async def _knock(state_dir: Path) -> socket.socket | None:
    while True:
        try:
            return knock(state_dir)
        except BlockingIOError:
            await asyncio.sleep(KNOCK_AGAIN_S)


def _question(number: int, ask: str, given: Mapping[str, Any]) -> bytes:
    try:
        line = line_of({"id": number, "ask": ask, "given": given})
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"what is to be said to the runtime has no JSON form: {error}") from error
    if len(line) > MAX_LINE_BYTES:
        raise ConfigError(f"{len(line):,} bytes are too much to say at once; at most {MAX_LINE_BYTES:,} fit")
    return line


def _object(line: bytes) -> dict[str, Any]:
    """Return the object of a line, empty where it is none: the runtime's words are not trusted either."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}
