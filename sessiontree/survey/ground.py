"""Ground: the part of a workspace that one plan looks at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import BinaryIO

from sessiontree.contracts.ports import Entry, Reader

ROOT_FILES = "."
"""Stands for the files in the root itself, in place of a folder's name."""


class StoppedLooking(Exception):
    """Nobody waits for the plan any more."""


class Ground:
    """A reader that sees the whole root, one top folder of it, or the root's own files alone.

    Paths stay those of the root, so that every plan of one workspace speaks of the same files.

    Args:
        reader: Reads the root.
        folder: A top folder's name, :data:`ROOT_FILES`, or None for everything.
        leave_out: Files nobody is to see.
        stop: Whether to end; asked once per directory.
    """

    def __init__(
        self, reader: Reader, folder: str | None, leave_out: frozenset[str], stop: Callable[[], bool]
    ) -> None:
        self._reader = reader
        self._folder = folder
        self._leave_out = leave_out
        self._stop = stop

    def list(self, path: str = ".") -> list[Entry]:
        """Return a directory's entries.

        Raises:
            StoppedLooking: nobody waits any more.
            PermissionDenied, ExecutionError: as the reader says.
        """
        if self._stop():
            raise StoppedLooking
        entries = [entry for entry in self._reader.list(path) if entry.path not in self._leave_out]
        if path != "." or self._folder is None:
            return entries
        if self._folder == ROOT_FILES:
            return [entry for entry in entries if entry.type != "directory"]
        return [entry for entry in entries if entry.path == self._folder]

    def open(self, path: str) -> BinaryIO:
        """Open a file as the reader does."""
        return self._reader.open(path)

    def stat(self, path: str) -> Entry:
        """Look at a path as the reader does."""
        return self._reader.stat(path)

    def walk(self, path: str = ".") -> Iterator[Entry]:
        """Walk as the reader does."""
        return self._reader.walk(path)
