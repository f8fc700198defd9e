"""From a path to an open place below the root: in one system call if possible, otherwise name by name.

The root is opened once; absolute paths are made relative to it. Paths are compared by whole names, so
``/ws-evil`` is not below ``/ws``.

With ``openat2`` the kernel itself keeps a path below the root. It resolves everything up to the last name,
which is never followed. If the kernel refuses (an absolute link with a target that may still be below, a
missing parent, an escape), the walk decides and gives the reason, so both ways agree on every path. The walk
opens one name at a time below an open directory, without following it. It reads a link from the link's own
descriptor and then steps through its names. It never looks a name up by a longer path, so nothing can be
swapped between the check and the use.

Source: openat2(2), fstatfs(2), ``linux/openat2.h``, ``linux/magic.h``.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import weakref
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, TypeAlias

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.handles.ports import Entry, EntryType
from sessiontree.contracts.values.quick_dataclass import dataclass

RESOLVE_NO_MAGICLINKS: Final = 0x02
RESOLVE_BENEATH: Final = 0x08
_OPENAT2: Final = 437

# Kernel state as files: reading them reveals secrets of processes, writing them changes the machine.
_PSEUDO_FILE_SYSTEMS: Final = {
    0x00001CD1: "devpts",
    0x00009FA0: "procfs",
    0x0027E0EB: "cgroup",
    0x07655821: "resctrl",
    0x19800202: "mqueue",
    0x42494E4D: "binfmt_misc",
    0x43415D53: "smackfs",
    0x6165676C: "pstore",
    0x62656570: "configfs",
    0x62656572: "sysfs",
    0x63677270: "cgroup2",
    0x64626720: "debugfs",
    0x65735543: "fusectl",
    0x6E736673: "nsfs",
    0x73636673: "securityfs",
    0x74726163: "tracefs",
    0xCAFE4A11: "bpf",
    0xDE5E81E4: "efivarfs",
    0xF97CFF8C: "selinuxfs",
}


@cache
def _load_libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def openat2(directory_fd: int, path: str, flags: int, resolve: int) -> int:
    """Open a path with the kernel's own resolution rules.

    Args:
        directory_fd: The directory where relative paths start.
        path: The path; undecodable bytes as surrogates.
        flags: ``os.O_*`` bits; ``O_CLOEXEC`` is added.
        resolve: ``RESOLVE_*`` bits.

    Returns:
        A new descriptor; the caller closes it.

    Raises:
        OSError: ``ENOSYS`` or ``EPERM`` if the kernel or a filter does not have the call, else the reason.
    """
    how = struct.pack("QQQ", flags | os.O_CLOEXEC, 0, resolve)  # struct open_how: flags, mode, resolve
    fd: int = _load_libc().syscall(
        ctypes.c_long(_OPENAT2),
        ctypes.c_int(directory_fd),
        ctypes.c_char_p(os.fsencode(path)),
        ctypes.c_char_p(how),
        ctypes.c_size_t(len(how)),
    )
    if fd < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return fd


def read_descriptor_path(fd: int) -> str:
    """Return the current path of a descriptor.

    Raises:
        OSError: procfs is missing, or the path is longer than the kernel's limit.
    """
    return os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115 - the kernel's text, not a normalised path


def find_pseudo_file_system(fd: int) -> str | None:
    """Return the name of the pseudo file system of a descriptor, or None for a real file system.

    Raises:
        OSError: the system call failed.
    """
    # On every Linux struct statfs begins with the type as a long; the rest is not read.
    answer = (ctypes.c_long * 64)()
    if _load_libc().fstatfs(ctypes.c_int(fd), ctypes.byref(answer)) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return _PSEUDO_FILE_SYSTEMS.get(answer[0] & 0xFFFFFFFF)


Identity: TypeAlias = tuple[int, int]
"""Device and inode: they identify one object, whatever its name."""


def get_file_identity(status: os.stat_result) -> Identity:
    """Return the identity of the object of a ``stat`` result."""
    return status.st_dev, status.st_ino


def split_path(path: str) -> list[str]:
    """Split a path into the names that the kernel steps through.

    Returns:
        Its names and ``..``; a path that must name a directory (``a/``, ``a/.``, ``.``) ends in ``.``.
        A leading ``/`` is dropped, because the caller knows where the path starts.
    """
    pieces = path.split("/")
    names = [piece for piece in pieces if piece not in {"", "."}]
    if pieces[-1] in {"", "."}:
        names.append(".")
    return names


@dataclass(frozen=True, slots=True)
class WorkspacePath:
    """A place below the root, held open. Close it, or use it in a ``with``.

    ``directory_fd`` is a directory (``O_PATH``) that was reached without leaving the root. A single name in
    ``names`` was not a link when it was checked: use it with ``O_NOFOLLOW`` or an equivalent.
    """

    directory_fd: int
    directory: str
    """The directory's path below the root, links resolved; ``.`` for the root."""
    names: tuple[str, ...]
    """Empty = the place is the directory itself. More than one = the first does not exist yet."""

    @property
    def path(self) -> str:
        """The whole path below the root, links resolved; ``.`` for the root."""
        head = () if self.directory == "." else (self.directory,)
        return "/".join((*head, *self.names)) or "."

    @property
    def name(self) -> str:
        """The name relative to ``directory_fd``; ``.`` for the directory itself.

        Raises:
            FileNotFoundError: a directory on the way does not exist.
        """
        if len(self.names) > 1:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return self.names[0] if self.names else "."

    def __enter__(self) -> WorkspacePath:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the directory."""
        os.close(self.directory_fd)


def to_entry(path: str, status: os.stat_result) -> Entry:
    """Return the entry for a path below the root and its ``stat`` result."""
    return Entry(path, _to_entry_type(status.st_mode), status.st_size, status.st_mtime_ns)


def _to_entry_type(mode: int) -> EntryType:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "link" if stat.S_ISLNK(mode) else "other"


class RootDirectory:
    """An open root directory. The descriptor lives as long as the object, so a renamed root stays the root.

    Args:
        root: An existing directory; made absolute at once.

    Raises:
        ConfigError: it is missing or not a directory.
    """

    __slots__ = ("__weakref__", "_prefixes", "fd", "real_path")

    def __init__(self, root: Path) -> None:
        try:
            self.real_path = Path(os.path.realpath(root, strict=True))
            self.fd = os.open(self.real_path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except (OSError, RuntimeError, ValueError) as error:  # resolve: a loop of links, a NUL
            reason = getattr(error, "strerror", None) or error
            raise ConfigError(f"can't use {str(root)!r} as workspace: {reason}") from error
        weakref.finalize(self, os.close, self.fd)
        given = tuple(split_path(str(root.absolute())))
        resolved = tuple(split_path(str(self.real_path)))
        # Callers spell the root as it was given, or as it is with links resolved.
        self._prefixes = {tuple(name for name in prefix if name != ".") for prefix in (given, resolved)}

    def relative(self, absolute: str) -> list[str] | None:
        """Return an absolute path's components below the root, or None if it is elsewhere.

        The comparison is lexical; the resolver handles ``..`` in the components.
        """
        names = split_path(absolute)
        for prefix in self._prefixes:
            if tuple(names[: len(prefix)]) == prefix:
                return names[len(prefix) :] or ["."]
        return None


MAX_LINKS: Final = 40
# O_PATH opens without effects: a device or a FIFO is only looked at.
_LOOK: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_STEP: Final = _LOOK | os.O_DIRECTORY


class _Cursor:
    """A directory below the root and the way back up, with one descriptor at any depth."""

    __slots__ = ("_root_fd", "_trail", "fd", "links", "names")

    def __init__(self, root_fd: int) -> None:
        self._root_fd = root_fd
        self.links = 0
        self.names: list[str] = []
        self.fd = os.dup(root_fd)
        self._trail: list[Identity] = [get_file_identity(os.fstat(root_fd))]

    def step_down(self, name: str, fd: int) -> None:
        """Step into an open directory, and take its descriptor over."""
        self._trail.append(get_file_identity(os.fstat(fd)))
        self.names.append(name)
        self._replace(fd)

    def step_up(self) -> None:
        """Step to the directory from which this one was reached."""
        if not self.names:
            raise OSError(errno.EXDEV, "it leads outside the root")
        self._replace(os.open("..", _STEP, dir_fd=self.fd))
        self.names.pop()
        self._trail.pop()
        # The parent may have changed: only the directory that was passed before is known to be below.
        if get_file_identity(os.fstat(self.fd)) != self._trail[-1]:
            raise OSError(errno.EAGAIN, "a directory on the way was moved meanwhile")

    def follow(self, link_fd: int, anchor: RootDirectory) -> list[str]:
        """Return the components of a link's target; go back to the root first if it is absolute."""
        self.links += 1
        if self.links > MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        # Only the text of a magic link (procfs) counts, and it reaches no more than any other path.
        target = os.readlink("", dir_fd=link_fd)
        if not target.startswith("/"):
            return split_path(target)
        beneath = anchor.relative(target)
        if beneath is None:
            raise OSError(errno.EXDEV, "it leads outside the root")
        self._replace(os.dup(self._root_fd))
        self.names.clear()
        del self._trail[1:]
        return beneath

    def place(self, names: tuple[str, ...]) -> WorkspacePath:
        """Return the directory as a place, which owns its descriptor from now on."""
        if len(names) > 1 and (".." in names or names[-1] == "."):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        place = WorkspacePath(self.fd, "/".join(self.names) or ".", names)
        self.fd = -1
        return place

    def close(self) -> None:
        """Close the directory, unless a place owns it."""
        if self.fd >= 0:
            os.close(self.fd)

    def _replace(self, fd: int) -> None:
        os.close(self.fd)
        self.fd = fd


def resolve_by_walk(anchor: RootDirectory, names: list[str], *, follow_last: bool = True) -> WorkspacePath:
    """Step through components from the root, and follow links that stay below it.

    Args:
        anchor: The root.
        names: Components, from :func:`~sessiontree.workspace.resolver.split_path`.
        follow_last: Whether to follow a link in the last place too.

    Returns:
        The place. The walk ends at the first missing name; the names after it are kept too.

    Raises:
        OSError: ``EXDEV`` if the path leaves the root, ``ELOOP`` after 40 links, ``ENOTDIR`` if a file is on
            the way, ``EAGAIN`` if a directory was moved meanwhile, else the system's reason.
    """
    cursor = _Cursor(anchor.fd)
    left = names[::-1]
    try:
        while left:
            name = left.pop()
            if name == ".":
                continue
            if name == "..":
                cursor.step_up()
                continue
            if _step(cursor, anchor, name, left, follow_last):
                return cursor.place((name, *reversed(left)))
        return cursor.place(())
    finally:
        cursor.close()


def _step(cursor: _Cursor, anchor: RootDirectory, name: str, left: list[str], follow_last: bool) -> bool:
    """Step through one name; return whether the walk ends before it."""
    try:
        fd = os.open(name, _LOOK, dir_fd=cursor.fd)
    except FileNotFoundError:
        return True
    entered = False
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISLNK(mode) and (left or follow_last):
            left.extend(reversed(cursor.follow(fd, anchor)))
            return False
        if not left:
            return True
        if not stat.S_ISDIR(mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        cursor.step_down(name, fd)
        entered = True
        return False
    finally:
        if not entered:
            os.close(fd)


# A magic link of procfs leads to whatever a process has open, wherever that is.
_BENEATH: Final = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS
_DIRECTORY: Final = os.O_PATH | os.O_DIRECTORY


class Resolver(Protocol):
    """Resolves a path's components to a place, like :func:`resolve_by_walk`."""

    def __call__(self, anchor: RootDirectory, names: list[str], *, follow_last: bool = True) -> WorkspacePath:
        """Return the place; the caller closes it."""
        ...


def resolve_by_openat2(anchor: RootDirectory, names: list[str], *, follow_last: bool = True) -> WorkspacePath:
    """Resolve components from the root in one system call, with the result of :func:`resolve_by_walk`."""
    is_directory = names[-1] in {".", ".."}
    way, last = (names, ()) if is_directory else (names[:-1], (names[-1],))
    try:
        fd = openat2(anchor.fd, "/".join(way) or ".", _DIRECTORY, _BENEATH)
    except OSError:
        return resolve_by_walk(anchor, names, follow_last=follow_last)
    place = None
    try:
        directory = _find_path_beneath(anchor.fd, fd)
        # Race: the directory may be moved out of the root once it is open; then the walk decides.
        if directory is not None and not (last and follow_last and _is_link(fd, last[0])):
            place = WorkspacePath(fd, directory, last)
    finally:
        if place is None:
            os.close(fd)
    return place or resolve_by_walk(anchor, names, follow_last=follow_last)


@cache
def choose_resolver() -> Resolver:
    """Return the best resolver for this kernel; tested once per process."""
    try:
        fd = openat2(-100, ".", _DIRECTORY, _BENEATH)  # AT_FDCWD
    except OSError:  # the call is missing, or a filter denies it
        return resolve_by_walk
    try:
        read_descriptor_path(fd)
    except OSError:  # without procfs no descriptor has a name
        return resolve_by_walk
    finally:
        os.close(fd)
    return resolve_by_openat2


def _is_link(directory_fd: int, name: str) -> bool:
    try:
        os.readlink(name, dir_fd=directory_fd)
    except OSError as error:
        if error.errno in {errno.EINVAL, errno.ENOENT}:  # not a link; missing
            return False
        raise
    return True


def _find_path_beneath(root_fd: int, fd: int) -> str | None:
    """Return a directory's current path below the root, or None if it is elsewhere or too long."""
    try:
        root = read_descriptor_path(root_fd)
        path = read_descriptor_path(fd)
    except OSError:
        return None
    if path == root:
        return "."
    prefix = root.rstrip("/") + "/"
    return path[len(prefix) :] if path.startswith(prefix) else None
