"""Making a commit of LanceDB survive a power failure: it writes files but never asks the disk to keep them.

Local stores only. A commit is files that appear in a table's folders; the manifest is the last of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

_FOLDERS: Final = ("data", "_deletions", "_indices", "_transactions", "_versions")


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
        self._known: dict[str, frozenset[str]] = {}

    def sync(self) -> None:
        """Send every file that appeared since to the disk, then the folders that name them.

        Raises:
            OSError: the disk refuses.
        """
        for name in _FOLDERS:
            self._sync_below(self._table / name)
        self._keep(self._table)

    def _sync_below(self, folder: Path) -> None:
        try:
            with os.scandir(folder) as entries:
                found = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
        except FileNotFoundError:
            return
        fresh = found.keys() - self._known.get(str(folder), frozenset())
        for name in fresh:
            if found[name]:
                self._sync_below(folder / name)
            else:
                self._keep(folder / name)
        if fresh:
            self._keep(folder)
        self._known[str(folder)] = frozenset(found)
