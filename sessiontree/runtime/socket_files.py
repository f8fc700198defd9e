"""Socket files that their owner alone can open, however long their paths are."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

MAX_ADDRESS_BYTES: Final = 107
"""Longest path that fits a socket's address."""


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
        with socket_address(new) as address:
            listener.bind(address)
        listener.listen(backlog)
        listener.setblocking(False)
        new.replace(path)
    except OSError:
        listener.close()
        raise
    return listener


@contextmanager
def socket_address(path: Path) -> Iterator[str]:
    """Yield a name of a socket file that fits an address."""
    if len(os.fsencode(path)) <= MAX_ADDRESS_BYTES:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
