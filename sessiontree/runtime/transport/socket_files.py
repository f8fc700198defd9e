"""Socket files that their owner alone can open, however long their paths are."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

MAX_ADDRESS_BYTES: Final = 107
"""Longest path that fits a socket's address."""
TRY_AGAIN_S: Final = 0.02
"""How long a connection waits until it tries a full backlog again."""


def listen_at(path: Path, backlog: int) -> socket.socket:
    """Return a socket that listens at a path, which has mode 0600 from its first moment on.

    The caller sees to it that nobody else listens there: a file that is there already is replaced in one
    step.

    Raises:
        OSError: the system refused.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    new = path.with_name(f"{path.name}.new")
    try:
        new.unlink(missing_ok=True)
        # the mode of an unbound socket is that of the file it becomes: no umask, no moment in between
        os.fchmod(listener.fileno(), 0o600)
        with fit_socket_address(new) as address:
            listener.bind(address)
        listener.listen(backlog)
        listener.setblocking(False)
        new.replace(path)
    except OSError:
        listener.close()
        raise
    return listener


def connect_to(path: Path, within_s: float) -> socket.socket:
    """Return a connection to the process that listens at a path; in a thread.

    Its ``timeout`` is the given time too.

    Raises:
        OSError: nobody listens there, the system refused, or the process took no connection in time.
    """
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # A socket with a timeout of Python's gets EAGAIN at once while the backlog is full, which a busy
        # process at the other end explains. With a timeout of the kernel's it waits for its turn.
        seconds, rest = divmod(within_s, 1)
        line.setsockopt(
            socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", int(seconds), int(rest * 1e6))
        )
        with fit_socket_address(path) as address:
            line.connect(address)
        line.settimeout(within_s)
    except OSError:
        line.close()
        raise
    return line


async def open_connection_to(path: Path) -> socket.socket:
    """Return a non-blocking connection to the process that listens at a path; the caller bounds the time.

    Raises:
        OSError: nobody listens there, or the system refused.
    """
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    line.setblocking(False)
    try:
        while True:
            try:
                with fit_socket_address(path) as address:
                    line.connect(address)
                return line
            except BlockingIOError:
                # The backlog is full. Nothing announces a free place, and asyncio's own sock_connect
                # takes such a socket for a connected one.
                await asyncio.sleep(TRY_AGAIN_S)
    except BaseException:
        line.close()
        raise


@contextmanager
def fit_socket_address(path: Path) -> Iterator[str]:
    """Yield a name of a socket file that fits an address."""
    if len(os.fsencode(path)) <= MAX_ADDRESS_BYTES:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
