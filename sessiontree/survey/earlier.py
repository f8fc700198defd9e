"""Earlier: what surveys before this one left, and the tool that removes it: the report and its records.

A survey leaves one record, its mark, by which later surveys and questions know that it was there.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterable

from sessiontree import (
    MEMORY,
    MEMORY_WRITER,
    READER,
    WRITER,
    ExecutionError,
    MemoryRecord,
    PermissionTier,
    Selection,
    SessionKind,
    SessionTreeError,
    ToolContext,
    ToolError,
    ToolResult,
    tool,
)
from sessiontree.survey.source.census import CensusPart
from sessiontree.survey.source.checkout import FileReader, ListedEntry, read_bytes

MARKER = "<!-- sessiontree survey report, format 2 -->"
"""First line of every report; it tells a report from any other file."""
MARK = "sessiontree:survey"
"""Source of every mark; no file's."""
MAX_MARKS = 100

_MARKER = re.compile(r"<!-- sessiontree survey report, format \d{1,6} -->")
_SAID = re.compile(r"survey of .*: (\d+) records of (\d+) files", re.DOTALL)
_FIRST_LINE_BYTES = 200


class RememberedSurvey(CensusPart):
    """What an earlier survey left in memory."""

    tree: str
    """Id of its tree."""
    records: int
    """How many, its mark included."""


class EarlierSurvey(CensusPart):
    """What is at a path, and in memory."""

    exists: bool = False
    is_report: bool = False
    """Whether it is a regular file whose first line is that of a survey's report."""
    surveys: tuple[RememberedSurvey, ...] = ()
    """Finished surveys of this workspace that left records, oldest first."""
    memory_problem: str = ""
    """Why memory could not be asked."""


def mark_text(name: str, records: int, files: int) -> str:
    """Return the text of a survey's mark: what was surveyed, its records, its files."""
    return f"survey of {name}: {records} records of {files} files"


async def find_remembered_surveys(ctx: ToolContext) -> tuple[RememberedSurvey, ...]:
    """Return the finished surveys of this workspace that left records, oldest first.

    Raises:
        PermissionDenied: the session has no memory.
        MemoryFailed: memory can't be asked.
    """
    return read_surveys(await ctx.require(MEMORY).select(Selection(path=MARK), limit=MAX_MARKS))


def read_surveys(marks: Iterable[MemoryRecord]) -> tuple[RememberedSurvey, ...]:
    """Return the surveys whose marks these are, oldest first; other records count for nothing."""
    surveys: dict[str, RememberedSurvey] = {}
    for mark in sorted(marks, key=lambda record: (record.created_at_ms, record.id)):
        said = _SAID.fullmatch(mark.text)
        if said is not None and mark.source == MARK and mark.trust == "session":
            tree = mark.scope.tree_id
            surveys[tree] = RememberedSurvey(tree=tree, records=int(said[1]) + 1)  # the mark is one too
    return tuple(surveys.values())


def _look(reader: FileReader, path: str) -> tuple[ListedEntry | None, bool]:
    """Return what is at a path, and whether it is a report; a listing tells a link from a file. Blocks.

    Raises:
        ToolError, OSError: the directory can't be listed.
    """
    folder, _, name = path.rpartition("/")
    entry = next((one for one in reader.list(folder or ".") if one.path.rpartition("/")[2] == name), None)
    line = b""
    if entry is not None and entry.type == "file":
        with contextlib.suppress(ToolError, OSError):  # what can't be read is not a report
            line = read_bytes(reader, path, _FIRST_LINE_BYTES)[0].partition(b"\n")[0]
    return entry, _MARKER.fullmatch(line.decode("latin-1")) is not None


@tool(
    tier=PermissionTier.READ_ONLY,
    kinds=[SessionKind.MAIN],
    capabilities=[READER],
    optional_capabilities=[MEMORY],
    idempotent=True,
)
async def find_survey(path: str, ctx: ToolContext) -> EarlierSurvey:
    """Say whether an earlier survey's report is at a path, and what surveys left in memory.

    Args:
        path: A path relative to the workspace.
        ctx: What the session may use.
    """
    entry, is_report = None, False
    with contextlib.suppress(ToolError, OSError):  # what can't be listed is not there
        entry, is_report = await asyncio.to_thread(_look, ctx.require(READER), path)
    found = EarlierSurvey(exists=entry is not None, is_report=is_report)
    try:
        surveys = () if ctx.memory is None else await find_remembered_surveys(ctx)
    except SessionTreeError as error:  # a report can be written without memory
        return found.model_copy(update={"memory_problem": str(error)})
    return found.model_copy(update={"surveys": surveys})


@tool(
    tier=PermissionTier.ELEVATED,
    kinds=[SessionKind.MAIN],
    capabilities=[READER, WRITER],
    optional_capabilities=[MEMORY, MEMORY_WRITER],
    sequential=True,
    changes=["path"],
)
async def remove_survey(
    ctx: ToolContext, path: str, trees: tuple[str, ...] = (), records: int = 0
) -> ToolResult:
    """Remove the report that an earlier survey wrote, and the records it left in memory.

    Any other file is refused, and any tree that was not a survey. Everything is checked before anything is
    removed; where the report is gone already, the records alone are removed.

    Args:
        path: The report, relative to the workspace.
        trees: Trees whose surveys memory is to forget.
        records: How many records they left, for whoever allows this.
        ctx: What the session may use.
    """
    entry, is_report = await asyncio.to_thread(_look, ctx.require(READER), path)
    if entry is None and not trees:
        raise ExecutionError(f"can't remove {path!r}: it does not exist")
    if entry is not None and not is_report:
        what = "its first line is not that of a survey's report"
        what = what if entry.type == "file" else f"it is a {entry.type}, not a regular file"
        raise ExecutionError(f"can't remove {path!r}: {what}")
    forgotten = 0
    if trees:
        others = sorted(set(trees) - {one.tree for one in await find_remembered_surveys(ctx)})
        if others:
            raise ExecutionError(f"can't forget {', '.join(others)}: memory has no survey of that name")
        writer = ctx.require(MEMORY_WRITER)
        for tree in dict.fromkeys(trees):
            forgotten += len(await writer.forget(Selection(tree_id=tree), key=f"{ctx.call_id}/{tree}"))
    # records go first: a report that is still there shows what is left to do
    if entry is not None:
        await asyncio.to_thread(ctx.require(WRITER).remove, path)
    return ToolResult(
        output={"removed": path, "bytes": entry.size if entry is not None else 0, "records": forgotten},
        display=f"removed {path}; forgot {forgotten:,} of {records:,} records",
    )
