"""Where a store is: its directory or address, its lock, and how its files are made durable."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import unquote

from sessiontree.contracts.errors import MemoryFailed
from sessiontree.memory.failures import write_error

_FOLDERS: Final = ("data", "_deletions", "_indices", "_versions")
"""What a reader of a version needs; only living writers need ``_transactions``, to settle conflicts."""
_State: TypeAlias = tuple[str, int | None, int]


def sync_path(path: Path) -> None:
    """Write a file or folder through to the disk; one that was pruned meanwhile is ignored.

    Raises:
        OSError: the disk failed.
    """
    with suppress(FileNotFoundError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class DurableFolder:
    """Knows which files of a table are on the disk. Its calls block and must not overlap.

    Args:
        table: The table's own directory, whose name ends in ``.lance``.
        sync: Writes a file or folder through to the disk.
    """

    def __init__(self, table: Path, sync: Callable[[Path], None] = sync_path) -> None:
        self._table = table
        self._sync_to_disk = sync
        self._synced: dict[str, frozenset[_State]] = {}

    def sync(self) -> None:
        """Write every file that is new or changed, and the folders of new files, through to the disk.

        Raises:
            OSError: the disk failed.
        """
        synced: dict[str, frozenset[_State]] = {}
        for name in _FOLDERS:
            self._sync_below(self._table / name, synced)
        if self._synced.keys() != synced.keys():
            self._sync_to_disk(self._table)
        # Only after everything succeeded: files of a sync that failed must be written through again.
        self._synced = synced

    def _sync_below(self, folder: Path, synced: dict[str, frozenset[_State]]) -> None:
        try:
            with os.scandir(folder) as entries:
                found = frozenset(_state(entry) for entry in entries)
        except FileNotFoundError:
            return
        before = self._synced.get(str(folder), frozenset())
        for name, size, _ in found:
            if size is None:
                self._sync_below(folder / name, synced)
        for name, size, _ in found - before:
            if size is not None:
                self._sync_to_disk(folder / name)
        if found - before:
            self._sync_to_disk(folder)
        synced[str(folder)] = found


def _state(entry: os.DirEntry[str]) -> _State:
    """Return a file's name, size and time, which change while it is still being written."""
    try:
        if entry.is_dir(follow_symlinks=False):
            return entry.name, None, 0
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        # A file that vanished in between gets a state that no file has later, so its successor is synced.
        return entry.name, 0, 0
    return entry.name, status.st_size, status.st_mtime_ns


LOCK_NAME: Final = "writer.lock"


def resolve_directory(uri: str) -> Path | None:
    """Return the absolute path of a local store, or None for one on the network."""
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return Path(uri).expanduser().absolute()
    return Path(unquote(rest)).absolute() if scheme == "file" else None


class StoreLock:
    """Held by the one process that writes a local store; the system releases it if that process dies.

    Args:
        directory: The store's directory; made (0700) if missing.

    Raises:
        MemoryFailed: another process holds it; the error names its process id.
        MemoryFailed: the directory or the lock file cannot be made.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / LOCK_NAME
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise MemoryFailed(
                str(directory), f"can't make it: {error.strerror}; choose another place", "unwritable"
            ) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
        except BlockingIOError as error:
            holder = os.pread(self._descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(self._descriptor)
            raise MemoryFailed(
                str(directory),
                f"process {holder or 'unknown'} writes it; end that process or only read",
                "locked",
            ) from error
        except OSError as error:
            os.close(self._descriptor)
            raise write_error(str(directory), error) from error

    def check(self) -> None:
        """Raise MemoryFailed if the store was deleted or replaced; LanceDB would create a new one."""
        try:
            found = self._path.stat()
        except OSError:
            found = None
        own = os.fstat(self._descriptor)
        if found is None or (found.st_dev, found.st_ino) != (own.st_dev, own.st_ino):
            raise MemoryFailed(
                str(self._path.parent),
                "its directory was deleted or replaced; open the store again",
                "corrupt",
            )

    def release(self) -> None:
        """Let another process write. The file stays: deleting it would let two processes hold the lock."""
        os.close(self._descriptor)


_LAST_VERSION: Final = 2**64 - 1
_VERSION_NAME: Final = re.compile(r"\d{20}\.manifest")


class VersionFolder:
    """Tells the newest version of a local table by the names of files, which takes microseconds.

    Args:
        table: The table's own directory, whose name ends in ``.lance``.
        lock: Held if this process writes the store; None = another process does.
    """

    def __init__(self, table: Path, lock: StoreLock | None) -> None:
        self._folder = table / "_versions"
        self._lock = lock

    def read_newest(self) -> int | None:
        """Return the newest version, or None if the names do not tell it.

        Raises:
            MemoryFailed: the store was deleted or replaced.
        """
        if self._lock is not None:
            self._lock.check()
        try:
            with os.scandir(self._folder) as entries:
                names = [entry.name for entry in entries if entry.name.endswith(".manifest")]
        except OSError:
            return None  # whoever reads the table gets the error
        # LanceDB names a version by how many may follow it, so the newest has the least name. It replaces
        # no file, and removes old ones only.
        if not names or not all(map(_VERSION_NAME.fullmatch, names)):
            return None
        return _LAST_VERSION - int(min(names).removesuffix(".manifest"))
