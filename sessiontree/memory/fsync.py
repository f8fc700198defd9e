"""Making a commit of LanceDB survive a power failure: it writes files but never asks the disk to keep them.

Local stores only. A commit is files that appear in a table's folders; the manifest is the last of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias

_FOLDERS: Final = ("data", "_deletions", "_indices", "_versions")
"""What a version is read from; ``_transactions`` only settles conflicts of writers that are alive."""
_State: TypeAlias = tuple[str, int | None, int]


def keep(path: Path) -> None:
    """Have the disk keep a file or folder; one that was pruned meanwhile is passed over.

    Raises:
        OSError: the disk refuses.
    """
    with suppress(FileNotFoundError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class DurableFolder:
    """Knows which files of a table have reached the disk. Its calls block and must not overlap.

    Args:
        table: The table's own directory, which ends in ``.lance``.
        sync: Has the disk keep a file or folder.
    """

    def __init__(self, table: Path, sync: Callable[[Path], None] = keep) -> None:
        self._table = table
        self._keep = sync
        self._kept: dict[str, frozenset[_State]] = {}

    def sync(self) -> None:
        """Have the disk keep every file that appeared or grew since, and the folders that name new ones.

        Raises:
            OSError: the disk refuses.
        """
        kept: dict[str, frozenset[_State]] = {}
        for name in _FOLDERS:
            self._sync_below(self._table / name, kept)
        if self._kept.keys() != kept.keys():
            self._keep(self._table)
        self._kept = kept

    def _sync_below(self, folder: Path, kept: dict[str, frozenset[_State]]) -> None:
        try:
            with os.scandir(folder) as entries:
                found = frozenset(_state(entry) for entry in entries)
        except FileNotFoundError:
            return
        before = self._kept.get(str(folder), frozenset())
        for name, size, _ in found:
            if size is None:
                self._sync_below(folder / name, kept)
        for name, size, _ in found - before:
            if size is not None:
                self._keep(folder / name)
        if found - before:
            self._keep(folder)
        kept[str(folder)] = found


def _state(entry: os.DirEntry[str]) -> _State:
    """Return a file's name, size and time: one that is still written is not the one that was kept."""
    try:
        if entry.is_dir(follow_symlinks=False):
            return entry.name, None, 0
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return entry.name, 0, 0
    return entry.name, status.st_size, status.st_mtime_ns
