"""The control socket's client: the supervisor's interface for another process of the same user."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from sessiontree.contracts.errors import ConfigError, JournalError, SessionTreeError
from sessiontree.contracts.values.jsonable import parse_json
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.control.call_codec import SocketAnswer, answer_from_wire, encode_arguments
from sessiontree.control.protocol import (
    MAX_LINE_BYTES,
    PROTOCOL,
    Lines,
    connect_control_socket,
    decode_error,
    encode_line,
)
from sessiontree.runtime.transport.rpc import RpcMethod, make_proxy
from sessiontree.runtime.transport.supervisor_api import SupervisorApi
from sessiontree.version import VERSION

READ_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A request that waits for its answer."""

    answered: asyncio.Future[SocketAnswer]
    items: list[Any] = field(default_factory=list)


class Asking:
    """Sends requests to a runtime, many at once. Made by :meth:`reach`."""

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
        """Connect to the runtime of a state directory; return None if no runtime runs there.

        Raises:
            JournalError: it does not answer in time, or the system refused.
            PermissionDenied: this process may not send requests.
            SessionTreeError: too many peers are connected.
        """
        asking: Self | None = None
        try:
            async with asyncio.timeout(timeout_s):
                line = await connect_control_socket(state_dir)
                if line is None:
                    return None
                reader, writer = await asyncio.open_unix_connection(sock=line, limit=READ_BYTES)
                asking = cls(state_dir, reader, writer)
                return asking if await asking._read_greeting() else None
        except TimeoutError as error:
            reason = f"its runtime did not answer within {timeout_s:g} s: it is stopped or very busy"
            raise JournalError(str(state_dir), f"{reason}; try again") from error
        finally:
            # Refused or too late: nobody else has this connection and could close it.
            if asking is not None and asking._listening is None:
                await asking.close()

    @property
    def is_open(self) -> bool:
        """Whether the runtime can still be asked."""
        return self._failure is None

    async def close(self) -> None:
        """Close the connection; pending requests fail with JournalError."""
        self._fail(JournalError(self._place, "the connection to its runtime was closed here"))
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait({self._listening})
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()

    async def ask(self, ask: str, given: Mapping[str, Any]) -> SocketAnswer:
        """Send a request and return its answer. Cancelling the task withdraws the request.

        Raises:
            JournalError: the runtime has ended.
            ConfigError: the request has no JSON form, or is too long.
            SessionTreeError: the runtime answered with this error.
        """
        if self._failure is not None:
            raise self._failure
        self._last_id += 1
        number = self._last_id
        line = _encode_question(number, ask, given)
        waiting = self._waiting[number] = _Waiting(asyncio.get_running_loop().create_future())
        try:
            self._writer.write(line)
            with suppress(OSError):  # the listening task finds out and reports why
                await self._writer.drain()
            return await waiting.answered
        except asyncio.CancelledError:
            # Without this the runtime would go on with work whose answer nobody reads.
            if not self._writer.is_closing():
                self._writer.write(encode_line({"withdraw": number}))
            raise
        finally:
            self._waiting.pop(number, None)

    async def _read_greeting(self) -> bool:
        """Read the runtime's greeting and start to listen; return False if the runtime has already ended.

        Raises:
            SessionTreeError: the runtime refuses this process, or uses another protocol.
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
        first = _parse_object(lines[0])
        if "error" in first:
            raise decode_error(first["error"])
        self.release = str(first.get("release"))
        if first.get("protocol") != PROTOCOL:
            reason = (
                f"its runtime is of release {self.release} and uses another protocol; ask with that release"
            )
            raise JournalError(self._place, reason)
        # The greeting may arrive together with further lines, such as the error that ends the connection.
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
        said = _parse_object(line)
        number = said.get("id")
        if number is None and "error" in said:
            self._fail(decode_error(said["error"]))
        waiting = self._waiting.get(number) if isinstance(number, int) else None
        if waiting is None or waiting.answered.done():
            return  # the request was withdrawn
        if "items" in said:
            # Raised here, an error would end the reader, and nobody who waits would hear of it.
            if isinstance(said["items"], list):
                waiting.items.extend(said["items"])
            else:
                waiting.answered.set_exception(SessionTreeError("the runtime answered with items of no list"))
        elif "error" in said:
            waiting.answered.set_exception(decode_error(said["error"]))
        else:
            waiting.answered.set_result(SocketAnswer(said.get("value"), waiting.items))

    def _fail(self, error: SessionTreeError) -> None:
        # The first failure is the cause; later ones only follow from it.
        if self._failure is None:
            self._failure = error
        for waiting in self._waiting.values():
            if not waiting.answered.done():
                waiting.answered.set_exception(self._failure)


def _encode_question(number: int, ask: str, given: Mapping[str, Any]) -> bytes:
    try:
        line = encode_line({"id": number, "ask": ask, "given": given})
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"the request has no JSON form: {error}") from error
    if len(line) > MAX_LINE_BYTES:
        raise ConfigError(
            f"{len(line):,} bytes are too long for one request; the maximum is {MAX_LINE_BYTES:,}"
        )
    return line


def _parse_object(line: bytes) -> dict[str, Any]:
    """Return the object of a line; an empty one if it holds something else: the runtime is not trusted."""
    try:
        said = parse_json(line)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


REACH_TIMEOUT_S: Final = 5.0


class ControlClient:
    """A live runtime, used from another process. Use it as an async context manager.

    Send requests with :attr:`supervisor`. What only the creating program may do, such as spawning, raises
    ConfigError. Every method raises the tree's typed errors, and JournalError once the runtime has ended.
    """

    def __init__(self, asking: Asking) -> None:
        """Wrap a connection; :meth:`find` and :meth:`connect` call this."""
        self._asking = asking
        self.supervisor: SupervisorApi = make_proxy(SupervisorApi, self)
        """The methods that the runtime answers."""

    @classmethod
    async def find(cls, state_dir: Path, *, timeout_s: float = REACH_TIMEOUT_S) -> Self | None:
        """Return a client of the runtime of a state directory; None if no runtime runs there.

        Raises:
            JournalError: it does not answer in time, or the system refused.
            PermissionDenied: this process may not send requests.
        """
        asking = await Asking.reach(state_dir, timeout_s)
        return None if asking is None else cls(asking)

    @classmethod
    async def connect(cls, state_dir: Path, *, timeout_s: float = REACH_TIMEOUT_S) -> Self:
        """Return a client of the runtime of a state directory.

        Raises:
            JournalError: no runtime runs there, it does not answer in time, or the system refused.
            PermissionDenied: this process may not send requests.
        """
        client = await cls.find(state_dir, timeout_s=timeout_s)
        if client is None:
            raise JournalError(str(state_dir), "no runtime is running here; resume one of its trees first")
        return client

    async def __aenter__(self) -> Self:
        """Return the client."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        await self.close()

    async def close(self) -> None:
        """Close the connection; the runtime continues."""
        await self._asking.close()

    @property
    def is_connected(self) -> bool:
        """Whether the runtime can still be asked."""
        return self._asking.is_open

    @property
    def release(self) -> str:
        """The runtime's release."""
        return self._asking.release

    async def ask(self, method: RpcMethod, given: tuple[Any, ...]) -> Any:
        """Call a method of the runtime and return its result.

        Raises:
            ConfigError: an argument can't be given from another process.
            JournalError: the runtime has ended.
            SessionTreeError: the error that the method raised.
        """
        heard = await self._asking.ask(method.name, encode_arguments(method, given))
        try:
            return answer_from_wire(method, heard)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            release = self._asking.release
            raise SessionTreeError(
                f"the runtime, of release {release}, answered what release {VERSION} does not know: {error}"
            ) from error
