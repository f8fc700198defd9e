"""The entry point of every access: from a caller's path to a place below the root, or a refusal.

This module holds the rules for paths, the places that are hidden from all tools, and the texts of refusals:
``can't <verb> '<path>': <reason>``. A hidden place is known by its name, because it may be created later, and
by its inode, so that another spelling, a bind mount or a rename does not reveal it. Errors show paths escaped
and shortened, because a path may hold control characters, undecodable bytes or a megabyte.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sessiontree.contracts.errors import ConfigError, ExecutionError, PermissionDenied
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.workspace.look_alikes import SeveralLookAlikes, find_near_names, resolve_by_look
from sessiontree.workspace.resolver import (
    Identity,
    Resolver,
    RootDirectory,
    WorkspacePath,
    choose_resolver,
    find_pseudo_file_system,
    get_file_identity,
    read_descriptor_path,
    split_path,
)

TEMPORARY_PREFIX: Final = ".sessiontree-unfinished-"
"""The prefix of every temporary file's name; a file that a crash left may be deleted by hand."""
_MAX_SHOWN: Final = 300
_KINDS: Final = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFLNK: "a link",
}


def make_failure(verb: str, path: str, reason: str) -> ExecutionError:
    """Return the error of an access that failed."""
    return ExecutionError(f"can't {verb} {_quote_path(path)}: {reason}")


def make_refusal(
    verb: str, path: str, reason: str, tier: PermissionTier = PermissionTier.ELEVATED
) -> PermissionDenied:
    """Return the error of an access that is not allowed."""
    return PermissionDenied(tier, f"can't {verb} {_quote_path(path)}: {reason}")


@contextmanager
def convert_system_errors(verb: str, path: str) -> Iterator[None]:
    """Turn every OSError of the block into an :class:`ExecutionError`."""
    try:
        yield
    except OSError as error:
        raise make_failure(verb, path, describe_error(error)) from error


def describe_error(error: OSError) -> str:
    """Return a system error's text, with a small first letter."""
    text = error.strerror or os.strerror(error.errno or 0)
    return text[:1].lower() + text[1:]


def check_regular(verb: str, path: str, status: os.stat_result) -> None:
    """Refuse anything but a regular file.

    Raises:
        ExecutionError: it is a directory, FIFO, socket, device or link.
    """
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "of an unknown type")
        raise make_failure(verb, path, f"it is {kind}, not a regular file")


def _quote_path(path: str) -> str:
    if len(path) > _MAX_SHOWN:
        half = _MAX_SHOWN // 2
        path = f"{path[:half]}…{path[-half:]}"
    return repr(path)


_STEP: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class HiddenPlaces:
    """Files and directories below one root that tools do not see.

    Args:
        anchor: The root.
        paths: Absolute paths; they need not exist. Those outside the root have no effect.

    Raises:
        ConfigError: a path is relative, or hides the whole root.
    """

    __slots__ = ("_anchor", "_beneath", "_paths")

    def __init__(self, anchor: RootDirectory, paths: Sequence[Path]) -> None:
        """Find each path's names below the root."""
        self._anchor = anchor
        self._paths = tuple(paths)
        beneath = set()
        for path in self._paths:
            if not path.is_absolute():
                raise ConfigError(f"can't hide {str(path)!r}: the path is relative; give an absolute one")
            # Both spellings are hidden: the place may be a link, and a caller reaches it by either.
            for spelling in {os.path.normpath(path), os.path.realpath(path)}:
                names = anchor.relative(spelling)
                if names == ["."] or f"{anchor.real_path}/".startswith(spelling.rstrip("/") + "/"):
                    raise ConfigError(
                        f"can't hide {str(path)!r}: it holds the whole workspace; give another place"
                    )
                if names is not None:
                    beneath.add("/".join(names))
        self._beneath = frozenset(beneath)

    def find_identities(self) -> frozenset[Identity]:
        """Return the current identities of the hidden places that exist."""
        found = set()
        for path in self._paths:
            try:
                found.add(get_file_identity(path.stat()))
            except OSError:  # it does not exist: only its name is guarded
                continue
        return frozenset(found)

    def covers(self, path: str) -> bool:
        """Whether a path below the root, links resolved, is hidden by its name."""
        return any(path == hidden or path.startswith(f"{hidden}/") for hidden in self._beneath)

    def hide(self, place: WorkspacePath) -> bool:
        """Whether a place is hidden by its name or is in a directory that is hidden.

        The caller compares the object at the place with :meth:`identities`, from its descriptor.

        Raises:
            OSError: a directory on the way back to the root cannot be opened; ``EXDEV`` if the way does not
                end at the root.
        """
        if not self._paths:
            return False
        if self.covers(place.path):
            return True
        # Looked up each time, because a hidden place may be created or replaced while tools run.
        identities = self.find_identities()
        return bool(identities) and self._is_in(place.directory_fd, identities)

    def _is_in(self, directory_fd: int, identities: frozenset[Identity]) -> bool:
        top = get_file_identity(os.fstat(self._anchor.fd))
        fd = os.dup(directory_fd)
        try:
            here = get_file_identity(os.fstat(fd))
            while here != top:
                if here in identities:
                    return True
                parent = os.open("..", _STEP, dir_fd=fd)
                os.close(fd)
                fd = parent
                above = get_file_identity(os.fstat(fd))
                if above == here:  # the machine's root: the directory was moved out meanwhile
                    raise OSError(errno.EXDEV, "it leads outside the root")
                here = above
        finally:
            os.close(fd)
        return False


MAX_PATH_BYTES: Final = 65_536
"""Longer paths are refused. The limit allows trees that are deeper than the kernel's own limit."""


class WorkspaceRoot:
    """One root directory and its rules.

    Args:
        root: An existing directory.
        hidden: Absolute paths of files or directories that are refused.
        resolver: How paths are resolved; None = the best way that this kernel offers.

    Raises:
        ConfigError: the root is missing or not a directory, or a hidden path is relative or holds the root.
    """

    __slots__ = ("_anchor", "_resolve", "hidden")

    def __init__(self, root: Path, hidden: Sequence[Path], resolver: Resolver | None) -> None:
        self._anchor = RootDirectory(root)
        self.hidden = HiddenPlaces(self._anchor, hidden)
        self._resolve = resolver or choose_resolver()

    @property
    def path(self) -> str:
        """The root's path with links resolved, as it was when the root was opened."""
        return str(self._anchor.real_path)

    def is_at(self, path: Path) -> bool:
        """Whether a path leads now to the directory that is held open, which is still at :attr:`path`."""
        try:
            if get_file_identity(path.stat()) != get_file_identity(os.fstat(self._anchor.fd)):
                return False
            # The kernel's path of the directory has no links. If it is the given one, that has none either.
            if str(path) == self.path and read_descriptor_path(self._anchor.fd) == self.path:
                return True
            return os.path.realpath(path, strict=True) == self.path
        except (OSError, ValueError):
            return False

    def holds(self, path: str) -> bool:
        """Whether an absolute path begins with that of the root; links and ``..`` are not looked at."""
        return self._anchor.relative(path) is not None

    def place(self, verb: str, path: str, *, follow_last: bool = True) -> WorkspacePath:
        """Return the place to which a caller's path leads; the caller closes it.

        Args:
            verb: What the caller does, for the error.
            path: Relative to the root, or absolute below it.
            follow_last: Whether to follow a link in the last place.

        Raises:
            PermissionDenied: it leads outside the root, into a hidden place or into a kernel file system.
            ExecutionError: it is not a valid path, or the system refused.
        """
        names = self._split_path(verb, path)
        with convert_system_errors(verb, path):
            try:
                place = resolve_by_look(
                    self._resolve, self._anchor, names, self._is_unseen, follow_last=follow_last
                )
            except SeveralLookAlikes as error:
                seen = ", ".join(map(ascii, error.entries))
                raise make_failure(
                    verb, path, f"no entry is named {error.name!r}, and several look like it: {seen}"
                ) from None
            except OSError as error:
                if error.errno == errno.EXDEV:
                    raise _make_outside_error(verb, path) from error
                raise
        try:
            self._check(verb, path, place)
        except BaseException:
            os.close(place.directory_fd)
            raise
        return place

    @contextmanager
    def open_existing(self, verb: str, path: str, *, follow_last: bool = True) -> Iterator[WorkspacePath]:
        """Return :meth:`place` for the block, whose system errors become errors that say what is wrong.

        Of an entry that does not exist, the error names those that are near.
        """
        with self.place(verb, path, follow_last=follow_last) as place, convert_system_errors(verb, path):
            try:
                yield place
            except FileNotFoundError as error:
                near = find_near_names(place, self._is_unseen) if place.names else []
                if not near:
                    raise
                reason = f"{describe_error(error)}; near names there: {', '.join(map(ascii, near))}"
                raise make_failure(verb, path, reason) from error

    def look_at(self, path: str) -> tuple[str, os.stat_result]:
        """Return where an existing entry is, links followed, and its status; raises as :meth:`place`."""
        with self.open_existing("look at", path) as place:
            status = os.stat(place.name, dir_fd=place.directory_fd, follow_symlinks=False)
            self.check_status("look at", path, status)
            return place.path, status

    def _is_unseen(self, path: str) -> bool:
        return path.rpartition("/")[2].startswith(TEMPORARY_PREFIX) or self.hidden.covers(path)

    def check_descriptor(self, verb: str, path: str, fd: int, status: os.stat_result) -> None:
        """Refuse an open object that is hidden under another name or is on a kernel file system.

        Raises:
            PermissionDenied: it is hidden, or on a kernel file system.
        """
        self.check_status(verb, path, status)
        _check_file_system(verb, path, fd)

    def check_status(self, verb: str, path: str, status: os.stat_result) -> None:
        """Refuse an object that is hidden under another name.

        Raises:
            PermissionDenied: it is hidden.
        """
        if get_file_identity(status) in self.hidden.find_identities():
            raise _make_hidden_error(verb, path)

    def _split_path(self, verb: str, path: str) -> list[str]:
        if not path:
            raise make_failure(verb, path, "the path is empty")
        if "\0" in path:
            raise make_failure(verb, path, "the path holds a NUL character")
        try:
            length = len(os.fsencode(path))
        except UnicodeEncodeError as error:
            raise make_failure(verb, path, "the path holds a character that no file name can hold") from error
        if length > MAX_PATH_BYTES:
            raise make_failure(
                verb, path, f"the path is {length} bytes long; at most {MAX_PATH_BYTES} are accepted"
            )
        names = self._anchor.relative(path) if path.startswith("/") else split_path(path)
        if names is None:
            raise _make_outside_error(verb, path)
        return names

    def _check(self, verb: str, path: str, place: WorkspacePath) -> None:
        try:
            hidden = self.hidden.hide(place)
        except OSError as error:
            if error.errno == errno.EXDEV:
                raise _make_outside_error(verb, path) from error
            raise make_failure(verb, path, describe_error(error)) from error
        if hidden:
            raise _make_hidden_error(verb, path)
        with convert_system_errors(verb, path):
            _check_file_system(verb, path, place.directory_fd)


def _make_outside_error(verb: str, path: str) -> Exception:
    return make_refusal(verb, path, "it leads outside the workspace")


def _make_hidden_error(verb: str, path: str) -> Exception:
    return make_refusal(verb, path, "it is reserved for the runtime and closed to tools")


def _check_file_system(verb: str, path: str, fd: int) -> None:
    kind = find_pseudo_file_system(fd)
    if kind is not None:
        raise make_refusal(verb, path, f"it is on {kind}, where files are the kernel's own state")
