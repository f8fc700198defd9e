"""Scan: which files below a root are to be surveyed.

Directories are listed one by one instead of walked as a whole, so that ignored ones are never entered and one
that cannot be read costs itself alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sessiontree.contracts.errors import ToolError
from sessiontree.contracts.ports import Entry, Reader
from sessiontree.survey.finding import Problem
from sessiontree.survey.ignored import REPORT_NAME, is_ignored_content, is_ignored_directory
from sessiontree.survey.plan import SurveyFile
from sessiontree.survey.source import printable_path


@dataclass(frozen=True, slots=True)
class Scan:
    """What stands below a root."""

    files: tuple[SurveyFile, ...]
    """Regular files to survey, by path."""
    ignored: int
    """Directories and links left out on purpose; what ignored directories hold is not counted."""
    problems: tuple[Problem, ...]
    """What cannot be surveyed: unreadable directories, pipes, devices, names that are no UTF-8."""


def scan(reader: Reader, root: str = ".") -> Scan:
    """Return the files below a directory, those of ``ignored.py`` and links left out.

    Raises:
        ToolError: the root itself cannot be listed.

    Contract: blocks; call it from a thread. Depth is bounded by the file system alone.
    """
    listing = _Listing(reader)
    waiting = [(root, reader.list(root))]
    while waiting:
        directory, entries = waiting.pop()
        for inner in listing.sort(entries, is_root=directory == root):
            listed = listing.enter(inner)
            if listed is not None:
                waiting.append((inner, listed))
    return Scan(
        tuple(sorted(listing.files, key=lambda file: file.path)),
        listing.ignored,
        tuple(sorted(listing.problems, key=lambda problem: (problem.path, problem.text))),
    )


class _Listing:
    """What was found so far."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.files: list[SurveyFile] = []
        self.problems: list[Problem] = []
        self.ignored = 0

    def sort(self, entries: list[Entry], *, is_root: bool) -> Iterator[str]:
        """Keep files, count and name what is left out, and yield the directories to enter."""
        names = {entry.path.rpartition("/")[2] for entry in entries}
        for entry in entries:
            name = entry.path.rpartition("/")[2]
            if entry.type == "link" or (is_root and name == REPORT_NAME):
                self.ignored += 1
            elif entry.type == "directory":
                if is_ignored_directory(name, names):
                    self.ignored += 1
                else:
                    yield entry.path
            elif entry.type == "other":
                self._problem(entry.path, "no regular file")
            elif printable_path(entry.path) != entry.path:
                self._problem(entry.path, "its name is no UTF-8")
            else:
                self.files.append(SurveyFile(entry.path, entry.size))

    def enter(self, directory: str) -> list[Entry] | None:
        """Return a directory's entries, None when it is left out."""
        try:
            entries = self.reader.list(directory)
        except (ToolError, OSError) as error:
            self._problem(directory, f"can't be listed: {error}")
            return None
        if is_ignored_content({entry.path.rpartition("/")[2] for entry in entries}):
            self.ignored += 1
            return None
        return entries

    def _problem(self, path: str, text: str) -> None:
        self.problems.append(Problem(path=printable_path(path), text=printable_path(text)))
