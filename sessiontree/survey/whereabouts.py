"""Whereabouts: which files and directories stand in a directory of the surveyed tree, looked up once each."""

from __future__ import annotations

from dataclasses import dataclass

from sessiontree.contracts.errors import ToolError
from sessiontree.contracts.ports import Reader
from sessiontree.survey.ignored import is_ignored_content, is_ignored_directory

MAX_READ_BYTES = 100_000
"""Most of a file that is read to learn where things stand."""


@dataclass(frozen=True, slots=True)
class Content:
    """Names in one directory."""

    files: frozenset[str] = frozenset()
    directories: frozenset[str] = frozenset()
    """Those that are surveyed."""


NOTHING = Content()


class Whereabouts:
    """Says what stands where, to one thread. What the survey leaves out, links too, does not stand anywhere.

    Args:
        reader: Lists the tree. What it refuses stands nowhere.
    """

    __slots__ = ("_contents", "_reader", "_texts")

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._contents: dict[str, Content] = {}
        self._texts: dict[str, str] = {}

    def at(self, directory: str) -> Content:
        """Return what a directory holds, nothing where it isn't part of the survey.

        Args:
            directory: Relative to the root, ``.`` for the root itself; may not exist.
        """
        known = self._contents.get(directory)
        if known is None:
            known = self._contents[directory] = self._look(directory)
        return known

    def text_of(self, path: str) -> str:
        """Return the beginning of a small file such as ``go.mod``, empty where it can't be read."""
        known = self._texts.get(path)
        if known is None:
            known = ""
            if name_of(path) in self.at(parent_of(path)).files:
                try:
                    with self._reader.open(path) as file:
                        known = file.read(MAX_READ_BYTES).decode("utf-8", "replace")
                except (ToolError, OSError):
                    known = ""
            self._texts[path] = known
        return known

    def _look(self, directory: str) -> Content:
        # only what its parent shows is asked for: names made from imports mostly lead nowhere
        if directory != "." and name_of(directory) not in self.at(parent_of(directory)).directories:
            return NOTHING
        try:
            entries = self._reader.list(directory)
        except (ToolError, OSError):
            return NOTHING
        types = {name_of(entry.path): entry.type for entry in entries}
        if directory != "." and is_ignored_content(types):
            return NOTHING
        return Content(
            frozenset(name for name, kind in types.items() if kind == "file"),
            frozenset(
                name
                for name, kind in types.items()
                if kind == "directory" and not is_ignored_directory(name, types)
            ),
        )


def name_of(path: str) -> str:
    """Return the last part of a path."""
    return path.rpartition("/")[2]


def parent_of(path: str) -> str:
    """Return the directory a path stands in, ``.`` for one in the root itself."""
    return path.rpartition("/")[0] or "."


def joined(directory: str, name: str) -> str:
    """Return the path of a name in a directory."""
    return name if directory == "." else f"{directory}/{name}"


def ancestors_of(directory: str) -> list[str]:
    """Return a directory and all around it, the root last."""
    found = [directory]
    while found[-1] != ".":
        found.append(parent_of(found[-1]))
    return found


def from_here(directory: str, path: str) -> str | None:
    """Return where a relative path leads from a directory, None when out of the tree.

    Args:
        directory: Where it is said.
        path: Parts with ``/`` between them, ``.`` and ``..`` among them.
    """
    parts = [] if directory == "." else directory.split("/")
    for part in path.split("/"):
        if part == "..":
            if not parts:
                return None
            parts.pop()
        elif part not in {"", "."}:
            parts.append(part)
    return "/".join(parts) or "."
