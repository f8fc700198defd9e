"""Removing a directory whatever is in it, without following a link and without a long path."""

from __future__ import annotations

import itertools
import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LOG = logging.getLogger("sessiontree")


def remove_tree(path: Path) -> None:
    """Remove a directory, whatever is in it: directories that may not be written, or of any depth.

    What can't be removed is logged and stays; nothing is raised.
    """
    try:
        if path.is_symlink() or not path.is_dir():
            path.unlink(missing_ok=True)
            return
        with _open_folder(str(path)) as top:
            _remove_content(top)
        path.rmdir()
    except OSError as error:
        _LOG.warning("directory %r can't be removed: %s", str(path), error)


def _remove_content(top: int) -> None:
    """Remove what an open directory holds; each directory below is first moved up into it.

    So no path is long and few directories are open, however deep they are.
    """
    failed: OSError | None = None
    numbers = itertools.count()
    # Random, so that a directory that is moved up meets no name that is there.
    mark = f".{secrets.token_hex(6)}"
    waiting = list(_remove_files(top))
    while waiting:
        name = waiting.pop()
        try:
            with _open_folder(name, top) as folder:
                for inner in _remove_files(folder):
                    moved = f"{mark}-{next(numbers)}"
                    _move_up(inner, folder, moved, top)
                    waiting.append(moved)
            os.rmdir(name, dir_fd=top)
        except OSError as error:  # the others can still be removed
            failed = failed or error
    if failed is not None:
        raise failed


def _move_up(name: str, folder: int, moved: str, top: int) -> None:
    try:
        os.rename(name, moved, src_dir_fd=folder, dst_dir_fd=top)
    except PermissionError:  # a directory that may not be written can't be moved
        with _open_folder(name, folder):
            os.rename(name, moved, src_dir_fd=folder, dst_dir_fd=top)


def _remove_files(folder: int) -> list[str]:
    """Remove everything but directories from an open directory; return the names of those."""
    with os.scandir(folder) as found:
        entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
    for name, is_folder in entries:
        if not is_folder:
            with suppress(OSError):  # its directory then can't be removed, which is the error
                os.unlink(name, dir_fd=folder)
    return [name for name, is_folder in entries if is_folder]


@contextmanager
def _open_folder(name: str, folder: int | None = None) -> Iterator[int]:
    """Open a directory, not a link to one, and let its owner change it."""
    try:
        descriptor = os.open(name, _FOLDER, dir_fd=folder)
    except PermissionError:
        os.chmod(name, 0o700, dir_fd=folder)
        descriptor = os.open(name, _FOLDER, dir_fd=folder)
    try:
        os.fchmod(descriptor, 0o700)
        yield descriptor
    finally:
        os.close(descriptor)
