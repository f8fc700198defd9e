"""The protected places of one workspace: whether a path is one, and which exist now, including git's places.

A git directory is recognised by its content, not by its name: that of a bare repository, a submodule or a
worktree may have any name. Source: gitrepository-layout(5).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path, PurePath
from typing import Final, TypeAlias

from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.protected.git_settings import hook_directories
from sessiontree.protected.own_places import OwnPlaces, derive_module_name, is_installed
from sessiontree.protected.reaching_places import RACY_NS, place_tree, trace_links

GIT: Final = ".git"
DECIDING: Final = frozenset({"hooks", "config", "config.worktree", "info", "commondir", "gitdir"})
"""Names in a git directory that decide where settings come from and what they say."""
UNDER_WAY: Final = frozenset({"rebase-merge", "rebase-apply", "sequencer"})
"""Directories of what a person has begun and git will continue; they name commands, and end with it."""
NESTED: Final = ("modules", "worktrees")
"""Where a git directory keeps those of submodules and further worktrees."""
_NAMED: Final = DECIDING.union(UNDER_WAY)
MAKING: Final = frozenset({"HEAD", "objects", "refs", "commondir"})
"""Names that turn a directory into a git directory if it already holds the others of a set."""
_SETS: Final = (frozenset({"HEAD", "objects", "refs"}), frozenset({"HEAD", "commondir"}))
_MAX_POINTER: Final = 65_536


def is_repository(names: Callable[[str], bool]) -> bool:
    """Return whether a directory is a git directory; ``names`` says whether it holds a name."""
    return any(all(names(name) for name in each) for each in _SETS)


def fold_name(name: str) -> str:
    """Return a name as file systems compare it that ignore case and trailing dots and blanks."""
    return name.rstrip(". ").casefold() or name


def explain_by_name(names: Collection[str]) -> str:
    """Return why a path's names alone make it protected; the repository need not exist yet."""
    below = [fold_name(name) for name in names]
    for at, name in enumerate(below):
        if name == GIT and len(below) == at + 1:
            return "it says where a git repository is"
        if name == GIT and below[at + 1] in _NAMED.union(NESTED):
            return "it decides which programs git runs"
    return ""


def read_pointer(file: str) -> str | None:
    """Return the directory that a ``.git`` file names; None if it names none."""
    try:
        with Path(file).open("rb") as stream:
            text = stream.read(_MAX_POINTER).decode("utf-8", "surrogateescape")
    except OSError:
        return None
    kind, _, place = text.partition(":")
    if kind != "gitdir" or not place.strip():
        return None
    return os.path.normpath(os.path.join(os.path.dirname(file), place.strip()))  # noqa: PTH118, PTH120 - no path is touched


def find_repository(worktree: str) -> str | None:
    """Return the git directory of a worktree; None = the directory is not a worktree."""
    git = os.path.join(worktree, GIT)  # noqa: PTH118 - as above
    if os.path.isdir(git):  # noqa: PTH112 - one call
        return git
    return read_pointer(git) if os.path.isfile(git) else None  # noqa: PTH113 - as above


@dataclass(frozen=True, slots=True)
class FoundPlace:
    """A git directory or a worktree."""

    path: str
    is_repository: bool
    """Whether it is a git directory; else it holds a ``.git``."""


@dataclass(slots=True)
class _Read:
    """What was read of a directory, and the time of its last change before that."""

    mtime_ns: int
    read_ns: int
    below: tuple[str, ...]
    has_git: bool
    is_repository: bool


class RepositoryFinder:
    """Finds repositories below a directory; reads only changed directories again. Thread-safe."""

    def __init__(self) -> None:
        self._known: dict[str, _Read] = {}

    def find(self, root: str, leave_out: Collection[str], now_ns: int) -> Iterator[FoundPlace]:
        """Yield git directories and worktrees, in no order. Links are not followed.

        Args:
            root: Absolute, without links.
            leave_out: Absolute paths that are skipped.
            now_ns: The time of the system's clock.
        """
        known, seen = self._known, {}
        left = [root]
        while left:
            path = left.pop()
            if path in leave_out:
                continue
            read = self._read(known.get(path), path, now_ns)
            if read is None:
                continue
            seen[path] = read
            if read.has_git:
                yield FoundPlace(path, is_repository=False)
            if read.is_repository:
                yield FoundPlace(path, is_repository=True)
                left += _find_nested(path)
            else:
                left += (f"{path}/{name}" for name in read.below)
        # Only what was found now is kept, so that removed directories do not fill the memory. Of two threads
        # that search at once, one only loses what it has read.
        self._known = seen

    @staticmethod
    def _read(known: _Read | None, path: str, now_ns: int) -> _Read | None:
        with contextlib.suppress(OSError):
            # Taken before the listing: after a change in between it is old, and the directory is read again.
            mtime_ns = os.lstat(path).st_mtime_ns
            if known is not None and known.mtime_ns == mtime_ns and known.read_ns - mtime_ns > RACY_NS:
                return known
            with os.scandir(path) as entries:
                listed = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
            names = {name for name, _ in listed}
            return _Read(
                mtime_ns,
                now_ns,
                tuple(name for name, is_directory in listed if is_directory),
                any(fold_name(name) == GIT for name in names),
                is_repository(names.__contains__),
            )
        return None


def _find_nested(repository: str) -> Iterator[str]:
    """Yield the directories below a git directory that may hold further git directories."""
    for name in NESTED:
        yield f"{repository}/{name}"


Identity: TypeAlias = tuple[int, int]
"""Device and inode."""
RUNS: Final = "processes of the runtime import from it"
LOADED: Final = "the program that opened the tree runs it"
NAMED: Final = "the program that opened the tree names it in its code, and may import it"
SHADOWS: Final = "the program that opened the tree would import it in place of what is installed"
DECIDES: Final = "it decides which programs git runs"
MAKES: Final = "it would make its directory a git repository"
MADE_IF_MISSING: Final = ("hooks", "info", "config")
"""Entries of a complete git directory that are created if they are missing, so that they can be kept."""
_STEP: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class ProtectedPlaces:
    """The protected places below one directory. Safe to use from many threads.

    Args:
        root: The workspace.
        own: The places that the runtime's processes import from.
    """

    def __init__(self, root: str, own: OwnPlaces) -> None:
        """Find the places of ``own`` in the workspace; one that holds the whole workspace does not count."""
        self._root = os.path.realpath(root)
        self._why: dict[str, str] = {}
        reaching = place_tree(own.trees, own.modules, own.named).find_reaching(self._root)
        ways: dict[str, tuple[str, ...]] = {}
        for places, why in ((own.trees, RUNS), (own.modules, LOADED), (own.named, NAMED)):
            for place in places if reaching else ():
                for path in self._trace_way(place, ways) if place in reaching else ():
                    self._add(path, why)
        folders = {self._make_relative(os.path.realpath(folder)): folder for folder in own.folders}
        self._folders = {name: folder for name, folder in folders.items() if name is not None}
        self._finder = RepositoryFinder()
        self._above = [str(parent) for parent in PurePath(self._root).parents]
        """The directories above the workspace; each may be a worktree."""

    def why(self, directory_fd: int, directory: str, names: Sequence[str]) -> str:
        """Return why a place is protected; empty if it is not.

        Args:
            directory_fd: An open directory below the root.
            directory: Its path below the root, links resolved; ``.`` for the root.
            names: The rest of the path from there, missing directories included; empty = the directory.

        Raises:
            OSError: the directories up to the root can't be read.
        """
        above = [] if directory == "." else directory.split("/")
        whole = [*above, *names]
        named = (
            self._explain_by_path(self._why, whole)
            or explain_by_name(whole)
            or self._explain_by_folder(whole)
        )
        return named or self._explain_by_identity(directory_fd, len(above), whole)

    def see(self) -> Seen:
        """Return the places that exist now; repositories are searched in the whole workspace."""
        kept = _Kept(self._root)
        for name, why in self._why.items():
            if why == NAMED:
                kept.take_or_keep_away(f"{self._root}/{name}")
            else:
                kept.take(f"{self._root}/{name}")
        trees = {f"{self._root}/{name}" for name in self._why}
        for found in self._finder.find(self._root, trees, time.time_ns()):
            if found.is_repository:
                kept.take_repository(found.path)
            else:
                kept.take_worktree(found.path)
        for worktree in self._above:
            kept.take_hooks(worktree)
        return kept.seen()

    def _add(self, path: str, why: str) -> None:
        name = self._make_relative(path)
        if name is not None and name != ".":
            self._why.setdefault(name, why)

    def _make_relative(self, path: str) -> str | None:
        if path == self._root:
            return "."
        prefix = self._root.rstrip("/") + "/"
        return path[len(prefix) :] if path.startswith(prefix) else None

    def _trace_way(self, place: str, known: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
        """Return the links on the way to a place, and last what it is without links.

        Args:
            place: Absolute.
            known: The answers for directories. A program names thousands of files in a few directories, so
                each directory is walked once.
        """
        folder, name = os.path.split(place)
        if name in {"", ".", ".."}:
            return (*trace_links(place), os.path.realpath(place))
        if folder not in known:
            known[folder] = self._trace_way(folder, known)
        *links, real = known[folder]
        path = os.path.join(real, name)  # noqa: PTH118 - no path is touched
        if os.path.islink(path):  # noqa: PTH114 - one call
            return (*trace_links(place), os.path.realpath(place))
        return (*links, path)

    @staticmethod
    def _explain_by_path(known: dict[str, str], whole: Sequence[str]) -> str:
        if not known:
            return ""
        ways = ["/".join(whole[: at + 1]) for at in range(len(whole))]
        return next(filter(None, map(known.get, ways)), "")

    def _explain_by_folder(self, whole: Sequence[str]) -> str:
        """Return why a new module of the program may not hide an installed one."""
        for name in self._folders:
            beneath = [] if name == "." else name.split("/")
            rest = whole[len(beneath) :]
            if list(whole[: len(beneath)]) != beneath or not rest:
                continue
            if "__pycache__" in rest:
                return LOADED
            module = derive_module_name(rest[0])
            is_package = len(rest) == 2 and derive_module_name(rest[1]) == "__init__"
            if (len(rest) == 1 and module != rest[0]) or is_package:
                return SHADOWS if is_installed(module, self._folders.values()) else ""
        return ""

    def _explain_by_identity(self, directory_fd: int, depth: int, whole: Sequence[str]) -> str:
        passed: list[Identity] = []
        for up in range(depth + 1):
            # From the open directory upwards and not by its path, which may lead elsewhere by now.
            before = "../" * up
            passed.append(_get_identity(os.stat(before or ".", dir_fd=directory_fd)))
            rest = whole[depth - up :]
            if rest and (why := _explain_in_repository(partial(_has_entry, directory_fd, before), rest[0])):
                return why
        if len(whole) == depth + 1:
            with contextlib.suppress(OSError):
                passed.append(_get_identity(os.stat(whole[-1], dir_fd=directory_fd, follow_symlinks=False)))
        known = {
            identity: why for path, why in self._why.items() for identity in self._collect_identities(path)
        }
        hooks = dict.fromkeys(self._find_hooks_around(whole), DECIDES)
        if named := self._explain_by_path(hooks, whole):
            return named
        known |= {identity: DECIDES for name in hooks for identity in self._collect_identities(name)}
        return next((known[identity] for identity in passed if identity in known), "")

    def _collect_identities(self, name: str) -> Iterator[Identity]:
        """Yield the identity of a path, and that of its target if it is a link."""
        for follows in (False, True):
            with contextlib.suppress(OSError):
                yield _get_identity(os.stat(f"{self._root}/{name}", follow_symlinks=follows))  # noqa: PTH116 - one call

    def _find_hooks_around(self, whole: Sequence[str]) -> Iterator[str]:
        """Yield the hook directories below the root of the repositories around a path."""
        ways = [self._root, *("/".join((self._root, *whole[: at + 1])) for at in range(len(whole) - 1))]
        for worktree in (*ways, *self._above):
            for place in _find_hooks(worktree):
                name = self._make_relative(os.path.realpath(place))
                if name is not None and name != ".":
                    yield name


@dataclass(frozen=True, slots=True)
class Seen:
    """The places that a command must see and leave unchanged. All paths are absolute and below the root."""

    root: str
    paths: tuple[str, ...] = ()
    """Files and directories that exist; none below another."""
    links: tuple[tuple[str, str], ...] = ()
    """Links, each with its target text: nothing can be mounted on a link."""
    absent: tuple[str, ...] = ()
    """Paths that must not come into existence."""

    def put_back(self) -> tuple[str, ...]:
        """Restore the links, and remove what was absent; return the paths that had changed."""
        came = [path for path in self.absent if os.path.lexists(path) and self._apply_at(path, _remove)]
        swapped = [
            path
            for path, text in self.links
            if not _is_link(path, text) and self._apply_at(path, partial(_link, text))
        ]
        return (*came, *swapped)

    def _apply_at(self, path: str, act: Callable[[int, str], None]) -> bool:
        """Apply a function to a name in its directory; no link is followed on the way from the root."""
        *way, name = path[len(self.root.rstrip("/")) + 1 :].split("/")
        with contextlib.suppress(OSError), contextlib.ExitStack() as opened:
            # The command may have replaced a directory on the way by a link to a place outside.
            fd = os.open(self.root, _STEP)
            opened.callback(os.close, fd)
            for step in way:
                fd = os.open(step, _STEP, dir_fd=fd)
                opened.callback(os.close, fd)
            act(fd, name)
            return True
        return False


class _Kept:
    """Collects the places that a command must see unchanged."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._paths: dict[str, None] = {}
        self._links: dict[str, str] = {}
        self._absent: dict[str, None] = {}

    def take(self, path: str) -> bool:
        """Add a path, and its target if it is a link. Return False if the path does not exist."""
        if not path.startswith(self._root.rstrip("/") + "/"):
            return True
        if os.path.islink(path):  # noqa: PTH114 - one call
            self._links[path] = os.readlink(path)  # noqa: PTH115 - text
            target = os.path.realpath(path)
            if os.path.exists(target):  # noqa: PTH110 - as above
                self.take(target)
            return True
        if not os.path.lexists(path):
            return False
        self._paths[path] = None
        return True

    def take_or_keep_away(self, path: str) -> None:
        """Add a path if it exists; else it must not come into existence."""
        if not self.take(path):
            self._absent[path] = None

    def take_repository(self, path: str) -> None:
        """Add the deciding entries of a git directory; create those that a complete one lacks."""
        is_whole = not os.path.lexists(f"{path}/commondir")
        for name in sorted(_NAMED):
            place = f"{path}/{name}"
            if self.take(place) or name in UNDER_WAY:
                continue
            if is_whole and name in MADE_IF_MISSING and _make_place(place, is_file=name == "config"):
                self._paths[place] = None
            elif is_whole or name not in MADE_IF_MISSING:
                self._absent[place] = None

    def take_worktree(self, path: str) -> None:
        """Add what names a worktree's repository, and the hook directories of that repository."""
        git = f"{path}/{GIT}"
        if os.path.islink(git) or not os.path.isdir(git):  # noqa: PTH112, PTH114 - one call
            self.take(git)
        else:
            for name in _NAMED:
                self.take(f"{git}/{name}")
        place = read_pointer(git) if os.path.isfile(git) else None  # noqa: PTH113 - as above
        if place is not None and os.path.isdir(place):  # noqa: PTH112 - as above
            for name in _NAMED:
                self.take(f"{os.path.realpath(place)}/{name}")
        self.take_hooks(path)

    def take_hooks(self, worktree: str) -> None:
        """Add the hook directories of a worktree's repository, and the files that name them."""
        for place in _find_hooks(worktree):
            self.take_or_keep_away(place)

    def seen(self) -> Seen:
        """Return all places, without those below another, and with other names of the files."""
        paths = dict.fromkeys([*self._paths, *_find_other_names(self._root, self._paths)])

        def is_outer(path: str) -> bool:
            return not any(str(way) in paths for way in PurePath(path).parents)

        links = tuple((path, text) for path, text in self._links.items() if is_outer(path))
        outer = tuple(sorted(filter(is_outer, paths)))
        return Seen(self._root, outer, links, tuple(filter(is_outer, self._absent)))


@lru_cache(maxsize=64)
def find_protected_places(root: str, own: OwnPlaces) -> ProtectedPlaces:
    """Return the protected places of a workspace; equal arguments give the same object."""
    return ProtectedPlaces(root, own)


def _explain_in_repository(has: Callable[[str], bool], name: str) -> str:
    """Return why a name is protected in a directory; ``has`` says which other names the directory holds."""
    if fold_name(name) in _NAMED.union(NESTED) and is_repository(has):
        return DECIDES
    if name in MAKING and not is_repository(has) and is_repository(lambda other: other == name or has(other)):
        return MAKES
    return ""


def _has_entry(directory_fd: int, before: str, name: str) -> bool:
    try:
        os.stat(f"{before}{name}", dir_fd=directory_fd, follow_symlinks=False)
    except OSError:
        return False
    return True


def _get_identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino


def _find_hooks(worktree: str) -> set[str]:
    # One look suffices for most directories: they are no worktrees.
    repository = find_repository(worktree) if os.path.lexists(f"{worktree}/{GIT}") else None
    return set() if repository is None else hook_directories(repository, worktree)


def _find_other_names(root: str, paths: Iterable[str]) -> list[str]:
    """Return other names (hard links) of these files below the root."""
    wanted = set()
    for path in paths:
        with contextlib.suppress(OSError):
            status = os.lstat(path)
            if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
                wanted.add(_get_identity(status))
    if not wanted:
        return []
    found = []
    for folder, _, files in os.walk(root):
        for name in files:
            path = os.path.join(folder, name)  # noqa: PTH118 - no path is touched
            with contextlib.suppress(OSError):
                if _get_identity(os.lstat(path)) in wanted:
                    found.append(path)
    return found


def _make_place(path: str, *, is_file: bool) -> bool:
    """Create an empty file or directory; return False if that fails."""
    with contextlib.suppress(OSError):
        if is_file:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644))
        else:
            os.mkdir(path)  # noqa: PTH102 - one call
        return True
    return False


def _is_link(path: str, text: str) -> bool:
    return os.path.islink(path) and os.readlink(path) == text  # noqa: PTH114, PTH115 - text


def _remove(directory_fd: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=directory_fd)
    except IsADirectoryError:
        shutil.rmtree(name, dir_fd=directory_fd)


def _link(text: str, directory_fd: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        _remove(directory_fd, name)
    os.symlink(text, name, dir_fd=directory_fd)
