"""The entry point of every access: from a caller's path to a place beneath the root, or a typed refusal.

Room: what a path may look like, and which places are out of bounds whatever is done with them.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sessiontree.workspace.failures import failed, reason_of, refused, system_errors
from sessiontree.workspace.hidden_paths import HiddenPlaces
from sessiontree.workspace.kernel_calls import pseudo_file_system
from sessiontree.workspace.openat2_resolver import Resolver, best_resolver
from sessiontree.workspace.place import WorkspacePath, components, identity_of
from sessiontree.workspace.root_fd import Anchor

MAX_PATH_BYTES: Final = 65_536
"""Longer paths are refused; below it even a tree deeper than the kernel's own limit can be reached."""


class WorkspaceRoot:
    """One root directory and its rules.

    Args:
        root: An existing directory.
        hidden: Absolute paths of files or directories that are refused.
        resolver: How paths are resolved; None = the best this kernel offers.

    Raises:
        ConfigError: the root is missing or no directory, or a hidden path is relative or holds the root.
    """

    __slots__ = ("_anchor", "_resolve", "hidden")

    def __init__(self, root: Path, hidden: Sequence[Path], resolver: Resolver | None) -> None:
        self._anchor = Anchor(root)
        self.hidden = HiddenPlaces(self._anchor, hidden)
        self._resolve = resolver or best_resolver()

    def place(self, verb: str, path: str, *, follow_last: bool = True) -> WorkspacePath:
        """Return the place a caller's path leads to; close it.

        Args:
            verb: What is being done, for the error.
            path: Relative to the root, or absolute beneath it.
            follow_last: Whether a link in the last place is followed.

        Raises:
            PermissionDenied: it leads outside the root, into a hidden place or into a kernel file system.
            ExecutionError: it is no path, or the system refused on the way.
        """
        names = self._names(verb, path)
        with system_errors(verb, path):
            try:
                place = self._resolve(self._anchor, names, follow_last=follow_last)
            except OSError as error:
                if error.errno == errno.EXDEV:
                    raise _outside(verb, path) from error
                raise
        try:
            self._check(verb, path, place)
        except BaseException:
            os.close(place.directory_fd)
            raise
        return place

    def check_descriptor(self, verb: str, path: str, fd: int, status: os.stat_result) -> None:
        """Refuse an opened object that is hidden under another name or belongs to the kernel.

        Raises:
            PermissionDenied: it does.
        """
        self.check_status(verb, path, status)
        _check_file_system(verb, path, fd)

    def check_status(self, verb: str, path: str, status: os.stat_result) -> None:
        """Refuse an object that is hidden under another name.

        Raises:
            PermissionDenied: it is.
        """
        if identity_of(status) in self.hidden.identities():
            raise _hidden(verb, path)

    def _names(self, verb: str, path: str) -> list[str]:
        if not path:
            raise failed(verb, path, "the path is empty")
        if "\0" in path:
            raise failed(verb, path, "the path holds a NUL character")
        try:
            length = len(os.fsencode(path))
        except UnicodeEncodeError as error:
            raise failed(verb, path, "the path holds a character no file name can hold") from error
        if length > MAX_PATH_BYTES:
            raise failed(verb, path, f"the path is {length} bytes long; at most {MAX_PATH_BYTES} are taken")
        names = self._anchor.relative(path) if path.startswith("/") else components(path)
        if names is None:
            raise _outside(verb, path)
        return names

    def _check(self, verb: str, path: str, place: WorkspacePath) -> None:
        try:
            hidden = self.hidden.hide(place)
        except OSError as error:
            if error.errno == errno.EXDEV:
                raise _outside(verb, path) from error
            raise failed(verb, path, reason_of(error)) from error
        if hidden:
            raise _hidden(verb, path)
        with system_errors(verb, path):
            _check_file_system(verb, path, place.directory_fd)


def _outside(verb: str, path: str) -> Exception:
    return refused(verb, path, "it leads outside the workspace")


def _hidden(verb: str, path: str) -> Exception:
    return refused(verb, path, "it is kept for the runtime and closed to tools")


def _check_file_system(verb: str, path: str, fd: int) -> None:
    kind = pseudo_file_system(fd)
    if kind is not None:
        raise refused(verb, path, f"it lies on {kind}, where files are the kernel's own state")
