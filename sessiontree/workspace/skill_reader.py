"""Reading the workspace and, in a place of their own, the skills that a session holds."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.handles.ports import Entry, Reader
from sessiontree.contracts.settings.settings import suggest_names
from sessiontree.contracts.tools.skills import PLACE, Skill
from sessiontree.workspace.reader import WorkspaceReader
from sessiontree.workspace.root import make_failure


class SkillReader:
    """Reads ``/skills/<name>/…`` in the folders of skills and everything else in the workspace.

    It implements :class:`~sessiontree.contracts.handles.ports.Reader`. Links in a skill must stay in its
    folder.

    Args:
        files: Reads the workspace.
        skills: The skills that the session holds, by name.
        hidden: Absolute paths that are refused.
    """

    __slots__ = ("_files", "_hidden", "_opened", "_skills")

    def __init__(self, files: Reader, skills: Mapping[str, Skill], hidden: Sequence[Path] = ()) -> None:
        self._files = files
        self._skills = skills
        self._hidden = tuple(hidden)
        self._opened: dict[str, WorkspaceReader] = {}
        """Readers of the skills that were read, because most sessions read none."""

    def open(self, path: str) -> BinaryIO:
        """Open a regular file for reading bytes; raises as :class:`WorkspaceReader` does."""
        reader, _, inner = self._locate("read", path)
        return reader.open(inner)

    def stat(self, path: str) -> Entry:
        """Return the entry at a path; raises as :meth:`open`."""
        if _normalise_path(path) == PLACE:
            return Entry(PLACE, "directory", 0, 0)
        reader, place, inner = self._locate("look at", path)
        return _set_path(reader.stat(inner), place)

    def list(self, path: str = ".") -> list[Entry]:
        """Return a directory's entries, sorted by name; raises as :meth:`open`."""
        if _normalise_path(path) == PLACE:
            return [self.stat(self._skills[name].place) for name in sorted(self._skills)]
        reader, place, inner = self._locate("list", path)
        return [_set_path(entry, place) for entry in reader.list(inner)]

    def walk(self, path: str = ".") -> Iterator[Entry]:
        """Yield files and links below a directory; raises as :meth:`open`."""
        if _normalise_path(path) == PLACE:
            for name in sorted(self._skills):
                yield from self.walk(self._skills[name].place)
            return
        reader, place, inner = self._locate("walk", path)
        for entry in reader.walk(inner):
            yield _set_path(entry, place)

    def _locate(self, verb: str, path: str) -> tuple[Reader, str, str]:
        """Return who reads a path, the place of its root (empty = the workspace), and the path below it."""
        normal = _normalise_path(path)
        if not normal.startswith(f"{PLACE}/"):
            return self._files, "", path
        name, _, inner = normal.removeprefix(f"{PLACE}/").partition("/")
        skill = self._skills.get(name)
        if skill is None:
            raise make_failure(verb, path, f"no skill is named {name!r}; {suggest_names(name, self._skills)}")
        reader = self._opened.get(name)
        if reader is None:
            try:
                reader = WorkspaceReader(Path(skill.folder), hidden=self._hidden)
            except ConfigError as error:
                raise make_failure(verb, path, f"the skill's folder can't be read: {error}") from error
            self._opened[name] = reader
        return reader, skill.place, inner or "."


def _normalise_path(path: str) -> str:
    """Return an absolute path without ``.`` and ``..``; empty if it is relative."""
    return posixpath.normpath(path) if path.startswith("/") else ""


def _set_path(entry: Entry, place: str) -> Entry:
    """Return an entry with the path by which the session reads it."""
    if not place:
        return entry
    return replace(entry, path=place if entry.path == "." else f"{place}/{entry.path}")
