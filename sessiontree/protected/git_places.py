"""What of a git repository decides which programs git runs, and where repositories lie beneath a directory.

A repository's own directory is told by what it holds, not by its name: a bare one, a submodule's and that of
a worktree are called anything. Source: gitrepository-layout(5).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

GIT: Final = ".git"
DECIDING: Final = frozenset({"hooks", "config", "config.worktree", "info", "commondir", "gitdir"})
"""Names in a repository's own directory that decide where settings come from and what they say."""
NESTED: Final = ("modules", "worktrees")
"""Where it keeps those of submodules and further worktrees."""
MAKING: Final = frozenset({"HEAD", "objects", "refs", "commondir"})
"""Names that make a directory one, once the others of a set are there."""
_SETS: Final = (frozenset({"HEAD", "objects", "refs"}), frozenset({"HEAD", "commondir"}))
_LONGEST_POINTER: Final = 65_536
RACY_NS: Final = 2_000_000_000
"""A directory changed so shortly before it was read may have changed since without a sign of it."""


def is_repository(names: Callable[[str], bool]) -> bool:
    """Return whether a directory is a repository's own, asked whether a name stands in it."""
    return any(all(names(name) for name in each) for each in _SETS)


def folded(name: str) -> str:
    """Return a name as a file system compares it that knows no case, and no dots or blanks at the end."""
    return name.rstrip(". ").casefold() or name


def why_by_name(names: Collection[str]) -> str:
    """Return why a path is protected by its names alone, in a repository that need not be there yet."""
    below = [folded(name) for name in names]
    for at, name in enumerate(below):
        if name == GIT and len(below) == at + 1:
            return "it says where a git repository lies"
        if name == GIT and below[at + 1] in DECIDING.union(NESTED):
            return "it decides which programs git runs"
    return ""


def pointed_to(file: str) -> str | None:
    """Return the directory that a ``.git`` file names, None where it names none."""
    try:
        with Path(file).open("rb") as stream:
            text = stream.read(_LONGEST_POINTER).decode("utf-8", "surrogateescape")
    except OSError:
        return None
    kind, _, place = text.partition(":")
    if kind != "gitdir" or not place.strip():
        return None
    return os.path.normpath(os.path.join(os.path.dirname(file), place.strip()))  # noqa: PTH118, PTH120 - no path is touched


def repository_of(worktree: str) -> str | None:
    """Return the own directory of the repository whose worktree a directory is, None where it is none."""
    git = os.path.join(worktree, GIT)  # noqa: PTH118 - as above
    if os.path.isdir(git):  # noqa: PTH112 - one call
        return git
    return pointed_to(git) if os.path.isfile(git) else None  # noqa: PTH113 - as above


@dataclass(frozen=True, slots=True)
class FoundPlace:
    """One directory of interest."""

    path: str
    is_repository: bool
    """Whether it is a repository's own directory; else it holds a ``.git``."""


@dataclass(slots=True)
class _Read:
    """What was read of a directory, and when it had last been changed."""

    mtime_ns: int
    read_ns: int
    below: tuple[str, ...]
    has_git: bool
    is_repository: bool


class RepositoryFinder:
    """Finds repositories beneath a directory; reads again what changed alone. For many threads."""

    def __init__(self) -> None:
        self._known: dict[str, _Read] = {}

    def find(self, root: str, leave_out: Collection[str], now_ns: int) -> Iterator[FoundPlace]:
        """Yield repositories and worktrees, in no order. Links are not followed.

        Args:
            root: Absolute, without links.
            leave_out: Absolute paths that are not entered.
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
                left += _nested(path)
            else:
                left += (f"{path}/{name}" for name in read.below)
        self._known = seen

    @staticmethod
    def _read(known: _Read | None, path: str, now_ns: int) -> _Read | None:
        with contextlib.suppress(OSError):
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
                any(folded(name) == GIT for name in names),
                is_repository(names.__contains__),
            )
        return None


def _nested(repository: str) -> Iterator[str]:
    """Yield the directories below a repository's own that may hold others."""
    for name in NESTED:
        yield f"{repository}/{name}"
