r"""The one language of globs: of rules over arguments, of lists of tools, and of paths.

``*`` is any characters and ``?`` any one. ``[abc]`` is one of these, ``[!abc]`` and ``[^abc]`` any other
one. Brackets may hold ranges (``[a-z]``) and the POSIX classes (``[[:lower:]]``, ASCII alone). ``\`` takes
the next character as it is, inside brackets too. A ``[`` that nothing closes is itself, and letters match in
their own case.
In a path, a wildcard stays within one name, ``**`` is any number of directories, and ``{a,b}`` is either.
A ``!`` at the beginning is refused: many readers would take it for the opposite of what follows.

Contract: no pattern is slow. Matching takes at most the length of the pattern times that of the text.
Source: POSIX.1-2024, "Pattern Matching Notation"; gitignore(5).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Final, TypeAlias

from sessiontree.contracts.values.quick_dataclass import dataclass

WILD: Final = frozenset("*?[\\")
"""The characters that make a text a glob."""
_CLASSES: Final = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "blank": r" \t",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": r"\x21-\x7e",
    "lower": "a-z",
    "print": r"\x20-\x7e",
    "punct": r"\x21-\x2f\x3a-\x40\x5b-\x60\x7b-\x7e",
    "space": r" \t\n\r\f\v",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}
_NAMED = re.compile(r"\[:([^\]:]*):\]")
_NOTHING: Final = "(?!)"


@dataclass(frozen=True, slots=True)
class Piece:
    """One part of a glob."""

    kind: str
    """``text``, ``any``, ``one`` or ``class``."""
    written: str
    """As in the pattern."""
    means: str
    """The text itself, or a regular expression for one character; empty for ``any``."""


def split_glob(pattern: str) -> Iterator[Piece]:
    r"""Yield the parts of a glob in order.

    Raises:
        ValueError: it ends in a ``\``, or names a class that does not exist.
    """
    at = 0
    while at < len(pattern):
        sign = pattern[at]
        if sign == "*":
            yield Piece("any", "*", "")
        elif sign == "?":
            yield Piece("one", "?", ".")
        elif sign == "\\":
            if at + 1 == len(pattern):
                raise ValueError(f"glob {pattern!r} ends in a backslash, which escapes nothing; write two")
            yield Piece("text", pattern[at : at + 2], pattern[at + 1])
            at += 1
        elif sign == "[" and (end := _end_of_brackets(pattern, at)):
            yield Piece("class", pattern[at:end], _translate_brackets(pattern, at, end))
            at = end - 1
        else:
            yield Piece("text", sign, sign)
        at += 1


def _end_of_brackets(pattern: str, begin: int) -> int:
    """Return the place behind the bracket that closes; 0 if none does."""
    at = begin + 1
    if pattern[at : at + 1] in {"!", "^"}:
        at += 1
    first = at
    while at < len(pattern):
        named = _NAMED.match(pattern, at)
        if named is not None:
            at = named.end()
        elif pattern[at] == "\\":
            at += 2
        # A bracket at the very beginning is a member.
        elif pattern[at] == "]" and at > first:
            return at + 1
        else:
            at += 1
    return 0


def _translate_brackets(pattern: str, begin: int, end: int) -> str:
    """Return a regular expression for what brackets mean."""
    inside = pattern[begin + 1 : end - 1]
    is_other = inside[:1] in {"!", "^"}
    inside = inside[is_other:]
    members: list[str] = []
    at = 0
    while at < len(inside):
        named = _NAMED.match(inside, at)
        if named is not None:
            if named[1] not in _CLASSES:
                raise ValueError(
                    f"glob {pattern!r}: no class is [:{named[1]}:]; choose one of {', '.join(_CLASSES)}"
                )
            members.append(_CLASSES[named[1]])
            at = named.end()
            continue
        low, at = _read_member(inside, at)
        if inside[at : at + 1] == "-" and at + 1 < len(inside):
            high, at = _read_member(inside, at + 1)
            if low <= high:  # else the range holds nothing
                members.append(f"{re.escape(low)}-{re.escape(high)}")
        else:
            members.append(re.escape(low))
    if not members:
        return "." if is_other else _NOTHING
    return f"[{'^' * is_other}{''.join(members)}]"


def _read_member(inside: str, at: int) -> tuple[str, int]:
    """Return the character at a place inside brackets, and the place behind it."""
    if inside[at] == "\\" and at + 1 < len(inside):
        return inside[at + 1], at + 2
    return inside[at], at + 1


class Glob:
    """A pattern over a whole text: a name, or a value in arguments. ``*`` also takes ``/``.

    Args:
        pattern: As the module says.

    Raises:
        ValueError: it begins with ``!``, ends in a backslash, or names a class that does not exist.
    """

    __slots__ = ("_first", "_last", "_middle", "can_fit")

    def __init__(self, pattern: str) -> None:
        refuse_negation(pattern)
        chunks: list[list[Piece]] = [[]]
        for piece in split_glob(pattern):
            if piece.kind == "any":
                chunks.append([])
            else:
                chunks[-1].append(piece)
        self.can_fit = all(piece.means != _NOTHING for chunk in chunks for piece in chunk)
        """Whether there is a text that fits; ``[z-a]`` holds no character."""
        self._first = _Chunk(chunks[0])
        self._last = _Chunk(chunks[-1]) if len(chunks) > 1 else None
        self._middle = [_Chunk(chunk) for chunk in chunks[1:-1] if chunk]

    def fits(self, text: str) -> bool:
        """Whether the whole text fits."""
        first, last = self._first, self._last
        if last is None:
            return len(text) == first.width and first.is_at(text, 0)
        at, end = first.width, len(text) - last.width
        if at > end or not first.is_at(text, 0) or not last.is_at(text, end):
            return False
        # A chunk has one length, so its leftmost place leaves the most for the chunks behind it.
        for chunk in self._middle:
            at = chunk.end_of_first(text, at, end)
            if at < 0:
                return False
        return True


class _Chunk:
    """What is between two stars: a text, or an expression of fixed length without repetition."""

    __slots__ = ("_expression", "_text", "width")

    def __init__(self, pieces: list[Piece]) -> None:
        self.width = len(pieces)
        self._text = "".join(piece.means for piece in pieces)
        self._expression: re.Pattern[str] | None = None
        if any(piece.kind != "text" for piece in pieces):
            parts = (re.escape(piece.means) if piece.kind == "text" else piece.means for piece in pieces)
            self._expression = re.compile("".join(parts), re.DOTALL)

    def is_at(self, text: str, place: int) -> bool:
        """Whether it is at one place of a text that is long enough."""
        if self._expression is None:
            return text.startswith(self._text, place)
        return self._expression.match(text, place) is not None

    def end_of_first(self, text: str, at: int, end: int) -> int:
        """Return the place behind its first occurrence between two places, or -1."""
        if self._expression is None:
            place = text.find(self._text, at, end)
            return -1 if place < 0 else place + self.width
        found = self._expression.search(text, at, end)
        return -1 if found is None else found.end()


def refuse_negation(pattern: str) -> None:
    """Refuse a ``!`` at the beginning.

    Raises:
        ValueError: the pattern begins with it.
    """
    if pattern.startswith("!"):
        raise ValueError(
            f"glob {pattern!r}: a ! at the beginning does not turn a glob into its opposite; "
            "write \\! for the character itself, or [!…] for one other character"
        )


_CACHED: Final = 512


@lru_cache(maxsize=_CACHED)
def compile_glob(pattern: str) -> Glob:
    """Return the compiled glob of a pattern; the same object while it is cached.

    Raises:
        ValueError: as :class:`Glob`.
    """
    return Glob(pattern)


MAX_ALTERNATIVES: Final = 64
"""Most patterns that the braces of one may stand for."""
ANY_DEPTH: Final = "**"
_Part: TypeAlias = "tuple[str, Glob] | None"
"""One name of a path as it is written, and its glob; None = any number of directories."""


class PathGlob:
    """A pattern over relative paths with ``/`` between names; without a slash, a name at any depth.

    A name that is written exactly as in the pattern fits too, so that ``app/[id]/page.tsx`` finds that file.

    Args:
        pattern: As the module says.

    Raises:
        ValueError: as :class:`Glob`; or it is empty, absolute, leads upwards, or stands for more than 64
            patterns.
    """

    __slots__ = ("_alternatives", "_pattern")

    def __init__(self, pattern: str) -> None:
        refuse_negation(pattern)
        self._pattern = pattern
        self._alternatives: list[list[_Part]] = [
            [None if name == ANY_DEPTH else (name, compile_glob(_escape_negation(name))) for name in names]
            for names in map(_split_names, _expand(pattern))
        ]

    def holds(self, name: str) -> bool:
        """Whether the pattern holds this very name between its slashes."""
        return any(
            part is not None and _is_said(part[0], name) for parts in self._alternatives for part in parts
        )

    def fits(self, path: str) -> bool:
        """Whether the whole path fits."""
        names = path.split("/")
        if self._pattern in {path, names[-1]}:
            return True
        return any(_is_match(parts, names) for parts in self._alternatives)


def _is_said(written: str, name: str) -> bool:
    return written == name or (
        all(piece.kind == "text" for piece in split_glob(written))
        and "".join(piece.means for piece in split_glob(written)) == name
    )


def _escape_negation(name: str) -> str:
    # Only at the beginning of the whole pattern may a ``!`` be meant as "not".
    return "\\" + name if name.startswith("!") else name


def _is_match(parts: list[_Part], names: list[str]) -> bool:
    # All places at once: trying one after the other would take exponential time with several `**`.
    reached = _skip_any_depth(parts, {0})
    for name in names:
        following: set[int] = set()
        for at in reached:
            if at == len(parts):
                continue
            part = parts[at]
            if part is None:
                following.add(at)
            elif part[0] == name or part[1].fits(name):
                following.add(at + 1)
        reached = _skip_any_depth(parts, following)
        if not reached:
            return False
    return len(parts) in reached


def _skip_any_depth(parts: list[_Part], reached: set[int]) -> set[int]:
    """Add the places that an any-depth part, matching no directory, leads on to."""
    for at in sorted(reached):
        while at < len(parts) and parts[at] is None:
            at += 1
            reached.add(at)
    return reached


def _split_names(pattern: str) -> list[str]:
    if pattern.startswith("/"):
        raise ValueError(f"glob {pattern!r} is absolute; write it relative to `path`")
    # A slash divides names inside brackets too, as in a shell, and behind a backslash.
    *above, last = pattern.split("/")
    names = [name for name in [*map(_remove_lone_backslash, above), last] if name not in {"", "."}]
    if not names:
        raise ValueError("the glob is empty; use `*` for every file")
    if ".." in names:
        raise ValueError(f"glob {pattern!r} leads upwards; set `path` instead")
    if "/" not in pattern:
        return [ANY_DEPTH, *names] if names != [ANY_DEPTH] else [ANY_DEPTH, "*"]
    # What ends in a directory, or in any depth, means the files below it and not a file of that name.
    if pattern.endswith("/") and names[-1] != ANY_DEPTH:
        names.append(ANY_DEPTH)
    return [*names, "*"] if names[-1] == ANY_DEPTH else names


def _remove_lone_backslash(name: str) -> str:
    # An odd one would escape the slash, which divides names all the same.
    backslashes = len(name) - len(name.rstrip("\\"))
    return name[:-1] if backslashes % 2 else name


def _expand(pattern: str) -> list[str]:
    """Return the patterns that the braces of one stand for."""
    done: list[str] = []
    waiting = [[piece.written for piece in split_glob(pattern)]]
    while waiting:
        signs = waiting.pop()
        braces = _find_innermost_braces(signs)
        if braces is None:
            done.append("".join(signs))
        else:
            begin, *commas, end = braces
            for low, high in pairwise([begin, *commas, end]):
                waiting.append([*signs[:begin], *signs[low + 1 : high], *signs[end + 1 :]])
        # Counted while it grows, because braces multiply.
        if len(done) + len(waiting) > MAX_ALTERNATIVES:
            raise ValueError(f"glob {pattern!r} expands to more than {MAX_ALTERNATIVES} patterns")
    return done


def _find_innermost_braces(signs: list[str]) -> list[int] | None:
    """Return the places of a brace, its commas and its end, if one has commas and no braces inside."""
    places: list[int] = []
    for at, sign in enumerate(signs):
        if sign == "{":
            places = [at]
        elif sign == "," and places:
            places.append(at)
        elif sign == "}":
            if len(places) > 1:
                return [*places, at]
            places = []
    return None
