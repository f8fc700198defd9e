"""``grep``: finds lines by what they say."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from sessiontree.contracts.capabilities import READER
from sessiontree.contracts.context import ToolContext
from sessiontree.contracts.flags import ToolFlag
from sessiontree.contracts.ports import Reader
from sessiontree.contracts.results import ToolResult
from sessiontree.contracts.tiers import PermissionTier
from sessiontree.contracts.tool import ALL_KINDS, Tool
from sessiontree_tools.directory_entries import listing
from sessiontree_tools.file_walk import GIT_DIRECTORY, Walk, WalkedFile
from sessiontree_tools.glob_match import Glob, check_glob
from sessiontree_tools.line_matcher import LineMatcher, text_finder
from sessiontree_tools.line_search import Matcher, Search
from sessiontree_tools.matcher_process import MatcherProcess
from sessiontree_tools.threads import Stop, in_thread

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
        description="Regular expression (Python's syntax) searched for in each line on its own.",
    )
    path: str = Field(
        default=".", min_length=1, description="Directory or file to search, relative to the workspace."
    )
    glob: Annotated[str, AfterValidator(check_glob)] | None = Field(
        default=None,
        description="Search only files whose path below `path` fits, such as `*.py` or `src/**/*.md`.",
    )
    ignore_case: bool = Field(default=False, description="Whether letters match in either case.")
    literal: bool = Field(default=False, description="Whether the pattern is plain text, not an expression.")
    context: int = Field(
        default=0, ge=0, le=MAX_CONTEXT, description="Lines to show before and after each matching line."
    )
    limit: int = Field(default=100, ge=1, le=MAX_LIMIT, description="Most matching lines to show.")


class Grep(Tool[GrepParams]):
    """Lists lines that fit a pattern."""

    name = "grep"
    description = (
        "Search the text of files. Answers with `path:line: text` for each matching line, files in the order "
        "of their paths; long lines are cut around the match, context reads `path-line- text`. Binary "
        "files, links and .git are skipped. The line number is the offset to read from. Narrow a search with "
        "path and glob; use literal for text with punctuation."
    )
    Params: ClassVar[type[BaseModel]] = GrepParams
    label = "Search files"
    section = "fs"
    profiles = frozenset({"coding"})
    flags = frozenset({ToolFlag.WORKSPACE_ONLY})
    tier = PermissionTier.READ_ONLY
    kinds = ALL_KINDS
    capabilities = frozenset({"reader"})

    async def execute(self, params: GrepParams, ctx: ToolContext) -> ToolResult:
        """Return the lines; details are ``{path, matches, files, limited, exhausted, binary, unreadable}``.

        Raises:
            ValidationError: the pattern is no regular expression.
            ExecutionError: no such path, or the pattern takes too long.
            PermissionDenied: the path is outside what may be read.
        """
        reader = ctx.require(READER)
        return await in_thread(ctx, lambda stop: _grep(reader, params, ctx.config.max_result_chars, stop))


def _grep(reader: Reader, params: GrepParams, max_chars: int, stop: Stop) -> ToolResult:
    walk = Walk(reader, stop, into_git=params.glob is not None and Glob(params.glob).names(GIT_DIRECTORY))
    files = _files(reader, walk, params)
    with _matcher(params, stop) as matcher:
        search = Search(reader, matcher, stop, max_bytes=MAX_SCANNED_BYTES, max_chars=max_chars)
        lines = search.lines(files, breaks=params.context > 0)
    unreadable = walk.unreadable + search.unreadable
    return ToolResult(
        output=listing(lines, _notes(params, search, matcher, walk, unreadable), max_chars=max_chars),
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


def _files(reader: Reader, walk: Walk, params: GrepParams) -> Iterable[WalkedFile]:
    entry = reader.stat(params.path)
    if entry.type == "file":
        with reader.open(params.path):  # so that a file named by the caller fails aloud
            return [WalkedFile(entry, entry.path.rpartition("/")[2])]
    found = (found for found in walk.files(params.path) if found.entry.type == "file")
    if params.glob is None:
        return found
    glob = Glob(params.glob)
    return (file for file in found if glob.matches(file.below))


def _matcher(params: GrepParams, stop: Stop) -> AbstractContextManager[Matcher]:
    plain = params.literal or not SPECIAL & set(params.pattern)
    if plain and not params.ignore_case:
        text = params.pattern
        return nullcontext(
            LineMatcher(text_finder(text), context=params.context, limit=params.limit, needed=text)
        )
    return MatcherProcess(
        re.escape(params.pattern) if params.literal else params.pattern,
        ignore_case=params.ignore_case,
        context=params.context,
        limit=params.limit,
        stop=stop,
    )


def _notes(params: GrepParams, search: Search, matcher: Matcher, walk: Walk, unreadable: int) -> list[str]:
    notes = walk.note("narrow path or glob")
    if not search.matches:
        skipped = f" ({search.binary} binary skipped)" if search.binary else ""
        notes.append(f"no line of {search.files} files matches{skipped}")
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
