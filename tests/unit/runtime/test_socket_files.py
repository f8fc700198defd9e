"""A process whose backlog is full for a while is waited for, by threads and by event loops."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from sessiontree.control.protocol import SOCKET_NAME, connect_control_socket
from sessiontree.runtime.transport.socket_files import connect_to, listen_at, open_connection_to

PATIENCE_S = 30.0
Connect = Callable[[Path], Awaitable[socket.socket | None]]


async def connect_in_thread(path: Path) -> socket.socket:
    """Connect as a thread does."""
    return await asyncio.to_thread(connect_to, path, PATIENCE_S)


async def connect_to_control(path: Path) -> socket.socket | None:
    """Connect as a client of the control socket does."""
    return await connect_control_socket(path.parent)


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    """A socket that nobody accepts from, whose backlog is full."""
    path = tmp_path / SOCKET_NAME
    with listen_at(path, 0) as listening, contextlib.ExitStack() as stack:
        while True:
            line = stack.enter_context(socket.socket(socket.AF_UNIX))
            line.setblocking(False)
            try:
                line.connect(str(path))
            except BlockingIOError:
                break
        yield listening


@pytest.mark.parametrize("connect", [connect_in_thread, open_connection_to, connect_to_control])
async def test_full_backlog_is_waited_for(listener: socket.socket, tmp_path: Path, connect: Connect) -> None:
    """The connection is there once the process has taken an earlier one, and it is a connection."""
    connecting = asyncio.ensure_future(connect(tmp_path / SOCKET_NAME))
    assert not (await asyncio.wait({connecting}, timeout=0.2))[0]
    taken = [listener.accept()[0]]
    async with asyncio.timeout(PATIENCE_S):
        line = await connecting
    assert line is not None
    with line:
        assert line.getpeername()
        with contextlib.suppress(BlockingIOError):
            while True:
                taken.append(listener.accept()[0])
    for each in taken:
        each.close()


def test_thread_does_not_wait_for_ever(listener: socket.socket, tmp_path: Path) -> None:
    """Its time is over: an OSError."""
    with pytest.raises(OSError, match="temporarily unavailable"):
        connect_to(tmp_path / SOCKET_NAME, 0.1)


async def test_nobody_there_is_said_at_once(tmp_path: Path) -> None:
    """A missing file, or one at which nobody listens, is not waited for."""
    for connect in (connect_in_thread, open_connection_to):
        with pytest.raises(FileNotFoundError):
            await connect(tmp_path / "absent")
    listen_at(tmp_path / "left", 1).close()
    for connect in (connect_in_thread, open_connection_to):
        with pytest.raises(ConnectionRefusedError):
            await connect(tmp_path / "left")
