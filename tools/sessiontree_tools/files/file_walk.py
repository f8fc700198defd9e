"""The files below a directory in the order of their paths, and lists of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

from sessiontree.contracts.errors import ToolError
from sessiontree.contracts.handles.ports import Entry, Reader
from sessiontree.contracts.tools.thread_calls import Stop, end_if
from sessiontree.contracts.values.file_names import fold_name, is_foldable, name_note
from sessiontree.contracts.values.glob import PathGlob
from sessiontree.contracts.values.quick_dataclass import dataclass

NOTE_CHARS = 400
"""Room kept for the notes at the end."""


def format_listing(lines: Iterable[str], notes: list[str], *, max_chars: int) -> str:
    """Return the lines, then each note in brackets; whole lines are left out where they do not fit.

    Args:
        lines: In order; consumed only as far as they are shown, and one further.
        notes: What the reader should know; always shown.
        max_chars: Longest answer. Room for notes is taken from it, but at least half remains for lines.
    """
    room = max(max_chars // 2, max_chars - NOTE_CHARS)
    kept: list[str] = []
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            notes = ["more did not fit into one answer; narrow the search", *notes]
            break
        kept.append(line)
    return "\n".join(kept + [f"[{note}]" for note in notes])


def make_path_test(pattern: str) -> Callable[[str], bool]:
    """Return whether a path fits a pattern as it is, or as both look: an accent may be a letter of its own.

    Raises:
        ValueError: as :class:`PathGlob` does.
    """
    glob, look = PathGlob(pattern), PathGlob(fold_name(pattern))
    return lambda path: glob.fits(path) or look.fits(fold_name(path))


def look_notes(reader: Reader, path: str) -> list[str]:
    """Return what to say of a path that leads to another name than its own: mostly nothing."""
    note = name_note(path, reader.stat(path).path) if is_foldable(path) else ""
    return [note] if note else []


def check_glob(pattern: str) -> str:
    """Return the pattern; for use as a parameter's validator.

    Raises:
        ValueError: as :class:`~sessiontree.contracts.values.glob.PathGlob` does.
    """
    PathGlob(pattern)
    return pattern


GIT_DIRECTORY = ".git"
MAX_S = 10.0
"""How long a walk goes on, with what is done to each file: a host has other sessions."""


@dataclass(frozen=True, slots=True)
class WalkedFile:
    """One file or link below the directory that was walked."""

    entry: Entry
    below: str
    """Its path relative to that directory."""


class Walk:
    """A walk over files and links; links are not entered, nor is the inside of ``.git`` unless asked for.

    Directories that cannot be listed are left out and counted. What takes longer than ``most_s`` is left.
    """

    __slots__ = ("_into_git", "_most_s", "_reader", "_stop", "is_cut_short", "seen", "unreadable")

    def __init__(self, reader: Reader, stop: Stop, *, into_git: bool = False, most_s: float = MAX_S) -> None:
        """Keep what is walked with; ``unreadable`` counts directories left out, ``seen`` files."""
        self._reader = reader
        self._stop = stop
        self._into_git = into_git
        self._most_s = most_s
        self.unreadable = self.seen = 0
        self.is_cut_short = False
        """Whether there was more than there was time for."""

    def note(self, advice: str) -> list[str]:
        """Return what is to be said of a walk that was cut short: nothing where it was not."""
        if not self.is_cut_short:
            return []
        return [f"stopped after {self._most_s:g} s and {self.seen:,} files, there are more; {advice}"]

    def files(self, path: str) -> Iterator[WalkedFile]:
        """Yield what is below a directory, sorted by path as text.

        Raises:
            ToolError: the directory itself cannot be listed, or the work was stopped.
        """
        until = time.monotonic() + self._most_s
        waiting = self._list_entries(path, "")
        while waiting:
            end_if(self._stop)
            # The time of whoever takes the files counts, too: a generator stops while its reader works.
            self.is_cut_short = time.monotonic() > until
            if self.is_cut_short:
                return
            found = waiting.pop()
            if found.entry.type == "directory":
                if self._into_git or _name(found.below) != GIT_DIRECTORY:
                    waiting += self._list_inside(found)
            elif found.entry.type in {"file", "link"}:
                self.seen += 1
                yield found

    def _list_inside(self, directory: WalkedFile) -> list[WalkedFile]:
        try:
            return self._list_entries(directory.entry.path, directory.below + "/")
        except ToolError:
            self.unreadable += 1
            return []

    def _list_entries(self, path: str, prefix: str) -> list[WalkedFile]:
        """Return a directory's entries, last first."""
        listed = [WalkedFile(entry, prefix + _name(entry.path)) for entry in self._reader.list(path)]
        return sorted(listed, key=_order, reverse=True)


def escape_path(path: str) -> str:
    """Return the path on one line: control characters escaped, undecodable bytes as one replacement each."""
    whole = path.encode(errors="replace").decode()
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in whole)


def _order(found: WalkedFile) -> str:
    # With its slash, a directory sorts where the paths inside it do: "a.py" before "a/b".
    return found.below + "/" if found.entry.type == "directory" else found.below


def _name(path: str) -> str:
    return path.rpartition("/")[2]
