"""Names that are missing: the one entry that looks the same, and those that are near.

A name is taken as it is first. Only where a directory has no such entry, an entry that looks the same counts,
and only where it is the only one. What is found so is resolved and judged like any path, by its real name.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Final, TypeAlias

from sessiontree.contracts.values.file_names import fold_name, is_foldable
from sessiontree.workspace.resolver import Resolver, RootDirectory, WorkspacePath

MAX_NAMES: Final = 256
"""Names of a longer path are taken as they are: each of them would be looked up by itself."""
MAX_COMPARED: Final = 1_000
"""Most entries of a directory that are compared for near names."""
MAX_NEAR: Final = 3

PathTest: TypeAlias = Callable[[str], bool]
"""Whether a path below the root is one that no tool sees."""


class SeveralLookAlikes(Exception):
    """Several entries look like a name that no entry has."""

    def __init__(self, name: str, entries: Sequence[str]) -> None:
        super().__init__(name, entries)
        self.name = name
        self.entries = tuple(entries)


def has_entry(place: WorkspacePath) -> bool:
    """Whether the place exists; a link exists, whatever it leads to.

    Raises:
        OSError: the system refused to look.
    """
    if not place.names:
        return True
    # More than one name is left only where the first of them is missing.
    if len(place.names) > 1:
        return False
    try:
        os.stat(place.names[0], dir_fd=place.directory_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def list_names(place: WorkspacePath, is_hidden: PathTest) -> list[str]:
    """Return the names in a place's directory, sorted; nothing where it may not be listed."""
    try:
        # Opened again, because a descriptor that only looks can't be listed.
        fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place.directory_fd)
    except OSError:
        return []
    try:
        names = sorted(os.listdir(fd))  # noqa: PTH208 - a descriptor
    except OSError:
        return []
    finally:
        os.close(fd)
    prefix = "" if place.directory == "." else f"{place.directory}/"
    return [name for name in names if not is_hidden(prefix + name)]


def find_real_names(
    resolve: Resolver, anchor: RootDirectory, names: Sequence[str], is_hidden: PathTest
) -> list[str]:
    """Return a path's names, each missing one replaced by the only entry that looks like it.

    From the first one on that has no such entry, they stay as they are.

    Raises:
        SeveralLookAlikes: a name is missing, and several entries look like it.
        OSError: as the resolver raises.
    """
    real: list[str] = []
    for number, name in enumerate(names):
        if name in {".", ".."}:
            real.append(name)
            continue
        with resolve(anchor, [*real, name], follow_last=False) as place:
            if has_entry(place):
                real.append(name)
                continue
            look = fold_name(name)
            alike = [entry for entry in list_names(place, is_hidden) if fold_name(entry) == look]
        if not alike or not is_foldable(name):
            return [*real, *names[number:]]
        if len(alike) > 1:
            raise SeveralLookAlikes(name, alike)
        real += alike
    return real


def resolve_by_look(
    resolve: Resolver, anchor: RootDirectory, names: list[str], is_hidden: PathTest, *, follow_last: bool
) -> WorkspacePath:
    """Resolve names as they are; where that leads to nothing, by what they look like.

    Raises:
        SeveralLookAlikes: a name is missing, and several entries look like it.
        OSError: as the resolver raises.
    """
    can_fold = len(names) <= MAX_NAMES and any(map(is_foldable, names))
    try:
        place = resolve(anchor, names, follow_last=follow_last)
    except FileNotFoundError:
        if not can_fold:
            raise
        place = None
    try:
        if place is not None and (not can_fold or has_entry(place)):
            return place
        real = find_real_names(resolve, anchor, names, is_hidden)
    except BaseException as error:
        if place is not None and isinstance(error, OSError) and error.errno != errno.EXDEV:
            return place  # what is wrong with it is said by whoever uses it
        if place is not None:
            os.close(place.directory_fd)
        raise
    if place is not None:
        if real == names:
            return place
        os.close(place.directory_fd)
    return resolve(anchor, real, follow_last=follow_last)


def find_near_names(place: WorkspacePath, is_hidden: PathTest) -> list[str]:
    """Return entries whose names are near to the first missing one, nearest first."""
    wanted = fold_name(place.names[0]).casefold()
    by_look: dict[str, str] = {}
    for entry in list_names(place, is_hidden)[:MAX_COMPARED]:
        by_look.setdefault(fold_name(entry).casefold(), entry)
    return [by_look[look] for look in get_close_matches(wanted, by_look, MAX_NEAR)]
