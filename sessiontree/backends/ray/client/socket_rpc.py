"""Calls between two processes of a runtime on one machine, over a socket: faster than calls of actors.

Everything that goes over a line can also go as calls of an actor, and does so without a line: if the
processes are on different machines or in different containers, or once the line broke. The kernel says which
process is at the other end. Both ends check this before they read anything.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from sessiontree.backends.ray.client.serialization import dump_value, load_value
from sessiontree.control.peer import hold_process, identify_peer
from sessiontree.runtime.transport.socket_files import listen_at, open_connection_to

LINES_SOCKET: Final = "lines"
"""Name of the supervisor's socket in the runtime's private directory."""
_BACKLOG: Final = 64
_HEAD: Final = struct.Struct("!IIB")
"""Bytes of the value that follows, number of the call, and what it is."""
_SENT, _ASKED, _ANSWERED, _DROPPED = range(4)

Methods: TypeAlias = Mapping[str, Callable[..., Any]]
"""What the other end may call, by name. What it waits for is an ``async def``."""


class SocketRpcClosed(Exception):
    """The line is closed. A call may have arrived, but its answer will not."""


class SocketRpc(asyncio.Protocol):
    """One end of a line.

    Args:
        methods: What the other end may call.
    """

    def __init__(self, methods: Methods) -> None:
        self._methods = methods
        self._room = asyncio.Event()
        self._room.set()
        self._socket: asyncio.Transport | None = None
        self._asked = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._asked_of_me: dict[int, asyncio.Task[None]] = {}
        """By number, the calls that the other end waits for."""
        self._received = bytearray()

    @property
    def is_open(self) -> bool:
        """Whether calls are possible now."""
        return self._socket is not None

    @property
    def is_full(self) -> bool:
        """Whether the other end reads too slowly to be sent more now."""
        return not self._room.is_set()

    async def has_room(self) -> None:
        """Wait until the line is not full, or is closed."""
        await self._room.wait()

    def tell(self, name: str, *given: Any) -> None:
        """Call a method of the other end without waiting for its answer.

        Methods without ``async`` are called in order, before the answers to calls that follow.

        Raises:
            SocketRpcClosed: the line is closed.
        """
        self._send(_SENT, 0, (name, given))

    async def ask(self, name: str, *given: Any) -> Any:
        """Call a method of the other end; return its answer.

        Raises:
            SocketRpcClosed: the line is closed, or was closed before the answer.
        """
        return await self._ask(name, given, drops=False)

    async def wait_for(self, name: str, *given: Any) -> Any:
        """As :meth:`ask`, for a call that only waits: if it is cancelled here, it is cancelled there too."""
        return await self._ask(name, given, drops=True)

    async def _ask(self, name: str, given: tuple[Any, ...], *, drops: bool) -> Any:
        self._asked = number = self._asked % 0xFFFF_FFFF + 1
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            self._send(_ASKED, number, (name, given))
            return await answer
        except asyncio.CancelledError:
            if drops and self.is_open:
                self._send(_DROPPED, number, None)
            raise
        finally:
            del self._waiting[number]

    def close(self) -> None:
        """Close the line; calls that wait fail."""
        if self._socket is not None:
            self._socket.abort()
            self._socket = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a stream socket's
        self._socket = transport

    def data_received(self, data: bytes) -> None:
        """Take in calls and answers that are complete."""
        received, begin = self._received, 0
        received += data
        while len(received) - begin >= _HEAD.size:
            size, number, kind = _HEAD.unpack_from(received, begin)
            end = begin + _HEAD.size + size
            if len(received) < end:
                break
            with memoryview(received)[begin + _HEAD.size : end] as frame:
                value = load_value(frame)
            begin = end
            if kind == _ANSWERED:
                answer = self._waiting.get(number)
                if answer is not None and not answer.done():
                    answer.set_result(value)
            elif kind == _DROPPED:
                dropped = self._asked_of_me.get(number)
                if dropped is not None:
                    dropped.cancel()
            else:
                self._call(number if kind == _ASKED else None, *value)
        del received[:begin]

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the calls that wait, and stop answering."""
        self._socket = None
        self._room.set()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(SocketRpcClosed("the line was closed"))
        for task in self._answering:
            task.cancel()

    def pause_writing(self) -> None:
        """Note that the other end reads too slowly."""
        self._room.clear()

    def resume_writing(self) -> None:
        """Note that the other end has caught up."""
        self._room.set()

    def _call(self, number: int | None, name: str, given: tuple[Any, ...]) -> None:
        try:
            value = self._methods[name](*given)
        except Exception:  # noqa: BLE001 - the caller calls the actor then, and gets the error from there
            self.close()
            return
        if inspect.isawaitable(value):
            task = asyncio.ensure_future(self._answer(number, value))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
            if number is not None:
                self._asked_of_me[number] = task

    async def _answer(self, number: int | None, awaited: Awaitable[Any]) -> None:
        try:
            value = await awaited
            if number is not None and self._socket is not None:
                self._send(_ANSWERED, number, value)
        except Exception:  # noqa: BLE001 - as above
            self.close()
        finally:
            if number is not None:
                self._asked_of_me.pop(number, None)

    def _send(self, kind: int, number: int, value: Any) -> None:
        if self._socket is None:
            raise SocketRpcClosed("the line is closed")
        data = dump_value(value)
        self._socket.write(_HEAD.pack(len(data), number, kind) + data)


class LineListener:
    """Where lines to this process begin; it admits the processes that it is to admit, and no others.

    Args:
        path: Of the socket, in a directory that only this user can enter.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._listener: socket.socket | None = None
        self._admitted: dict[int, Callable[[], SocketRpc]] = {}
        self._opening: set[asyncio.Task[Any]] = set()

    def admit(self, pid: int, make: Callable[[], SocketRpc]) -> None:
        """Admit a process from now on; ``make`` makes this end of each of its lines."""
        self._admitted[pid] = make
        if self._listener is None:
            try:
                self._listener = listen_at(self._path, _BACKLOG)
            except OSError:  # then no process gets a line
                return
            asyncio.get_running_loop().add_reader(self._listener.fileno(), self._accept, self._listener)

    def refuse(self, pid: int) -> None:
        """Admit a process no longer."""
        self._admitted.pop(pid, None)

    def close(self) -> None:
        """Admit nobody any more; lines that are open stay open."""
        self._admitted.clear()
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener.fileno())
            self._listener.close()
            self._listener = None

    def _accept(self, listener: socket.socket) -> None:
        try:
            line, _ = listener.accept()
        except OSError:  # whoever connected is gone
            return
        peer = identify_peer(line)
        with hold_process(line, peer) as process:
            is_ours = process is not None and peer.pid and peer.uid == os.getuid()
            make = self._admitted.get(peer.pid) if is_ours else None
        if make is None:
            line.close()
            return
        line.setblocking(False)
        opening = asyncio.ensure_future(asyncio.get_running_loop().connect_accepted_socket(make, line))
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)


CONNECTING_S = 5.0
"""Longest time until a busy supervisor takes a connection."""


async def connect_line(path: Path, pid: int, methods: Methods) -> SocketRpc | None:
    """Open a line to the process that listens at a path.

    Args:
        path: Of its socket.
        pid: The id that the process must have.
        methods: What it may call here, by name.

    Returns:
        The line, or None if that process can't be reached over a socket.
    """
    try:
        async with asyncio.timeout(CONNECTING_S):
            line = await open_connection_to(path)
    except (OSError, TimeoutError):
        return None
    try:
        peer = identify_peer(line)
        if peer.pid != pid or peer.uid != os.getuid():
            raise OSError(f"process {peer.pid} listens at {str(path)!r}, and not {pid}")
        loop = asyncio.get_running_loop()
        _, opened_line = await loop.create_connection(partial(SocketRpc, methods), sock=line)
    except OSError:
        line.close()
        return None
    return opened_line
