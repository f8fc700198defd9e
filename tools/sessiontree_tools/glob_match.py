"""File globs: ``*.md``, ``src/**/test_*``, ``*.{ts,tsx}``.

``*``, ``?`` and ``[…]`` match within one name, ``**`` any number of directories, ``{a,b}`` either. A
pattern without a slash matches a name at any depth; letters match in their own case.
"""

from __future__ import annotations

import re
from fnmatch import translate

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
            raise ValueError(f"glob {pattern!r} stands for more than {MAX_ALTERNATIVES} patterns")
    return done
