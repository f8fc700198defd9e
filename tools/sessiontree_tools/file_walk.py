"""The files below a directory in the order of their paths, the globs that select them, and lists of them.

Globs: ``*.md``, ``src/**/test_*``, ``*.{ts,tsx}``. ``*``, ``?`` and ``[…]`` match within one name, ``**``
matches any number of directories, ``{a,b}`` either. A pattern without a slash matches a name at any depth.
Letters match in their own case.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import translate

from sessiontree.contracts.errors import ToolError
from sessiontree.contracts.file_names import fold_name, is_foldable, name_note
from sessiontree.contracts.ports import Entry, Reader
from sessiontree.contracts.thread_calls import Stop, end_if

NOTE_CHARS = 400
"""Room kept for the notes at the end."""


def listing(lines: Iterable[str], notes: list[str], *, max_chars: int) -> str:
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


MAX_ALTERNATIVES = 64
ANY_DEPTH = "**"

_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")


class Glob:
    """A pattern over relative paths with ``/`` between parts.

    Contract: matching takes at most parts of the pattern times parts of the path; no pattern is slow.
    """

    __slots__ = ("_alternatives", "_names")

    def __init__(self, pattern: str) -> None:
        """Compile the pattern.

        Raises:
            ValueError: it is empty, absolute, leads upwards or stands for more than 64 patterns.
        """
        alternatives = [_parts(alternative) for alternative in _expanded(pattern)]
        self._names = frozenset(part for parts in alternatives for part in parts)
        self._alternatives = [
            [None if part == ANY_DEPTH else re.compile(translate(part)) for part in parts]
            for parts in alternatives
        ]

    def names(self, part: str) -> bool:
        """Whether the pattern holds this very name between its slashes."""
        return part in self._names

    def matches(self, path: str) -> bool:
        """Whether the whole path fits."""
        names = path.split("/")
        return any(_fits(parts, names) for parts in self._alternatives)


def path_test(pattern: str) -> Callable[[str], bool]:
    """Return whether a path fits a pattern as it is, or as both look: an accent may be a letter of its own.

    Raises:
        ValueError: as :class:`Glob` does.
    """
    glob, look = Glob(pattern), Glob(fold_name(pattern))
    return lambda path: glob.matches(path) or look.matches(fold_name(path))


def look_notes(reader: Reader, path: str) -> list[str]:
    """Return what to say of a path that leads to another name than its own: mostly nothing."""
    note = name_note(path, reader.stat(path).path) if is_foldable(path) else ""
    return [note] if note else []


def check_glob(pattern: str) -> str:
    """Return the pattern; for use as a parameter's validator.

    Raises:
        ValueError: as :class:`Glob` does.
    """
    Glob(pattern)
    return pattern


def _fits(parts: list[re.Pattern[str] | None], names: list[str]) -> bool:
    reached = _skipping(parts, {0})
    for name in names:
        following: set[int] = set()
        for at in reached:
            part = parts[at] if at < len(parts) else _NOTHING
            if part is None:
                following.add(at)
            elif part.match(name):
                following.add(at + 1)
        reached = _skipping(parts, following)
        if not reached:
            return False
    return len(parts) in reached


def _skipping(parts: list[re.Pattern[str] | None], reached: set[int]) -> set[int]:
    """Add the places that an any-depth part, matching no directory, leads on to."""
    for at in sorted(reached):
        while at < len(parts) and parts[at] is None:
            at += 1
            reached.add(at)
    return reached


_NOTHING = re.compile(r"(?!)")


def _parts(pattern: str) -> list[str]:
    if pattern.startswith("/"):
        raise ValueError(f"glob {pattern!r} is absolute; write it relative to `path`")
    parts = [part for part in pattern.split("/") if part not in {"", "."}]
    if not parts:
        raise ValueError("the glob is empty; use `*` for every file")
    if ".." in parts:
        raise ValueError(f"glob {pattern!r} leads upwards; set `path` instead")
    if "/" not in pattern:
        return [ANY_DEPTH, *parts] if parts != [ANY_DEPTH] else [ANY_DEPTH, "*"]
    # What ends in a directory, or in any depth, means the files below it and not a file of that name.
    if pattern.endswith("/") and parts[-1] != ANY_DEPTH:
        parts.append(ANY_DEPTH)
    return [*parts, "*"] if parts[-1] == ANY_DEPTH else parts


def _expanded(pattern: str) -> list[str]:
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        current = waiting.pop()
        braces = _BRACES.search(current)
        if braces is None:
            done.append(current)
        else:
            head, tail = current[: braces.start()], current[braces.end() :]
            waiting += [head + choice + tail for choice in braces[1].split(",")]
        if len(done) + len(waiting) > MAX_ALTERNATIVES:
            raise ValueError(f"glob {pattern!r} expands to more than {MAX_ALTERNATIVES} patterns")
    return done


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
        waiting = self._listed(path, "")
        while waiting:
            end_if(self._stop)
            self.is_cut_short = time.monotonic() > until
            if self.is_cut_short:
                return
            found = waiting.pop()
            if found.entry.type == "directory":
                if self._into_git or _name(found.below) != GIT_DIRECTORY:
                    waiting += self._inside(found)
            elif found.entry.type in {"file", "link"}:
                self.seen += 1
                yield found

    def _inside(self, directory: WalkedFile) -> list[WalkedFile]:
        try:
            return self._listed(directory.entry.path, directory.below + "/")
        except ToolError:
            self.unreadable += 1
            return []

    def _listed(self, path: str, prefix: str) -> list[WalkedFile]:
        """Return a directory's entries, last first."""
        listed = [WalkedFile(entry, prefix + _name(entry.path)) for entry in self._reader.list(path)]
        return sorted(listed, key=_order, reverse=True)


def shown_path(path: str) -> str:
    """Return the path on one line: control characters escaped, undecodable bytes as one replacement each."""
    whole = path.encode(errors="replace").decode()
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in whole)


def _order(found: WalkedFile) -> str:
    # With its slash, a directory sorts where the paths inside it do: "a.py" before "a/b".
    return found.below + "/" if found.entry.type == "directory" else found.below


def _name(path: str) -> str:
    return path.rpartition("/")[2]
