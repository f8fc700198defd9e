"""The control socket's place: a socket file in the state directory that only its owner can open."""

from __future__ import annotations

import errno
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sessiontree.contracts.errors import JournalError
from sessiontree.journal.sqlite_errors import write_error
from sessiontree.runtime.socket_files import listen_at, socket_address

SOCKET_NAME = "control"
BACKLOG = 64
"""How many may knock before one is let in."""

_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ECONNREFUSED)
"""What the system says where nobody listens: there is no file, or whoever made it is gone."""


@dataclass(frozen=True, slots=True)
class OpenSocket:
    """A control socket somebody listens behind."""

    path: Path
    listener: socket.socket
    file: tuple[int, int]
    """Device and number of the socket file."""

    def close(self) -> None:
        """Listen no more, and take the file away where it is still this control socket's."""
        self.listener.close()
        with suppress(OSError):
            if _file_at(self.path) == self.file:
                self.path.unlink()


def open_control_socket(state_dir: Path) -> OpenSocket:
    """Make the socket file (0600 from its first moment on) and listen there.

    The caller holds the lock of the state directory, so a file that stands there already is that of a dead
    process; it is replaced in one step.

    Raises:
        JournalUnwritable: the system refused.
    """
    path = state_dir / SOCKET_NAME
    try:
        listener = listen_at(path, BACKLOG)
    except OSError as error:
        raise write_error(path, error) from error
    return OpenSocket(path, listener, _file_at(path))


def knock(state_dir: Path) -> socket.socket | None:
    """Return a connection to whoever listens, None where nobody does.

    Raises:
        BlockingIOError: too many knock at once; try again.
        JournalError: the system refused.
    """
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    line.setblocking(False)
    try:
        with socket_address(state_dir / SOCKET_NAME) as address:
            line.connect(address)
    except OSError as error:
        line.close()
        if isinstance(error, BlockingIOError):
            raise
        if error.errno in _ABSENT:
            return None
        reason = f"the control socket of its runtime can't be opened: {error.strerror or error}"
        raise JournalError(str(state_dir), f"{reason}; only the user who runs it, or root, may") from error
    return line


def _file_at(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_dev, found.st_ino
