"""``edit``: replaces one passage of a file.

A passage is found exactly or, failing that, by its folded form: quotation marks, dashes, spaces, ``…`` and
``...``, CRLF and LF, and trailing spaces each count as the same. Where that finds nothing, full and half
width, and composed and decomposed letters (NFKC) do as well.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Annotated, ClassVar
from unicodedata import category, is_normalized, normalize

from pydantic import BaseModel, ConfigDict, Field

from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.handles.ports import Reader, Writer
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.recorded.capabilities import READER, WRITER
from sessiontree.contracts.recorded.results import Artifact, ToolResult
from sessiontree.contracts.tools.context import ToolContext
from sessiontree.contracts.tools.thread_calls import Stop, end_if, run_in_call_thread
from sessiontree.contracts.tools.tool import MAIN_AND_BRANCH, AllowEmpty, Tool, ToolFlag
from sessiontree.contracts.values.file_names import name_note
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree_tools.files.diff_text import cut_line, cut_lines, show_range
from sessiontree_tools.files.spellings import ONE_TO_ONE
from sessiontree_tools.files.text_file import BYTE_ORDER_MARK, decode_text, read_whole, to_utf8

# The look-behind and the possessive run keep this linear on long runs of spaces.
_LINE_ENDINGS = r"(?<![ \t])[ \t]++(?=\r?\n)|\r\n"
_SHRINKING = re.compile(_LINE_ENDINGS + r"|\.\.\.")
_TO_LINE_END = re.compile(r"[ \t]*(?:\n|\Z)")
_WITHOUT_DOUBLE_PRIME = {key: value for key, value in ONE_TO_ONE.items() if key != 0x2033}
"""Compatible forms spell the double prime as two single ones."""
_VOWELS_OF_KIRAT_RAI = frozenset(map(chr, (0x16D63, *range(0x16D67, 0x16D6B))))


class Folded:
    """A text's folded form, and where in the original each part of it comes from."""

    __slots__ = ("_ends", "_origin_ends", "_origin_starts", "_starts", "text", "translated")

    def __init__(self, translated: str, pieces: re.Pattern[str], spelled: Callable[[str], str]) -> None:
        """Fold a text; linear in its length.

        Args:
            translated: As long as the original: an index here is an index there.
            pieces: What gives way to another spelling. The rest stays.
            spelled: Returns that spelling, which may be empty.
        """
        self.translated = translated
        self._starts, self._ends, self._origin_starts, self._origin_ends = (array("L") for _ in range(4))
        kept: list[str] = []
        at = length = 0
        for piece in pieces.finditer(translated):
            start, end = piece.span()
            spelling = spelled(piece[0])
            kept += (translated[at:start], spelling)
            length += start - at
            self._starts.append(length)
            length += len(spelling)
            self._ends.append(length)
            self._origin_starts.append(start)
            self._origin_ends.append(end)
            at = end
        kept.append(translated[at:])
        self.text = "".join(kept)
        """The folded form."""

    def origin(self, start: int, end: int) -> tuple[int, int] | None:
        """Return where in the original the folded characters ``start:end`` (not empty) come from.

        Spaces that folding dropped before or after them are left outside; a line end is kept whole.
        None where they begin or end inside the spelling of one piece.
        """
        before, last = bisect_right(self._starts, start) - 1, bisect_left(self._starts, end) - 1
        first = start
        if before >= 0 and start < self._ends[before]:
            if start != self._starts[before]:
                return None
            first = self._origin_starts[before]
        elif before >= 0:
            first = self._origin_ends[before] + start - self._ends[before]
        if last < 0:
            return first, end
        if end < self._ends[last]:
            return None
        return first, self._origin_ends[last] + end - self._ends[last]

    def skip_spaces(self, at: int) -> int:
        """Return the end of the spaces that stand at ``at`` in the original."""
        while at < len(self.translated) and self.translated[at] in " \t":
            at += 1
        return at


def fold(text: str) -> Folded:
    """Return a text with quotation marks, dashes, spaces, dots and line ends spelled in one way."""
    return Folded(text.translate(ONE_TO_ONE), _SHRINKING, _shrink)


def fold_forms(text: str) -> Folded:
    """Return a text whose characters have their compatible form (NFKC) besides.

    Full and half width, composed and decomposed letters, ligatures and the like are each spelled in one way.
    A letter and the marks that join it are one piece, so that no passage begins or ends between them.
    """
    translated = text.translate(_WITHOUT_DOUBLE_PRIME)
    letters = set(translated) - {"\n", "\r"}
    joining = "".join(map(re.escape, filter(is_mark, letters)))
    changing = "".join(re.escape(letter) for letter in letters if not is_normalized("NFKC", letter))
    pieces = [_LINE_ENDINGS]
    if joining:
        pieces.append(rf"[^\r\n{joining}]?[{joining}]++")
    if changing:
        pieces.append(f"[{changing}]")
    return Folded(translated, re.compile("|".join(pieces)), _form)


def is_mark(letter: str) -> bool:
    """Whether normalising may change the character before this one because of it."""
    first = normalize("NFKD", letter)[0]
    return category(first)[0] == "M" or "\u1160" <= first <= "\u11ff" or first in _VOWELS_OF_KIRAT_RAI


def is_at_line_end(text: str, at: int) -> bool:
    """Whether nothing but spaces is between ``at`` and the end of its line."""
    return _TO_LINE_END.match(text, at) is not None


def _shrink(found: str) -> str:
    if found == "\r\n":
        return "\n"
    return "\N{HORIZONTAL ELLIPSIS}" if found == "..." else ""


def _form(found: str) -> str:
    if found == "\r\n":
        return "\n"
    return "" if not found.strip(" \t") else normalize("NFKC", found).translate(ONE_TO_ONE)


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
        return _find_line(self.before, self.start)


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
    # The exact form first and alone: a passage that occurs once as it is must not fail because another looks
    # alike.
    exact = _take_only(text, _find_exact(text, old))
    start, end = (exact, exact + len(old)) if exact is not None else _find_tolerantly(text, old)
    if start == 0 and text.startswith(BYTE_ORDER_MARK):
        # The mark is not text that anybody sees, so a replacement of the first line must not remove it.
        start = 1
        new = new.removeprefix(BYTE_ORDER_MARK)
    new = _set_line_ends(new, _detect_line_end(text[start:end]) or _detect_line_end(text))
    if new == text[start:end]:
        raise ExecutionError("new_text equals the text that is there; nothing was changed")
    return Replacement(text, start, end, new, exact is None)


def _find_exact(text: str, old: str) -> Iterator[int]:
    for start in _find_starts(text, old):
        # A match that begins or ends between CR and LF would tear a line end apart.
        if not (_is_inside_line_end(text, start) or _is_inside_line_end(text, start + len(old))):
            yield start


def _find_tolerantly(text: str, old: str) -> tuple[int, int]:
    found = _find_folded(fold(text), fold(old).text)
    if found is not None:
        return found
    folded, wanted = fold_forms(text), fold_forms(old).text
    found = _find_folded(folded, wanted)
    if found is not None:
        return found
    if wanted.endswith("\n") and folded.text.endswith(wanted.removesuffix("\n")):
        raise ExecutionError(
            "old_text ends with a line end, and the file ends without one; leave out the last line end"
        )
    raise ExecutionError(
        "old_text was not found, not even with quotes, dashes, spaces, full and half width and composed and "
        "decomposed letters treated alike; read the file again and copy the passage"
    )


def _find_folded(folded: Folded, wanted: str) -> tuple[int, int] | None:
    """Return where in the original the folded passage is, or None where it is nowhere.

    Raises:
        ExecutionError: it is in several places.
    """
    # Spaces that end old_text may be some inside a line, or stand for those, if any, that end one.
    bare = wanted.rstrip(" \t\r")
    inside = set(islice(_select_whole(folded, _find_starts(folded.text, wanted), len(wanted)), MAX_COUNTED))
    ending: set[int] = set()
    if bare not in {"", wanted}:
        ending.update(
            islice(_select_whole(folded, _find_at_line_end(folded.text, bare), len(bare)), MAX_COUNTED)
        )
    start = _take_only(folded.text, iter(sorted(inside | ending)))
    if start is None:
        return None
    if start not in ending:
        return folded.origin(start, start + len(wanted))
    found = folded.origin(start, start + len(bare))
    return found and (found[0], folded.skip_spaces(found[1]))


def _select_whole(folded: Folded, starts: Iterator[int], length: int) -> Iterator[int]:
    return (start for start in starts if folded.origin(start, start + length) is not None)


def _find_at_line_end(text: str, wanted: str) -> Iterator[int]:
    return (start for start in _find_starts(text, wanted) if is_at_line_end(text, start + len(wanted)))


def _take_only(text: str, starts: Iterator[int]) -> int | None:
    """Return the only start, or None without one.

    Raises:
        ExecutionError: there are several; names the lines.
    """
    # Bounded, because a short passage can occur at every character of a file of 10 MB.
    found = list(islice(starts, MAX_COUNTED))
    if len(found) < 2:
        return found[0] if found else None
    lines = ", ".join(str(_find_line(text, start)) for start in found[:MAX_LISTED])
    more = ", …" if len(found) > MAX_LISTED else ""
    count = f"{len(found)}" if len(found) < MAX_COUNTED else f"at least {MAX_COUNTED}"
    raise ExecutionError(
        f"old_text was found {count} times, in lines {lines}{more}; "
        "give more of the text around the one you mean. Nothing was changed"
    )


def _find_starts(text: str, wanted: str) -> Iterator[int]:
    at = text.find(wanted)
    while at >= 0:
        yield at
        # One further and not behind the match: matches that overlap are several places, too.
        at = text.find(wanted, at + 1)


def _is_inside_line_end(text: str, at: int) -> bool:
    return text[at - 1 : at + 1] == "\r\n" if at else False


def _detect_line_end(text: str) -> str | None:
    crlf = text.count("\r\n")
    lf = text.count("\n") - crlf
    if not crlf and not lf:
        return None
    return "\r\n" if crlf > lf else "\n"


def _set_line_ends(text: str, line_end: str | None) -> str:
    return text if line_end is None else text.replace("\r\n", "\n").replace("\n", line_end)


def _find_line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


CONTEXT_LINES = 3
NO_NEWLINE = "\\ No newline at end of file"


def make_unified_diff(path: str, change: Replacement) -> str:
    """Return the change as one hunk with three lines of context.

    Looks only at the lines around the change, so its cost does not grow with the file. Lines longer than
    500 characters are cut, and after 400 lines only their number is reported.
    """
    text = change.before
    start = _step_back(text, change.start, CONTEXT_LINES)
    end = _forward(text, change.end, CONTEXT_LINES + 1)
    old = _split_lines(text[start:end])
    new = _split_lines(text[start : change.start] + change.new + text[change.end : end])
    head, tail = _count_shared(old, new)
    skipped = max(0, head - CONTEXT_LINES)
    kept_tail = min(tail, CONTEXT_LINES)
    first = text.count("\n", 0, start) + skipped + 1
    old_end, new_end = len(old) - tail, len(new) - tail
    body = [
        *_mark_lines(" ", old[skipped:head]),
        *_mark_lines("-", old[head:old_end]),
        *_mark_lines("+", new[head:new_end]),
        *_mark_lines(" ", old[old_end : old_end + kept_tail]),
    ]
    body = cut_lines(body)
    ranges = [show_range(first, end + kept_tail - skipped) for end in (old_end, new_end)]
    return "\n".join([f"--- a/{path}", f"+++ b/{path}", f"@@ -{ranges[0]} +{ranges[1]} @@", *body]) + "\n"


def _mark_lines(mark: str, lines: list[str]) -> list[str]:
    marked: list[str] = []
    for line in lines:
        body = line.removesuffix("\n")
        marked.append(mark + cut_line(body))
        if body == line:
            marked.append(NO_NEWLINE)
    return marked


def _count_shared(old: list[str], new: list[str]) -> tuple[int, int]:
    """Return how many lines both begin with, and how many of the others both end with."""
    most = min(len(old), len(new))
    head = 0
    while head < most and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < most - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    return head, tail


def _split_lines(text: str) -> list[str]:
    parts = text.split("\n")
    return [part + "\n" for part in parts[:-1]] + [part for part in parts[-1:] if part]


def _step_back(text: str, at: int, lines: int) -> int:
    for _ in range(lines + 1):
        at = text.rfind("\n", 0, at)
        if at < 0:
            return 0
    return at + 1


def _forward(text: str, at: int, lines: int) -> int:
    for _ in range(lines):
        at = text.find("\n", at) + 1
        if at == 0:
            return len(text)
    return at


class EditParams(BaseModel):
    """Which passage of which file becomes what."""

    model_config = ConfigDict(extra="forbid")

    path: str = Field(min_length=1)
    old_text: str = Field(
        min_length=1,
        description="Copied from the file; must occur exactly once.",
    )
    new_text: Annotated[str, AllowEmpty()]


class Edit(Tool[EditParams]):
    """Replaces the one passage of a file that fits."""

    name = "edit"
    description = "Replace one passage of a text file. Read the file first."
    brief = True
    Params: ClassVar[type[BaseModel]] = EditParams
    label = "Edit file"
    section = "fs"
    profiles = frozenset({"coding"})
    flags = frozenset({ToolFlag.WORKSPACE_ONLY})
    tier = PermissionTier.WORKSPACE
    kinds = MAIN_AND_BRANCH
    capabilities = frozenset({"reader", "writer"})
    sequential = True
    changes: ClassVar[tuple[str, ...]] = ("path",)

    async def execute(self, params: EditParams, ctx: ToolContext) -> ToolResult:
        """Change the file; the output is ``{path, replaced_at_line, tolerant}``, details add the diff.

        Raises:
            ValidationError: new_text has no UTF-8 form.
            ExecutionError: the passage is not there, not unique or unchanged, the file is not a UTF-8 text of
                at most 10 MB, or it was changed meanwhile. The file is then as it was.
            PermissionDenied: the path is outside what may be changed, or the session changes nothing.
        """
        writer, reader = ctx.require(WRITER), ctx.require(READER)
        to_utf8(params.new_text, "/new_text")
        return await run_in_call_thread(ctx, lambda stop: _edit(reader, writer, params, stop))


def _edit(reader: Reader, writer: Writer, params: EditParams, stop: Stop) -> ToolResult:
    entry = reader.stat(params.path)
    try:
        change = replace_once(
            decode_text(read_whole(reader, entry, params.path)), params.old_text, params.new_text
        )
    except ExecutionError as error:
        raise ExecutionError(f"can't edit {params.path!r}: {error.message}") from error
    data = change.after.encode()
    # The last moment to stop: once the file is written, the call must say so.
    end_if(stop)
    # Refused if another program has changed the file since it was read; its change would be lost otherwise.
    written = writer.write(params.path, data, expect_mtime_ns=entry.mtime_ns)
    how = " (tolerant match)" if change.tolerant else ""
    note = name_note(params.path, written.path)
    return ToolResult(
        output={
            "path": written.path,
            "replaced_at_line": change.line,
            "tolerant": change.tolerant,
            **({"note": note} if note else {}),
        },
        display=f"edited {written.path} at line {change.line}{how}",
        artifacts=(Artifact("file", "edited", path=written.path),),
        details={
            "path": written.path,
            "replaced_at_line": change.line,
            "tolerant": change.tolerant,
            "diff": make_unified_diff(written.path, change),
        },
    )
