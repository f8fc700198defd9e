"""The text of a patch: files to add, change, move and delete, in the form that OpenAI's models write (V4A).

::

    *** Begin Patch
    *** Add File: notes.txt
    +its first line
    *** Update File: app.py
    *** Move to: main.py
    @@ def run():
     a line that stays
    -a line that goes
    +a line that comes
    *** End of File
    *** Delete File: old.py
    *** End Patch

Only a line that begins with ``***`` is a mark: the same text after ``+``, ``-`` or a space is a file's.
Not here: where the lines are in a file (patched_lines.py).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, Literal, TypeAlias

from sessiontree.contracts.errors import ValidationError
from sessiontree.contracts.values.quick_dataclass import dataclass

BEGIN: Final = "*** Begin Patch"
END: Final = "*** End Patch"
_ADD: Final = "*** Add File:"
_DELETE: Final = "*** Delete File:"
_UPDATE: Final = "*** Update File:"
_MOVE: Final = "*** Move to:"
_END_OF_FILE: Final = "*** End of File"
_HEREDOC: Final = re.compile(r"(?:apply_patch\s+)?<<-?\s*(?P<quote>['\"]?)(?P<word>[A-Za-z_]\w*)(?P=quote)")
_FIELD: Final = "/patch"
_KEPT: Final = 4
"""Number of patches that are kept: one call reads the same patch several times."""
Mark: TypeAlias = Literal[" ", "-", "+"]
_MARKS: Final[dict[str, Mark]] = {" ": " ", "-": "-", "+": "+"}


@dataclass(frozen=True, slots=True)
class PatchLine:
    """One line of a hunk."""

    mark: Mark
    """Stays, goes or comes."""
    text: str
    is_bare: bool = False
    """Whether the patch has an empty line here, without a mark: an empty line that stays, or only layout."""


@dataclass(frozen=True, slots=True)
class Hunk:
    """One change of a file."""

    line: int
    """Where it begins in the patch, from 1."""
    anchors: tuple[str, ...]
    """Lines of the file above the change, in order."""
    lines: tuple[PatchLine, ...]
    is_at_end: bool = False
    """Whether its lines are the last ones of the file."""


@dataclass(frozen=True, slots=True)
class FileAdded:
    """A new file."""

    path: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FileUpdated:
    """A file that changes, gets another name, or both."""

    path: str
    moved_to: str | None
    hunks: tuple[Hunk, ...]


@dataclass(frozen=True, slots=True)
class FileDeleted:
    """A file that goes."""

    path: str


FileChange: TypeAlias = FileAdded | FileUpdated | FileDeleted


@lru_cache(maxsize=_KEPT)
def parse_patch(text: str) -> tuple[FileChange, ...]:
    """Return the changes of a patch, in its order.

    A here-document around it (``<<'EOF'`` … ``EOF``) is taken off.

    Args:
        text: The patch; its lines end with LF or CRLF.

    Raises:
        ValidationError: it isn't such a patch; says in which line.

    Contract: pure; linear in the length of the text.
    """
    return _Parser(text).changes()


def list_paths(changes: tuple[FileChange, ...]) -> tuple[str, ...]:
    """Return the paths that a patch names, those that files move to included."""
    moved = (each.moved_to for each in changes if isinstance(each, FileUpdated))
    return (*(each.path for each in changes), *(path for path in moved if path is not None))


class _Parser:
    def __init__(self, text: str) -> None:
        lines = [line.removesuffix("\r") for line in text.split("\n")]
        start, end = _trim_blank(lines, 0, len(lines))
        # Models write the patch as they would give it to a shell; nothing of the wrapping means anything
        # here.
        heredoc = _HEREDOC.fullmatch(lines[start].strip()) if end - start > 1 else None
        if heredoc is not None and lines[end - 1].strip() == heredoc["word"]:
            start, end = _trim_blank(lines, start + 1, end - 1)
        self._lines = lines
        self._at = start
        self._end = end

    def changes(self) -> tuple[FileChange, ...]:
        if self._at >= self._end or self._lines[self._at].strip() != BEGIN:
            raise self._make_error(f"a patch begins with the line {BEGIN!r}")
        if self._end - self._at < 2 or self._lines[self._end - 1].strip() != END:
            self._at = self._end - 1
            raise self._make_error(f"a patch ends with the line {END!r}")
        self._at += 1
        self._end -= 1
        found: list[FileChange] = []
        while not self._skip_blank():
            found.append(self._change())
        if not found:
            raise self._make_error(f"no file is between {BEGIN!r} and {END!r}")
        return tuple(found)

    def _change(self) -> FileChange:
        line = self._lines[self._at].strip()
        for mark in (_ADD, _DELETE, _UPDATE):
            if line.startswith(mark):
                path = self._read_path(mark)
                break
        else:
            raise self._make_error(f"expected {_ADD!r}, {_UPDATE!r} or {_DELETE!r} and a path")
        if mark == _ADD:
            return FileAdded(path, self._read_added())
        if mark == _DELETE:
            return FileDeleted(path)
        moved_to = None
        if self._at < self._end and self._lines[self._at].strip().startswith(_MOVE):
            moved_to = self._read_path(_MOVE)
        hunks: list[Hunk] = []
        while not self._skip_blank() and not self._lines[self._at].startswith("***"):
            hunks.append(self._read_hunk(is_first=not hunks))
        if not hunks and moved_to is None:
            raise self._make_error(
                f"no change of {path!r} follows: give lines with ' ', '-' and '+', or {_MOVE!r}"
            )
        return FileUpdated(path, moved_to, tuple(hunks))

    def _read_added(self) -> tuple[str, ...]:
        lines = []
        while self._at < self._end and self._lines[self._at].startswith("+"):
            lines.append(self._lines[self._at][1:])
            self._at += 1
        if not self._skip_blank() and not self._lines[self._at].lstrip().startswith("***"):
            raise self._make_error("each line of a new file begins with '+'")
        return tuple(lines)

    def _read_hunk(self, *, is_first: bool) -> Hunk:
        first = self._at + 1
        anchors = []
        while self._at < self._end and self._is_anchor():
            anchors.append(self._lines[self._at][3:])
            self._at += 1
        if not anchors and not is_first:
            raise self._make_error("expected '@@', alone or with a line of the file, before the next change")
        lines: list[PatchLine] = []
        is_at_end = False
        while self._at < self._end and not is_at_end:
            line = self._lines[self._at]
            mark = line[:1]
            if line.rstrip() == _END_OF_FILE:
                is_at_end = True
            elif not line:
                # An editor or a model may have dropped the space of an empty line, so both meanings are kept
                # until the file is known.
                lines.append(PatchLine(" ", "", is_bare=True))
            elif mark in _MARKS:
                lines.append(PatchLine(_MARKS[mark], line[1:]))
            elif self._is_anchor() or line.startswith("***"):
                break
            else:
                raise self._make_error("each line of a change begins with ' ', '-' or '+'")
            self._at += 1
        if not any(not line.is_bare for line in lines):
            raise self._make_error("no line with ' ', '-' or '+' follows '@@'", at=first)
        return Hunk(first, tuple(anchor for anchor in anchors if anchor.strip()), tuple(lines), is_at_end)

    def _is_anchor(self) -> bool:
        line = self._lines[self._at]
        return line.rstrip() == "@@" or line.startswith("@@ ")

    def _read_path(self, mark: str) -> str:
        path = self._lines[self._at].strip().removeprefix(mark).strip()
        if not path:
            raise self._make_error(f"no path follows {mark!r}")
        self._at += 1
        return path

    def _skip_blank(self) -> bool:
        """Pass empty lines; return whether the patch ends then."""
        while self._at < self._end and not self._lines[self._at].strip():
            self._at += 1
        return self._at >= self._end

    def _make_error(self, why: str, *, at: int | None = None) -> ValidationError:
        number = min(self._at, len(self._lines) - 1) + 1 if at is None else at
        line = self._lines[number - 1]
        shown = line if len(line) <= 80 else line[:80] + "…"
        return ValidationError(f"line {number} of the patch, {shown!r}: {why}. No file was changed", _FIELD)


def _trim_blank(lines: list[str], start: int, end: int) -> tuple[int, int]:
    while start < end and not lines[start].strip():
        start += 1
    while end > start and not lines[end - 1].strip():
        end -= 1
    return start, end
