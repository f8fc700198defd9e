"""Messages of JSON-RPC, one a line: what the other side writes is bounded and checked here."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from acp import RequestError

from sessiontree.contracts.values.jsonable import parse_json

MAX_LINE_BYTES: Final = 32 * 2**20
"""Longest message: it has room for the images of one prompt."""
MAX_ERROR_CHARS: Final = 4_000
"""Most characters that the data of an error has."""
MAX_ASKED: Final = 1_000
"""Most permissions and forms that the other side has not answered."""
_CHUNK: Final = 65_536
Write: TypeAlias = Callable[[bytes], Awaitable[None]]


class _LineTooLongError(Exception):
    """A line has more bytes than a message may have."""


def read_message(line: bytes) -> dict[str, Any]:
    """Return the message of a line, without what its sender says for others than this program.

    Raises:
        RequestError: it is not a message: not JSON, not an object, or a member has another type.
    """
    try:
        message = parse_json(line)
    except ValueError as error:
        raise RequestError.parse_error({"details": str(error)[:200]}) from None
    if not isinstance(message, dict):
        raise RequestError.invalid_request({"details": "a message is an object"})
    if isinstance(message.get("id"), bool) or not isinstance(message.get("id"), int | str | None):
        raise RequestError.invalid_request({"details": "an id is a number or a text"})
    if not isinstance(message.get("method"), str | None):
        raise RequestError.invalid_request({"details": "a method is a text"})
    if isinstance(params := message.get("params"), dict):
        params.pop("_meta", None)
    return message


def _is_heard(message: dict[str, Any]) -> bool:
    """Return whether a message means anything here; a notification that does not is ignored, as agreed."""
    if message.get("method") is None or message.get("id") is not None:
        return True
    params = message.get("params")
    return message["method"] == "session/cancel" and isinstance(
        params.get("sessionId") if isinstance(params, dict) else None, str
    )


def _find_answered_id(line: bytes) -> int | str | None:
    """Return the id that an answer to a refused message has."""
    try:
        found = parse_json(line)["id"]
    except (ValueError, LookupError, TypeError):
        return None
    return found if isinstance(found, int | str) and not isinstance(found, bool) else None


def _find_asked(message: dict[str, Any]) -> str | None:
    """Return the id of the request or the question of the tree that a message asks about; None = of none."""
    if message.get("method") not in {"session/request_permission", "elicitation/create"}:
        return None
    params = message["params"]
    meta = params.get("toolCall", params).get("_meta") or {}
    asked: str | None = meta.get("sessiontree", {}).get("request")
    return asked


class MessageLines:
    """The lines of a reader and a writer as messages; a line that can't be read is answered with an error.

    Args:
        reader: What the other side writes.
        write: Writes whole lines, at once and in order; it waits while too much is unread.
    """

    def __init__(self, reader: asyncio.StreamReader, write: Write) -> None:
        self._reader = reader
        self._write = write
        self._buffer = bytearray()
        self._scanned = 0
        self._is_skipping = False
        self._asked: dict[str, int | str] = {}
        """Ids of the messages that the other side has not answered, by what of the tree they ask about."""

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message; None = the other side has closed the stream."""
        while True:
            try:
                line = await self._read_line()
            except _LineTooLongError:
                most = f"a message has at most {MAX_LINE_BYTES:,} bytes"
                await self._refuse(None, RequestError.invalid_request({"details": most}))
                continue
            if line is None:
                return None
            if not line.strip():
                continue
            try:
                message = read_message(line)
            except RequestError as error:
                await self._refuse(_find_answered_id(line), error)
                continue
            if message.get("method") is None:
                self._forget_answered(message.get("id"))
            if _is_heard(message):
                return message

    async def send(self, message: dict[str, Any]) -> None:
        """Write a message; the line is on its way before this first waits.

        Raises:
            ConnectionError: nobody reads any more.
            RequestError: it asks, and the other side leaves too much unanswered.
        """
        if (asked := _find_asked(message)) is not None:
            if len(self._asked) >= MAX_ASKED:
                most = f"{MAX_ASKED:,} requests of this agent wait for an answer already"
                raise RequestError.invalid_request({"details": most})
            self._asked[asked] = message["id"]
        error = message.get("error")
        if isinstance(error, dict) and len(json.dumps(error.get("data"), default=str)) > MAX_ERROR_CHARS:
            message = {**message, "error": {**error, "data": {"details": "the request is not valid"}}}
        line = json.dumps(message, separators=(",", ":"), default=str)
        await self._write(line.encode() + b"\n")

    async def withdraw(self, asked: str) -> None:
        """Let the other side know that it need not answer any more.

        Args:
            asked: Id of the request for an approval, or of the question, that it was asked about.
        """
        message_id = self._asked.pop(asked, None)
        if message_id is not None:
            params = {"requestId": message_id}
            await self.send({"jsonrpc": "2.0", "method": "$/cancel_request", "params": params})

    def _forget_answered(self, message_id: object) -> None:
        for asked, sent in self._asked.items():
            if sent == message_id:
                del self._asked[asked]
                return

    async def close(self) -> None:
        """Close nothing: the streams belong to the process."""

    async def _refuse(self, request_id: int | str | None, error: RequestError) -> None:
        await self.send({"jsonrpc": "2.0", "id": request_id, "error": error.to_error_obj()})

    async def _read_line(self) -> bytes | None:
        """Return the next line without its end.

        Raises:
            _LineTooLongError: it was too long; the line after it is next.
        """
        while True:
            # From where the last search ended: a long line would otherwise be searched again with each piece.
            end = self._buffer.find(b"\n", self._scanned)
            if end >= 0:
                line = bytes(self._buffer[:end])
                del self._buffer[: end + 1]
                self._scanned = 0
                if self._is_skipping:
                    self._is_skipping = False
                    raise _LineTooLongError
                return line
            self._scanned = len(self._buffer)
            # The bytes are dropped as they arrive, so an endless line cannot fill the memory.
            if self._scanned > MAX_LINE_BYTES:
                self._buffer.clear()
                self._scanned, self._is_skipping = 0, True
            try:
                data = await self._reader.read(_CHUNK)
            except ConnectionError:
                data = b""  # an editor that was killed has gone as one that has closed its end
            if not data:
                rest = b"" if self._is_skipping else bytes(self._buffer)
                self._buffer.clear()
                self._scanned = 0
                return rest or None
            self._buffer += data
