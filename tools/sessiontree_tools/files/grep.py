"""``grep``: finds lines by a pattern or a text.

Not here: what a match is (line_matcher.py), and which files there are (file_walk.py).
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, ClassVar, Protocol

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from sessiontree.contracts.errors import ToolError
from sessiontree.contracts.handles.ports import Reader
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.recorded.capabilities import READER
from sessiontree.contracts.recorded.results import ToolResult
from sessiontree.contracts.tools.context import ToolContext
from sessiontree.contracts.tools.thread_calls import Stop, end_if, run_in_call_thread
from sessiontree.contracts.tools.tool import ALL_KINDS, Tool, ToolFlag
from sessiontree.contracts.values.glob import PathGlob
from sessiontree_tools.files.file_walk import (
    GIT_DIRECTORY,
    Walk,
    WalkedFile,
    check_glob,
    escape_path,
    format_listing,
    look_notes,
    make_path_test,
)
from sessiontree_tools.files.line_matcher import LineMatcher, Shown, make_text_finder
from sessiontree_tools.files.matcher_process import MatcherProcess
from sessiontree_tools.files.text_file import find_codec_by_mark, is_binary, read_up_to

CHUNK_BYTES = 256 * 1024
MAX_NAMED = 3
"""Binary files that the result names."""
MAX_NAME_CHARS = 50
GROUP_BREAK = "--"
"""Goes between passages that do not touch, where context is shown."""


class Matcher(Protocol):
    """Says which lines of one file after another to show."""

    more: bool
    overlong: int

    def feed(self, data: bytes, *, last: bool) -> list[Shown]:
        """Return what to show once the file's next bytes are known."""
        ...


class Search:
    """One search through many files.

    Args:
        reader: Opens them.
        matcher: Says what to show.
        stop: Asked between chunks.
        max_bytes: Searched in all files together.
        max_chars: Shown in all files together; a little more may be.
    """

    def __init__(
        self, reader: Reader, matcher: Matcher, stop: Stop, *, max_bytes: int, max_chars: int
    ) -> None:
        self.matches = self.files = self.binary = self.unreadable = 0
        self.first_binary: list[str] = []
        """Paths of the first files that are not text."""
        self.exhausted = False
        """Whether ``max_bytes`` ended the search."""
        self._reader = reader
        self._matcher = matcher
        self._stop = stop
        self._left_bytes = max_bytes
        self._left_chars = max_chars

    def lines(self, files: Iterable[WalkedFile], *, breaks: bool) -> list[str]:
        """Return ``path:line: text`` for matches and ``path-line- text`` for context, in order.

        Args:
            files: Searched in this order; what cannot be opened is counted and left out.
            breaks: Whether to write ``--`` between passages that do not touch.

        Raises:
            ToolError: the matcher gave up, or the search was stopped.
        """
        lines: list[str] = []
        for found in files:
            path = escape_path(found.entry.path)
            previous = -1  # so that a new file never touches the last one
            for number, matches, text in self._search_file(found):
                if breaks and lines and number != previous + 1:
                    lines.append(GROUP_BREAK)
                previous = number
                mark = ":" if matches else "-"
                lines.append(f"{path}{mark}{number}{mark} {text}")
                self.matches += matches
                self._left_chars -= len(lines[-1])
            if self._matcher.more or self.exhausted or self._left_chars < 0:
                break
        return lines

    def _search_file(self, found: WalkedFile) -> Iterator[Shown]:
        for chunk, last in self._read_chunks(found):
            yield from self._matcher.feed(chunk, last=last)
            if self._matcher.more or self._left_chars < 0:
                return

    def _read_chunks(self, found: WalkedFile) -> Iterator[tuple[bytes, bool]]:
        """Yield a text file's bytes; the second of each pair tells whether they are its last."""
        try:
            stream = self._reader.open(found.entry.path)
        except ToolError:
            self.unreadable += 1
            return
        with stream:
            chunk = read_up_to(stream, CHUNK_BYTES)
            encoding = find_codec_by_mark(chunk)
            # The mark first: text in UTF-16 is full of NUL bytes.
            if encoding is None and is_binary(chunk):
                self.binary += 1
                if self.binary <= MAX_NAMED:
                    self.first_binary.append(found.entry.path)
                return
            self.files += 1
            # The matcher takes UTF-8.
            decoder = codecs.getincrementaldecoder(encoding)("replace") if encoding else None
            last = False
            while not last:
                end_if(self._stop)
                # Counted in bytes of all files together, since a host has other sessions and one search must
                # end.
                self.exhausted = len(chunk) > self._left_bytes
                chunk = chunk[: self._left_bytes]
                self._left_bytes -= len(chunk)
                last = self.exhausted or len(chunk) < CHUNK_BYTES
                yield (decoder.decode(chunk, last).encode() if decoder else chunk), last
                if not last:
                    chunk = read_up_to(stream, CHUNK_BYTES)


MAX_SCANNED_BYTES = 64 * 1024 * 1024
MAX_LIMIT = 1000
SPECIAL = frozenset(".^$*+?{}[]\\|()")
"""What makes a pattern more than plain text; without any, it needs no process of its own."""
MAX_CONTEXT = 20


class GrepParams(BaseModel):
    """What to look for, and where."""

    model_config = ConfigDict(extra="forbid")

    pattern: str = Field(
        min_length=1,
        max_length=2000,
        description="Python regular expression.",
    )
    path: str = Field(default=".", min_length=1)
    glob: Annotated[str, AfterValidator(check_glob)] | None = Field(
        default=None,
        description="Files to search, such as `*.py`.",
    )
    ignore_case: bool = Field(default=False)
    literal: bool = Field(default=False)
    context: int = Field(default=0, ge=0, le=MAX_CONTEXT)
    limit: int = Field(default=100, ge=1, le=MAX_LIMIT)


class Grep(Tool[GrepParams]):
    """Lists lines that fit a pattern."""

    name = "grep"
    description = "Search files line by line. Answers with `path:line: text`."
    brief = True
    Params: ClassVar[type[BaseModel]] = GrepParams
    label = "Search files"
    section = "fs"
    profiles = frozenset({"coding"})
    flags = frozenset({ToolFlag.WORKSPACE_ONLY})
    tier = PermissionTier.READ_ONLY
    kinds = ALL_KINDS
    capabilities = frozenset({"reader"})
    reads: ClassVar[tuple[str, ...]] = ("path",)

    async def execute(self, params: GrepParams, ctx: ToolContext) -> ToolResult:
        """Return the lines; details are ``{path, matches, files, limited, exhausted, binary, unreadable}``.

        Raises:
            ValidationError: the pattern is not a regular expression.
            ExecutionError: no such path, or the pattern takes too long.
            PermissionDenied: the path is outside what may be read.
        """
        reader = ctx.require(READER)
        return await run_in_call_thread(
            ctx, lambda stop: _run_grep(reader, params, ctx.config.max_result_chars, stop)
        )


def _run_grep(reader: Reader, params: GrepParams, max_chars: int, stop: Stop) -> ToolResult:
    walk = Walk(reader, stop, into_git=params.glob is not None and PathGlob(params.glob).holds(GIT_DIRECTORY))
    files = _find_files(reader, walk, params)
    with _make_matcher(params, stop) as matcher:
        search = Search(reader, matcher, stop, max_bytes=MAX_SCANNED_BYTES, max_chars=max_chars)
        lines = search.lines(files, breaks=params.context > 0)
    unreadable = walk.unreadable + search.unreadable
    notes = _write_notes(params, search, matcher, walk, unreadable)
    return ToolResult(
        output=format_listing(lines, [*look_notes(reader, params.path), *notes], max_chars=max_chars),
        display=f"{search.matches}{'+' * matcher.more} lines match {params.pattern}",
        details={
            "path": params.path,
            "matches": search.matches,
            "files": search.files,
            "limited": matcher.more,
            "exhausted": search.exhausted or walk.is_cut_short,
            "binary": search.binary,
            "unreadable": unreadable,
        },
    )


def _find_files(reader: Reader, walk: Walk, params: GrepParams) -> Iterable[WalkedFile]:
    entry = reader.stat(params.path)
    if entry.type == "file":
        with reader.open(params.path):  # so that a file named by the caller fails aloud
            return [WalkedFile(entry, entry.path.rpartition("/")[2])]
    found = (found for found in walk.files(params.path) if found.entry.type == "file")
    if params.glob is None:
        return found
    fits = make_path_test(params.glob)
    return (file for file in found if fits(file.below))


def _make_matcher(params: GrepParams, stop: Stop) -> AbstractContextManager[Matcher]:
    plain = params.literal or not SPECIAL & set(params.pattern)
    # A plain text can't take for ever, so the start of a process is saved; with case ignored, only `re`
    # compares as `re` does.
    if plain and not params.ignore_case:
        text = params.pattern
        return nullcontext(
            LineMatcher(make_text_finder(text), context=params.context, limit=params.limit, needed=text)
        )
    return MatcherProcess(
        re.escape(params.pattern) if params.literal else params.pattern,
        ignore_case=params.ignore_case,
        context=params.context,
        limit=params.limit,
        stop=stop,
    )


def _write_notes(
    params: GrepParams, search: Search, matcher: Matcher, walk: Walk, unreadable: int
) -> list[str]:
    notes = walk.note("narrow path or glob")
    if not search.matches:
        notes.append(f"no line of {search.files} files matches")
    if search.binary:
        notes.append(_make_binary_note(search))
    if matcher.more:
        notes.append(f"limit of {params.limit} lines reached, more match; narrow the search or raise limit")
    if search.exhausted:
        notes.append(
            f"stopped after {MAX_SCANNED_BYTES // 2**20} MB, the rest was not searched; narrow path or glob"
        )
    if matcher.overlong:
        notes.append(f"{matcher.overlong} very long lines were searched in their first million characters")
    if unreadable:
        notes.append(f"{unreadable} files or directories could not be read")
    return notes


def _make_binary_note(search: Search) -> str:
    """Return how many files were skipped, with the first names."""
    named = ", ".join(_shorten_path(path) for path in search.first_binary)
    more = f" and {search.binary - MAX_NAMED} more" if search.binary > MAX_NAMED else ""
    files = "1 binary file was" if search.binary == 1 else f"{search.binary} binary files were"
    return f"{files} skipped, for a NUL byte in the first 8 KB: {named}{more}"


def _shorten_path(path: str) -> str:
    shown = escape_path(path)
    return shown if len(shown) <= MAX_NAME_CHARS else "…" + shown[-MAX_NAME_CHARS:]
