"""Which of many places may reach into a directory: by being below it, or by a link on the way.

A program names thousands of places, and few of them have to do with one workspace. The places are kept as a
tree of names, each directory of which is looked at again only after it has changed, so that a new workspace
costs one system call for each directory that exists.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import field
from functools import lru_cache
from pathlib import PurePath
from typing import Final

from sessiontree.contracts.values.quick_dataclass import dataclass

RACY_NS: Final = 2_000_000_000
"""A directory that changed so shortly before it was read may have changed again with the same timestamp."""
_MAX_LINKS: Final = 256


@dataclass(frozen=True, slots=True)
class _KnownNames:
    """What the names in a directory are, and the state of the directory when that was read."""

    identity: tuple[int, int, int]
    """Device, inode, and the time of the last change, which no program can set."""
    read_ns: int
    there: frozenset[str]
    """Files and directories."""
    ways: tuple[str, ...]
    """Those of them with places below."""
    links: tuple[str, ...]


@dataclass(slots=True)
class _Node:
    """A directory or file that is a place, or on the way to one."""

    below: dict[str, _Node] = field(default_factory=dict)
    place: str | None = None
    read: _KnownNames | None = None
    """Of the directory that the node's path named last; checked before each use."""

    def places(self) -> Iterator[str]:
        """Yield all places at and below the node."""
        if self.place is not None:
            yield self.place
        for node in self.below.values():
            yield from node.places()


class PlaceTree:
    """Places as a tree of names. Safe to use from many threads.

    Args:
        places: Absolute paths; links in them are not resolved, and they need not exist.
    """

    def __init__(self, places: Iterable[str]) -> None:
        self._top = _Node()
        self._odd: list[str] = []
        """Places with ``..``: names alone do not say where they are."""
        for place in places:
            names = place.split("/")[1:]
            if os.path.normpath(place) != place:
                self._odd.append(place)
                continue
            node = self._top
            for name in names:
                node = node.below.setdefault(name, _Node())
            node.place = place

    def find_reaching(self, root: str) -> set[str]:
        """Return the places that are below a directory, or whose way leads through it.

        The directory itself does not count. The answer may hold further places; it leaves out none.

        Args:
            root: Absolute, without links.
        """
        found = set(self._odd)
        self._gather(self._top, "", root, found)
        return found

    def _gather(self, node: _Node, real: str, root: str, found: set[str]) -> None:
        """Add the places below a directory outside the root.

        Args:
            node: The directory.
            real: What it is without links; empty = the top of the file system.
            root: As above.
            found: What is added to.
        """
        read = _read_again(node, real)
        if root == "/" or (read is None and f"{root}/".startswith(f"{real}/")):
            found.update(node.places())
            return
        if read is None:
            return
        for name in read.ways:
            path = f"{real}/{name}"
            if path == root:
                found.update(node.below[name].places())
            else:
                self._gather(node.below[name], path, root, found)
        for name in read.links:
            self._follow(node.below[name], f"{real}/{name}", root, found)
        if f"{root}/".startswith(f"{real}/"):  # the root, or what is above it, need not exist yet
            name = root[len(real) + 1 :].partition("/")[0]
            if name in node.below and name not in read.there and name not in read.links:
                found.update(node.below[name].places())

    def _follow(self, node: _Node, path: str, root: str, found: set[str]) -> None:
        """Add the places at and below a link outside the root."""
        inside = f"{root}/"
        real = os.path.realpath(path)
        if f"{real}/".startswith(inside) or any(link.startswith(inside) for link in trace_links(path)):
            found.update(node.places())
        elif node.below:
            self._gather(node, real.rstrip("/"), root, found)


def _read_again(node: _Node, real: str) -> _KnownNames | None:
    """Return what the names below a directory are; None = it can't be read, or is not a directory."""
    if not node.below:
        return None
    try:
        status = os.lstat(real or "/")
    except OSError:
        return None
    if not stat.S_ISDIR(status.st_mode):
        return None
    identity = (status.st_dev, status.st_ino, status.st_ctime_ns)
    known = node.read
    if known is not None and known.identity == identity and known.read_ns - status.st_ctime_ns > RACY_NS:
        return known
    there: list[str] = []
    links: list[str] = []
    # Before the names are looked at, so that a change in between is within the racy time.
    now_ns = time.time_ns()
    for name in node.below:
        try:
            kind = os.lstat(f"{real}/{name}").st_mode
        except OSError:
            continue
        (links if stat.S_ISLNK(kind) else there).append(name)
    ways = tuple(name for name in there if node.below[name].below)
    node.read = _KnownNames(identity, now_ns, frozenset(there), ways, tuple(links))
    return node.read


def trace_links(place: str) -> Iterator[str]:
    """Yield the links on the way to a place: changing a link changes what the place holds.

    Args:
        place: Absolute.
    """
    here, left = "/", [part for part in PurePath(place).parts if part != "/"][::-1]
    for _ in range(_MAX_LINKS):
        if not left:
            return
        name = left.pop()
        if name == "..":
            here = os.path.dirname(here)  # noqa: PTH120 - no path is touched
            continue
        path = os.path.join(here, name)  # noqa: PTH118 - as above
        if not os.path.islink(path):  # noqa: PTH114 - one call
            here = path
            continue
        yield path
        target = os.readlink(path)  # noqa: PTH115 - text
        here = "/" if target.startswith("/") else here
        left += [part for part in PurePath(target).parts if part != "/"][::-1]


@lru_cache(maxsize=8)
def place_tree(*groups: tuple[str, ...]) -> PlaceTree:
    """Return the tree of some places; equal arguments give the same object."""
    return PlaceTree(place for group in groups for place in group)
