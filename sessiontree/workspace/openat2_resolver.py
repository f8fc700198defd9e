"""Resolving a path in one system call: the kernel itself keeps it beneath the root.

Room: the ``openat2`` resolver and the choice between it and the walk. The kernel takes everything up to the
last name; that name is never followed. Where the kernel says no (an absolute link whose target may still be
beneath, a missing parent, an escape) the walk decides and gives the reason, so both agree on every path.
"""

from __future__ import annotations

import errno
import os
from functools import cache
from typing import Final, Protocol

from sessiontree.workspace.kernel_calls import RESOLVE_BENEATH, RESOLVE_NO_MAGICLINKS, openat2, path_of
from sessiontree.workspace.place import WorkspacePath
from sessiontree.workspace.root_fd import Anchor
from sessiontree.workspace.walk_resolver import resolve_by_walk

_BENEATH: Final = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS
_DIRECTORY: Final = os.O_PATH | os.O_DIRECTORY


class Resolver(Protocol):
    """Finds the place of a path's components; raises as :func:`resolve_by_walk` does."""

    def __call__(self, anchor: Anchor, names: list[str], *, follow_last: bool = True) -> WorkspacePath:
        """Return the place; the caller closes it."""
        ...


def resolve_by_openat2(anchor: Anchor, names: list[str], *, follow_last: bool = True) -> WorkspacePath:
    """Resolve components from the root in one call; arguments, result and errors as the walk's."""
    is_directory = names[-1] in {".", ".."}
    way, last = (names, ()) if is_directory else (names[:-1], (names[-1],))
    try:
        fd = openat2(anchor.fd, "/".join(way) or ".", _DIRECTORY, _BENEATH)
    except OSError:
        return resolve_by_walk(anchor, names, follow_last=follow_last)
    place = None
    try:
        directory = _path_beneath(anchor.fd, fd)
        if directory is not None and not (last and follow_last and _is_link(fd, last[0])):
            place = WorkspacePath(fd, directory, last)
    finally:
        if place is None:
            os.close(fd)
    return place or resolve_by_walk(anchor, names, follow_last=follow_last)


@cache
def best_resolver() -> Resolver:
    """Return what this kernel can do best, asked once per process."""
    try:
        fd = openat2(-100, ".", _DIRECTORY, _BENEATH)  # AT_FDCWD
    except OSError:  # no such call, or a filter hides it
        return resolve_by_walk
    try:
        path_of(fd)
    except OSError:  # without procfs no descriptor has a name
        return resolve_by_walk
    finally:
        os.close(fd)
    return resolve_by_openat2


def _is_link(directory_fd: int, name: str) -> bool:
    try:
        os.readlink(name, dir_fd=directory_fd)
    except OSError as error:
        if error.errno in {errno.EINVAL, errno.ENOENT}:  # no link; nothing there
            return False
        raise
    return True


def _path_beneath(root_fd: int, fd: int) -> str | None:
    """Return a directory's present path below the root, or None where it has none of a usable length."""
    try:
        root = path_of(root_fd)
        path = path_of(fd)
    except OSError:
        return None
    if path == root:
        return "."
    prefix = root.rstrip("/") + "/"
    return path[len(prefix) :] if path.startswith(prefix) else None
