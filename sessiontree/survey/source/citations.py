"""Citations: which lines of which files a text cites, and the text without those that do not hold.

A citation is a path directly followed by ``#L3`` or ``#L3-L9``. It holds if the path names a text file that
the session may read, and the file has these lines. If quoted text precedes it, as in ``"def run" (a.py#L3)``,
the lines must contain the quoted text as well; white space and punctuation at its ends make no difference.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeAlias

from sessiontree import READER, PermissionTier, SessionKind, ToolContext, ToolError, tool
from sessiontree.survey.source.census import CensusPart
from sessiontree.survey.source.checkout import FileReader, decode_text, read_bytes
from sessiontree.survey.source.source import split_lines

LinesAt: TypeAlias = Callable[[str], "Sequence[str] | None"]
"""Returns the lines of a file; None for a path that names no text file that may be read."""

_LINES = re.compile(r"#L([0-9]+)(?:-L?([0-9]+))?")
_BOUNDARY = re.compile(r"[\s\[({<`\"'“”,;]|:(?!//)")
"""What may precede a path."""
_MAX_PATH_CHARS = 1_000
_MAX_PATH_WORDS = 8
_QUOTE = re.compile(r"(?:\"([^\"\n]{1,2000})\"|“([^”\n]{1,2000})”)[ \[(<`]*\Z")
_AT_ENDS = " .,;:…"
_PAIRS = ("[]", "()", "<>", "``")
_SEPARATORS = (", ", "; ")


class Citation(CensusPart):
    """Lines that a text cites."""

    path: str
    """As the text has it."""
    first: int
    last: int
    ok: bool
    """Whether it holds; one that does not is no longer in the text."""


class CheckedText(CensusPart):
    """A text in which every citation holds."""

    text: str
    citations: tuple[Citation, ...] = ()
    """Those that hold in the order of the text, then those that were removed."""
    removed: int = 0


@tool(tier=PermissionTier.READ_ONLY, kinds=[SessionKind.MAIN], capabilities=[READER])
def check_citations(text: str, ctx: ToolContext) -> CheckedText:
    """Remove the citations from a text that do not hold; everything else stays as it is.

    Args:
        text: A text with citations such as ``src/app.py#L3-L9``.
        ctx: What the session may use.
    """
    reader = ctx.require(READER)
    return check_text(text, lru_cache(maxsize=64)(lambda path: _read_lines(reader, path)))


def _read_lines(reader: FileReader, path: str) -> Sequence[str] | None:
    try:
        read = decode_text(read_bytes(reader, path)[0])
    except (ToolError, OSError, ValueError):
        return None
    return None if read is None else split_lines(read[0])


def check_text(text: str, lines_at: LinesAt) -> CheckedText:
    """Return a text without the citations that do not hold.

    A citation that is removed takes along the brackets or backticks that hold nothing else, the comma that
    separates it from the next one in brackets, and a space that would precede a punctuation mark.

    Args:
        text: The text.
        lines_at: Returns the lines of a file.
    """
    kept: list[tuple[Citation, int]] = []
    removed: list[Citation] = []
    floor = 0
    while (mark := _LINES.search(text, floor)) is not None:
        citation, start = _parse_citation(text, mark, floor, lines_at)
        if citation.ok:
            floor = mark.end()
            kept.append((citation, floor))
            continue
        removed.append(citation)
        begin, end = _find_extent(text, start, mark.end(), floor)
        text = text[:begin] + text[end:]
        # what follows may now belong to the citation before: that one is checked again
        if kept:
            kept.pop()
        floor = kept[-1][1] if kept else 0
    citations = (*(citation for citation, _ in kept), *removed)
    return CheckedText(text=text, citations=citations, removed=len(removed))


def _parse_citation(text: str, mark: re.Match[str], floor: int, lines_at: LinesAt) -> tuple[Citation, int]:
    """Return the citation that ends with a mark, and where it begins.

    A path may contain spaces: the earliest beginning counts that makes it the path of a file.
    """
    first = _number(mark[1])
    last = first if mark[2] is None else _number(mark[2])
    begin = max(floor, text.rfind("\n", floor, mark.start()) + 1, mark.start() - _MAX_PATH_CHARS)
    starts = [begin, *(found.end() for found in _BOUNDARY.finditer(text, begin, mark.start()))]
    # A few words at most: a model that writes pages without punctuation would cost a look at the disk for
    # each word.
    for start in starts[-_MAX_PATH_WORDS:]:
        path = text[start : mark.start()]
        lines = lines_at(path) if path and path == path.strip() else None
        if lines is not None:
            is_held = _has_quote(lines, first, last, text[floor:start])
            return Citation(path=path, first=first, last=last, ok=is_held), start
    return Citation(path=text[starts[-1] : mark.start()], first=first, last=last, ok=False), starts[-1]


def _number(digits: str) -> int:
    """Return a line number; no file has a line whose number has more than nine digits."""
    # Python refuses to read a very long number, and a model writes any.
    return int(digits) if len(digits) <= 9 else 0


def _has_quote(lines: Sequence[str], first: int, last: int, before: str) -> bool:
    if not 1 <= first <= last <= len(lines):
        return False
    quote = _QUOTE.search(before)
    if quote is None:
        return True
    said = _collapse_spaces(quote[1] or quote[2]).strip(_AT_ENDS)
    return said in _collapse_spaces("\n".join(lines[first - 1 : last]))


def _collapse_spaces(text: str) -> str:
    return " ".join(text.split())


def _find_extent(text: str, start: int, end: int, floor: int) -> tuple[int, int]:
    """Return what is removed together with a citation that extends from start to end."""
    while start > floor and text[start - 1] + text[end : end + 1] in _PAIRS:
        start, end = start - 1, end + 1
    before, after = text[max(floor, start - 2) : start], text[end : end + 2]
    if after in _SEPARATORS and before.endswith(("[", "(")):
        return start, end + 2
    if before in _SEPARATORS and after.startswith((",", ";", "]", ")")):
        return start - 2, end
    if before.endswith(" ") and (not after or after[0] in " .,;:!?)]\n"):
        return start - 1, end
    return start, end
