"""Replacing one passage of a text, found exactly or, failing that, by its folded form.

Not here: files and their bytes (edit.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from sessiontree.contracts.errors import ExecutionError
from sessiontree_tools.unicode_fold import fold, line_ends_at

BYTE_ORDER_MARK = "\ufeff"
MAX_COUNTED = 1000
"""Matches looked at before counting stops."""
MAX_LISTED = 10
"""Matches whose lines an error names."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """What becomes of ``before``: the characters ``start:end`` give way to ``new``."""

    before: str
    start: int
    end: int
    new: str
    """The new passage with the text's own line ends."""
    tolerant: bool
    """Whether only the folded form was found."""

    @property
    def after(self) -> str:
        """The whole text afterwards."""
        return self.before[: self.start] + self.new + self.before[self.end :]

    @property
    def line(self) -> int:
        """Line the passage starts in, from 1."""
        return _line_of(self.before, self.start)


def replace_once(text: str, old: str, new: str) -> Replacement:
    """Find the one passage that ``old`` names and say what replaces it.

    Args:
        text: The whole text; a byte-order mark at its head stays whatever ``old`` and ``new`` hold.
        old: The passage, not empty. Taken literally first; where that is found nowhere, folded.
        new: Its replacement; line ends become those of the passage, or where it has none, of the text.

    Raises:
        ExecutionError: found nowhere, found more than once (also where matches overlap), or no change.

    Contract: pure; everything outside the passage stays as it is.
    """
    exact = _only(text, _exact(text, old))
    start, end = (exact, exact + len(old)) if exact is not None else _tolerant(text, old)
    if start == 0 and text.startswith(BYTE_ORDER_MARK):
        start = 1
        new = new.removeprefix(BYTE_ORDER_MARK)
    new = _with_line_ends(new, _line_end(text[start:end]) or _line_end(text))
    if new == text[start:end]:
        raise ExecutionError("new_text is what stands there already; nothing was changed")
    return Replacement(text, start, end, new, exact is None)


def _exact(text: str, old: str) -> Iterator[int]:
    for start in _starts(text, old):
        # A match that begins or ends between CR and LF would tear a line end apart.
        if not (_splits_line_end(text, start) or _splits_line_end(text, start + len(old))):
            yield start


def _tolerant(text: str, old: str) -> tuple[int, int]:
    folded, wanted = fold(text), fold(old).text
    # Spaces that end old_text may be some inside a line, or stand for those, if any, that end one.
    bare = wanted.rstrip(" \t\r")
    inside = set(islice(_starts(folded.text, wanted), MAX_COUNTED))
    ending = set(islice(_line_endings(folded.text, bare), MAX_COUNTED)) if bare not in {"", wanted} else set()
    start = _only(folded.text, iter(sorted(inside | ending)))
    if start is None:
        raise ExecutionError(
            "old_text was not found, not even with quotes, dashes and spaces treated alike; "
            "read the file again and copy the passage"
        )
    if start not in ending:
        return folded.origin(start, start + len(wanted))
    first, last = folded.origin(start, start + len(bare))
    return first, folded.past_spaces(last)


def _line_endings(text: str, wanted: str) -> Iterator[int]:
    return (start for start in _starts(text, wanted) if line_ends_at(text, start + len(wanted)))


def _only(text: str, starts: Iterator[int]) -> int | None:
    """Return the one start there is, or None where there is none.

    Raises:
        ExecutionError: there are several; names the lines.
    """
    found = list(islice(starts, MAX_COUNTED))
    if len(found) < 2:
        return found[0] if found else None
    lines = ", ".join(str(_line_of(text, start)) for start in found[:MAX_LISTED])
    more = ", …" if len(found) > MAX_LISTED else ""
    count = f"{len(found)}" if len(found) < MAX_COUNTED else f"at least {MAX_COUNTED}"
    raise ExecutionError(
        f"old_text was found {count} times, in lines {lines}{more}; "
        "give more of the text around the one you mean. Nothing was changed"
    )


def _starts(text: str, wanted: str) -> Iterator[int]:
    at = text.find(wanted)
    while at >= 0:
        yield at
        at = text.find(wanted, at + 1)


def _splits_line_end(text: str, at: int) -> bool:
    return text[at - 1 : at + 1] == "\r\n" if at else False


def _line_end(text: str) -> str | None:
    crlf = text.count("\r\n")
    lf = text.count("\n") - crlf
    if not crlf and not lf:
        return None
    return "\r\n" if crlf > lf else "\n"


def _with_line_ends(text: str, line_end: str | None) -> str:
    return text if line_end is None else text.replace("\r\n", "\n").replace("\n", line_end)


def _line_of(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1
