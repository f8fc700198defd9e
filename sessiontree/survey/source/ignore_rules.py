"""The patterns of a ``.gitignore`` file, matched without backtracking.

Whatever a checkout holds, the time to compare a pattern and a path grows with their lengths alone: after each
star the leftmost place is taken where the text up to the next star fits, and it is never taken back. A file
of patterns that takes too long all the same is given up.

Source: gitignore(5), Git's ``wildmatch.c`` and ``dir.c``.
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from typing import Final

from sessiontree import ExecutionError

LIMIT_S: Final = 5.0
"""Longest time for the patterns of one file, over the whole walk."""
MAX_PATTERN_CHARS: Final = 8_192
"""A longer pattern fits no path that the system can open."""
_SPECIAL = re.compile(r"[*?\[\\]")
_CLASSES: Final = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "blank": " \\t",
    "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": "!-/:-@\\[-`{-~",
    "space": " \\t\\n\\r\\f\\v",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}
_NAMED = re.compile(r"\[:([^\]]*):\]")
_STARS = re.compile(r"\*+")
_NEVER: Final = "(?!)"


@dataclass(frozen=True, slots=True)
class _Pattern:
    """One line."""

    text: str
    """Without its marks."""
    is_negated: bool
    is_of_directories: bool
    is_of_names: bool
    """Whether it has no slash, and so fits the last name of a path at any depth."""


class IgnoreRules:
    """One ``.gitignore`` file.

    Args:
        directory: Where it is, relative to the root; empty for the root.
        data: Its bytes.
        limit_s: Longest time for its patterns.
    """

    __slots__ = ("_exact", "_globs", "_left_s", "_limit_s", "_matchers", "_patterns", "directory")

    def __init__(self, directory: str, data: bytes, *, limit_s: float = LIMIT_S) -> None:
        self.directory = directory
        self._limit_s = self._left_s = limit_s
        self._patterns: list[_Pattern] = []
        self._exact: dict[str, list[int]] = {}
        """Patterns that are a plain name, by this name; most are."""
        self._globs: list[int] = []
        self._matchers: dict[int, re.Pattern[str]] = {}
        # Git compares bytes: in Latin-1 each byte is a letter of its own.
        for line in data.removeprefix(b"\xef\xbb\xbf").decode("latin-1").split("\n"):
            pattern = _parse_pattern(line.removesuffix("\r"))
            if pattern is None:
                continue
            if pattern.is_of_names and not _SPECIAL.search(pattern.text):
                self._exact.setdefault(pattern.text, []).append(len(self._patterns))
            else:
                self._globs.append(len(self._patterns))
            self._patterns.append(pattern)

    def judge(self, path: str) -> bool | None:
        """Return whether a path is left out; None where no pattern says anything of it.

        Args:
            path: Relative to the root; a directory ends with ``/``.

        Raises:
            ExecutionError: the patterns have taken too long by now.
        """
        # Once given up they stay silent: the problem is reported once, and not for every path.
        if self._left_s <= 0:
            return None
        began = time.monotonic()
        inside = os.fsencode(path[len(self.directory) + 1 :] if self.directory else path).decode("latin-1")
        found = self._find_last_fitting(inside.rstrip("/"), is_directory=inside.endswith("/"))
        self._left_s -= time.monotonic() - began
        if self._left_s <= 0:
            raise ExecutionError(f"given up: comparing them with paths took longer than {self._limit_s:g} s")
        return None if found is None else not self._patterns[found].is_negated

    def _find_last_fitting(self, path: str, *, is_directory: bool) -> int | None:
        name = path.rpartition("/")[2]
        best = next(
            (at for at in reversed(self._exact.get(name, ())) if self._can_apply(at, is_directory)), -1
        )
        until = time.monotonic() + self._left_s
        for at in reversed(self._globs):
            # The last pattern that fits decides, so patterns before a plain name that fits need no look.
            if at < best or time.monotonic() > until:
                break
            pattern = self._patterns[at]
            if self._can_apply(at, is_directory) and self._get_matcher(at).match(
                name if pattern.is_of_names else path
            ):
                return at
        return best if best >= 0 else None

    def _can_apply(self, at: int, is_directory: bool) -> bool:
        return is_directory or not self._patterns[at].is_of_directories

    def _get_matcher(self, at: int) -> re.Pattern[str]:
        found = self._matchers.get(at)
        if found is None:
            found = self._matchers[at] = re.compile(translate_glob(self._patterns[at].text), re.DOTALL)
        return found


def _parse_pattern(line: str) -> _Pattern | None:
    """Return what a line says; None for a comment and for what fits nothing."""
    if line.startswith("#"):
        return None
    line = _strip_spaces(line)
    is_negated = line.startswith("!")
    line = line[is_negated:]
    is_of_directories = line.endswith("/")
    line = line[: len(line) - is_of_directories]
    is_of_names = "/" not in line
    text = line.removeprefix("/")
    if not text or len(text) > MAX_PATTERN_CHARS:
        return None
    return _Pattern(text, is_negated, is_of_directories, is_of_names)


def _strip_spaces(line: str) -> str:
    """Return a line without the spaces at its end; one behind a backslash stays."""
    bare = line.rstrip(" ")
    if len(bare) < len(line) and (len(bare) - len(bare.rstrip("\\"))) % 2:
        return bare + " "
    return bare


def translate_glob(pattern: str) -> str:
    r"""Return an expression that fits whole paths as Git's pattern does, and never backtracks far.

    ``**`` between slashes stands for any directories, another star for any part of a name. What comes between
    two stars stands for a fixed number of letters, and what comes between two ``**`` for a fixed number of
    names. So the leftmost place where it fits leaves the most room to the rest, and no other place need ever
    be tried: the groups are atomic.
    """
    # Git compares the plain text at the head by itself, so that the stars behind it begin a pattern.
    special = _SPECIAL.search(pattern)
    plain = special.start() if special is not None and "/" in pattern else 0
    runs: list[list[str]] = [[]]
    at = 0
    while at < len(pattern):
        if pattern[at] != "*":
            piece, at = _translate_letter(pattern, at)
            if piece == _NEVER:
                return _NEVER
            runs[-1].append(piece)
            continue
        stars = _STARS.match(pattern, at)
        end = at if stars is None else stars.end()
        is_alone = end - at >= 2 and (at in {0, plain} or pattern[at - 1] == "/")
        if is_alone and pattern[end : end + 1] == "/":
            runs.append([])
            end += 1
        else:
            runs[-1].append(".*" if is_alone and end == len(pattern) else "*")
        at = end
    first, *others = runs
    parts = [_run_expression(first)]
    for number, run in enumerate(others, 1):
        skipped = "(?:[^/]*/)*?"
        is_last = number == len(others)
        parts.append(skipped + _run_expression(run) if is_last else f"(?>{skipped}{_run_expression(run)})")
    return "".join(parts) + r"\Z"


def _translate_letter(pattern: str, at: int) -> tuple[str, int]:
    """Return the expression of what fits one letter, and where the pattern goes on."""
    match pattern[at]:
        case "?":
            return "[^/]", at + 1
        case "[":
            return _translate_class(pattern, at + 1)
        case "\\":
            return (re.escape(pattern[at + 1]) if at + 1 < len(pattern) else _NEVER), at + 2
        case letter:
            return re.escape(letter), at + 1


def _run_expression(pieces: list[str]) -> str:
    """Return the expression of what has no ``**`` within; its stars stay within one name."""
    done: list[str] = []
    text: list[str] = []
    is_starred = False
    for piece in (*pieces, None):
        if piece is not None and piece not in {"*", "/"}:
            text.append(piece)
            continue
        chunk = "".join(text)
        text.clear()
        if not is_starred:
            done.append(chunk)
        elif piece == "*":
            done.append(f"(?>[^/]*?{chunk})")
        else:
            # The last one of a name: its end decides.
            done.append(f"[^/]*{chunk}")
        is_starred = piece == "*"
        if piece == "/":
            done.append("/")
    return "".join(done)


def _translate_class(pattern: str, at: int) -> tuple[str, int]:
    """Return the expression of the class whose inside begins at ``at``, and where the pattern goes on."""
    is_negated = pattern[at : at + 1] in {"!", "^"}
    start = at = at + is_negated
    members: list[str] = []
    before = ""  # the letter that a range may begin with
    while at < len(pattern) and (pattern[at] != "]" or at == start):
        named = _NAMED.match(pattern, at)
        if named is not None:
            if named[1] not in _CLASSES:
                return _NEVER, at
            members.append(_CLASSES[named[1]])
            before, at = "", named.end()
        elif pattern[at] == "-" and before and pattern[at + 1 : at + 2] not in {"", "]"}:
            letter, at = _parse_class_letter(pattern, at + 1)
            if letter and before <= letter:
                members.append(f"{_escape_letter(before)}-{_escape_letter(letter)}")
            before = ""
        else:
            before, at = _parse_class_letter(pattern, at)
            members.append(_escape_letter(before) if before else "")
    if at >= len(pattern):
        return _NEVER, at
    body = "".join(members)
    if is_negated:
        return f"[^/{body}]", at + 1
    return (f"(?!/)[{body}]" if body else _NEVER), at + 1


def _parse_class_letter(pattern: str, at: int) -> tuple[str, int]:
    """Return a letter of a class, and where the pattern goes on; empty at its end."""
    at += pattern[at] == "\\"
    return pattern[at : at + 1], at + 1


def _escape_letter(letter: str) -> str:
    return f"\\x{ord(letter):02x}"
