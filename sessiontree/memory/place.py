"""Where a store lies, and the lock that makes a process the only one that writes it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from sessiontree.contracts.errors import MemoryCorrupt, MemoryLocked, MemoryUnwritable
from sessiontree.memory.failures import write_error

LOCK_NAME: Final = "writer.lock"


def directory_of(uri: str) -> Path | None:
    """Return the absolute path of a local store; None for one that is reached by network."""
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return Path(uri).expanduser().absolute()
    return Path(unquote(rest)).absolute() if scheme == "file" else None


class StoreLock:
    """Held by the one process that writes a local store; freed by the system if that dies.

    Args:
        directory: Of the store; made (0700) if missing.

    Raises:
        MemoryLocked: another process holds it; the text names its process id.
        MemoryUnwritable: directory or lock file can't be made.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / LOCK_NAME
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise MemoryUnwritable(
                str(directory), f"can't make it: {error.strerror}; choose another place"
            ) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
        except BlockingIOError as error:
            holder = os.pread(self._descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(self._descriptor)
            raise MemoryLocked(
                str(directory), f"process {holder or 'unknown'} writes it; end that one or read only"
            ) from error
        except OSError as error:
            os.close(self._descriptor)
            raise write_error(str(directory), error) from error

    def check(self) -> None:
        """Raise MemoryCorrupt where the store was deleted or replaced: LanceDB would begin a new one."""
        try:
            found = self._path.stat()
        except OSError:
            found = None
        own = os.fstat(self._descriptor)
        if found is None or (found.st_dev, found.st_ino) != (own.st_dev, own.st_ino):
            raise MemoryCorrupt(
                str(self._path.parent), "its directory was deleted or replaced; open it again to begin anew"
            )

    def release(self) -> None:
        """Let another process write. The file stays: deleting it would let two processes in."""
        os.close(self._descriptor)
