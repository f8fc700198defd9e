"""Plan: how files are shared out over Branches and Workers. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sessiontree.survey.finding import top_folder

MAX_GROUP_FILES = 500
"""What one call of the survey tool accepts."""
DEFAULT_GROUP_FILES = 100
DEFAULT_GROUP_BYTES = 8_000_000
DEFAULT_FILE_BYTES = 2_000_000
"""Bytes read of one file, and so the most it weighs in a group."""


@dataclass(frozen=True, slots=True)
class SurveyFile:
    """One file to survey."""

    path: str
    """Relative to the root, ``/`` between parts."""
    size: int
    """Bytes."""


@dataclass(frozen=True, slots=True)
class FolderPlan:
    """One top folder: one Branch, and per group one Worker."""

    folder: str
    """Its name, ``.`` for files in the root itself."""
    groups: tuple[tuple[str, ...], ...]
    """Paths, ascending within a group and from group to group."""

    @property
    def files(self) -> int:
        """Number of files in all groups."""
        return sum(map(len, self.groups))


def plan(
    files: Iterable[SurveyFile],
    *,
    max_files: int = DEFAULT_GROUP_FILES,
    max_bytes: int = DEFAULT_GROUP_BYTES,
    max_file_bytes: int = DEFAULT_FILE_BYTES,
) -> tuple[FolderPlan, ...]:
    """Return the groups, per top folder, folders ascending.

    Every file is in exactly one group. A group takes files in path order until one more would exceed a bound;
    a file heavier than ``max_bytes`` has a group of its own. The same files give the same plan in any order.

    Args:
        files: What to survey.
        max_files: Most files of a group, 1 to 500.
        max_bytes: Most bytes of a group; at least 1.
        max_file_bytes: A larger file weighs this much, because no more of it is read.

    Raises:
        ValueError: a bound is out of range, or two files have the same path.
    """
    if not 1 <= max_files <= MAX_GROUP_FILES:
        raise ValueError(f"max_files is {max_files}; it must be 1 to {MAX_GROUP_FILES}")
    if max_bytes < 1 or max_file_bytes < 1:
        raise ValueError(
            f"max_bytes is {max_bytes} and max_file_bytes {max_file_bytes}; both must be at least 1"
        )
    folders: dict[str, dict[str, int]] = {}
    for file in files:
        weights = folders.setdefault(top_folder(file.path), {})
        if file.path in weights:
            raise ValueError(f"two files have the path {file.path!r}")
        weights[file.path] = min(file.size, max_file_bytes)
    return tuple(
        FolderPlan(folder, _groups(folders[folder], max_files, max_bytes)) for folder in sorted(folders)
    )


def _groups(weights: dict[str, int], max_files: int, max_bytes: int) -> tuple[tuple[str, ...], ...]:
    groups: list[tuple[str, ...]] = []
    group: list[str] = []
    weight = 0
    for path in sorted(weights):
        if group and (len(group) == max_files or weight + weights[path] > max_bytes):
            groups.append(tuple(group))
            group, weight = [], 0
        group.append(path)
        weight += weights[path]
    if group:
        groups.append(tuple(group))
    return tuple(groups)
