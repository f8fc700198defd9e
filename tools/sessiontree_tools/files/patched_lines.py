"""The lines of a file after the hunks of a patch: found exactly or, failing that, by what they look like.

Hunks are in the order of the file. Each is looked for after the one before it, and its first place counts.
Lines that stay keep the file's own bytes, also where the patch spells them differently; lines that come get
the line end of their neighbour, and a file without a last line end gets none.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.tools.thread_calls import Stop, end_if
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree_tools.files.patch_text import Hunk, PatchLine
from sessiontree_tools.files.spellings import ONE_TO_ONE
from sessiontree_tools.files.text_file import BYTE_ORDER_MARK


def _normalize(line: str) -> str:
    return line.strip().translate(ONE_TO_ONE)


_FORMS: Final[tuple[tuple[str, Callable[[str], str]], ...]] = (
    ("", str),
    ("spaces at line ends", str.rstrip),
    ("indentation", str.strip),
    ("quotes, dashes or kinds of space", _normalize),
)
"""How lines are compared, strictest first: what may differ, and the form in which they are equal then."""


@dataclass(frozen=True, slots=True)
class AppliedHunk:
    """Where a hunk was applied."""

    line: int
    """The first line of its place in the file as it was, from 1; after the last line if it adds there."""
    new_line: int
    """The same place in the file as it is now."""
    removed: int
    added: int
    differs_in: str
    """What the patch spells differently from the file; empty = nothing."""
    lines: tuple[tuple[str, str], ...]
    """Marks and texts of its lines as the file has them."""


@dataclass(frozen=True, slots=True)
class PatchedText:
    """A file's text after its hunks."""

    text: str
    hunks: tuple[AppliedHunk, ...]


def apply_hunks(text: str, hunks: Sequence[Hunk], stop: Stop = lambda: False) -> PatchedText:
    """Return a text with all hunks applied.

    Args:
        text: The whole text; a byte-order mark at its head stays.
        hunks: In the order of the text.
        stop: Asked again and again; true ends the work.

    Raises:
        ExecutionError: a hunk's lines are not in the text after the place of the hunk before, or ``stop``.

    Contract: pure. The cost is that of the text and the hunks together, where few lines are alike.
    """
    mark = BYTE_ORDER_MARK if text.startswith(BYTE_ORDER_MARK) else ""
    file = _FileLines(text.removeprefix(mark), stop)
    result: list[tuple[str, str]] = []
    applied = []
    at = 0
    for number, hunk in enumerate(hunks, 1):
        place = _find_place(file, hunk, at, number)
        result += file.lines[at : place.start]
        before = len(result)
        result += file.changed(place.start, place.lines)
        at = place.start + sum(line.mark != "+" for line in place.lines)
        applied.append(_describe_applied(file, place, before + 1))
    result += file.lines[at:]
    return PatchedText(mark + file.joined(result), tuple(applied))


@dataclass(frozen=True, slots=True)
class _HunkPlace:
    start: int
    lines: tuple[PatchLine, ...]
    differs_in: str


class _FileLines:
    """Lines with their ends, and where each line is."""

    def __init__(self, text: str, stop: Stop) -> None:
        self._stop = stop
        parts = text.split("\n")
        self.lines = [
            (part.removesuffix("\r"), "\r\n" if part.endswith("\r") else "\n") for part in parts[:-1]
        ]
        self.is_open = bool(parts[-1])
        """Whether the last line has no end."""
        if self.is_open:
            self.lines.append((parts[-1], ""))
        crlf = sum(end == "\r\n" for _, end in self.lines)
        self._usual_end = "\r\n" if crlf * 2 >= len(parts) > 1 else "\n"
        self._forms: dict[int, tuple[list[str], dict[str, list[int]]]] = {}

    def form(self, level: int) -> tuple[list[str], dict[str, list[int]]]:
        """Return the lines in one form, and the places of each."""
        if level not in self._forms:
            spell = _FORMS[level][1]
            spelled = [spell(line) for line, _ in self.lines]
            places: dict[str, list[int]] = {}
            for at, line in enumerate(spelled):
                places.setdefault(line, []).append(at)
            self._forms[level] = spelled, places
        return self._forms[level]

    def find(self, wanted: Sequence[str], start: int, *, is_at_end: bool = False) -> tuple[int, int] | None:
        """Return the first place of lines at or after ``start``, and in which form; None = nowhere."""
        # The whole file in the strict form before any place in a looser one: a later exact place is meant
        # more likely.
        for level, (_, spell) in enumerate(_FORMS):
            spelled, places = self.form(level)
            forms = [spell(line) for line in wanted]
            for at in _find_starts(forms, places, start):
                end_if(self._stop)
                if is_at_end and at + len(forms) != len(spelled):
                    continue
                if spelled[at : at + len(forms)] == forms:
                    return at, level
        return None

    def has(self, line: str) -> bool:
        """Whether some line looks like this one."""
        return _normalize(line) in self.form(len(_FORMS) - 1)[1]

    def changed(self, at: int, lines: Sequence[PatchLine]) -> Iterator[tuple[str, str]]:
        """Yield the lines that a hunk leaves of its place: those that stay, and those that come."""
        for line in lines:
            if line.mark == "+":
                # The neighbour above decides, because a file may have both kinds of line ends.
                near = self.lines[at - 1 : at] if at else self.lines[:1]
                yield line.text, (near[0][1] if near else "") or self._usual_end
            else:
                if line.mark == " ":
                    yield self.lines[at]
                at += 1

    def joined(self, lines: Sequence[tuple[str, str]]) -> str:
        """Return lines as a text that ends as the file does."""
        whole = "".join(line + (end or self._usual_end) for line, end in lines[:-1])
        if not lines:
            return whole
        line, end = lines[-1]
        return whole + line + ("" if self.is_open else end or self._usual_end)


def _find_starts(forms: Sequence[str], places: dict[str, list[int]], start: int) -> Iterator[int]:
    """Yield where lines may begin, judged by the rarest of them."""
    # By the rarest line: a hunk that begins with an empty line or a brace would be compared at every one
    # of them.
    rarest, offset = min(
        ((places.get(form, []), at) for at, form in enumerate(forms)), key=lambda it: len(it[0])
    )
    for at in range(bisect_left(rarest, start + offset), len(rarest)):
        yield rarest[at] - offset


def _find_place(file: _FileLines, hunk: Hunk, start: int, number: int) -> _HunkPlace:
    differs = 0
    at = start
    for anchor in hunk.anchors:
        found = file.find([anchor], at)
        if found is None:
            raise _make_not_found(file, hunk, [anchor], start, number)
        at = found[0] + 1
        differs = max(differs, found[1])
    lines = hunk.lines
    wanted = [line.text for line in lines if line.mark != "+"]
    if not wanted:
        is_after_anchor = bool(hunk.anchors) and not hunk.is_at_end
        return _HunkPlace(at if is_after_anchor else len(file.lines), lines, _FORMS[differs][0])
    found = file.find(wanted, at, is_at_end=hunk.is_at_end)
    while found is None and lines and lines[-1].mark == " " and not lines[-1].text:
        # Empty lines at the end of a hunk may only be layout of the patch.
        lines = lines[:-1]
        wanted.pop()
        found = file.find(wanted, at, is_at_end=hunk.is_at_end) if wanted else None
    if found is None:
        raise _make_not_found(file, hunk, wanted, start, number)
    return _HunkPlace(found[0], lines, _FORMS[max(differs, found[1])][0])


def _make_not_found(
    file: _FileLines, hunk: Hunk, wanted: Sequence[str], start: int, number: int
) -> ExecutionError:
    shown = [line for line in wanted if line.strip()] or list(wanted)
    missing = next((line for line in shown if not file.has(line)), None)
    where = f"change {number} (line {hunk.line} of the patch)"
    if missing is not None:
        why = f"no line of the file looks like {_cut(missing)!r}"
    elif hunk.is_at_end and file.find(wanted, start):
        why = "its lines are in the file, but not at the end; leave out '*** End of File'"
    elif (earlier := file.find(wanted, 0)) is not None and earlier[0] < start:
        why = (
            f"its lines are in line {earlier[0] + 1}, before the end of the change that precedes it; "
            "give changes in the order of the file, each once"
        )
    else:
        why = f"its lines are in the file, but not one after the other, from {_cut(shown[0])!r} on"
    return ExecutionError(f"{where} fits nowhere: {why}; read the file again and copy its lines")


def _cut(line: str) -> str:
    return line if len(line) <= 120 else line[:120] + "…"


def _describe_applied(file: _FileLines, place: _HunkPlace, new_line: int) -> AppliedHunk:
    at = place.start
    shown = []
    for line in place.lines:
        if line.mark == "+":
            shown.append(("+", line.text))
        else:
            shown.append((line.mark, file.lines[at][0]))
            at += 1
    marks = [line.mark for line in place.lines]
    return AppliedHunk(
        place.start + 1, new_line, marks.count("-"), marks.count("+"), place.differs_in, tuple(shown)
    )
