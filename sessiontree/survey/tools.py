"""Tools: how files are shared out over Branches and Workers, read for the census, and put into memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain

from pydantic import Field

from sessiontree import (
    MEMORY_WRITER,
    READER,
    ExecutionError,
    NewRecord,
    PermissionTier,
    SessionKind,
    ToolContext,
    tool,
)
from sessiontree.survey.source.census import PROBLEMS_KEPT, CensusPart, Findings, Place, fit_findings, merge
from sessiontree.survey.source.checkout import MAX_FILE_BYTES, FileReader, SurveyFile, get_top_folder, walk
from sessiontree.survey.source.file_process import FileProcess
from sessiontree.survey.source.records import SurveyEntry

GROUP_FILES = 100
"""Most files of a group; one Worker surveys a group."""
GROUP_BYTES = 8_000_000
PAGE_ITEMS = 16
"""Most folders or groups of one page, and so the children that a session has at a time."""
_PAGE_SHARE = 0.6
"""Part of a result's length that a page may fill."""
MAX_RECORDS = 200_000
"""Most records of one survey."""
MAX_RECORDS_PER_FILE = 100
"""Most records of a file on average; what one file does not need another may have."""
_STORED_AT_ONCE = 1_000
_UPDATE_EVERY = 10
_MAX_SOURCE_PATH_CHARS = 4_000


def plan(files: Iterable[SurveyFile], max_chars: int) -> dict[str, list[list[str]]]:
    """Return the groups of files per top folder (``.`` = files in the root), folders ascending.

    Every file is in exactly one group. A group takes files by path until one more would make it too large,
    or its paths longer than so many characters. The same files give the same plan in any order.
    """
    folders: dict[str, list[list[str]]] = {}
    size = chars = 0
    for file in sorted(files, key=lambda file: (get_top_folder(file.path), file.path)):
        groups = folders.setdefault(get_top_folder(file.path), [])
        size += min(file.size, MAX_FILE_BYTES)
        chars += _count_chars(file.path)
        if not groups or len(groups[-1]) == GROUP_FILES or size > GROUP_BYTES or chars > max_chars:
            groups.append([])
            size, chars = min(file.size, MAX_FILE_BYTES), _count_chars(file.path)
        groups[-1].append(file.path)
    return folders


def _count_chars(item: object) -> int:
    """Return how many characters an item of a page takes."""
    return len(json.dumps(item)) + 20


class SurveyPage(CensusPart):
    """Part of a plan: top folders, or one folder's groups; amounts are those of the whole workspace."""

    folders: dict[str, int] = Field(default_factory=dict)
    """Files per top folder."""
    groups: tuple[tuple[str, ...], ...] = ()
    next: str | None = None
    """What to give as ``after`` for the next page; None = this is the last."""
    files: int = 0
    ignored: int = 0
    """Files, directories and links left out on purpose."""
    problems: tuple[Place, ...] = ()
    """What cannot be surveyed at all; at most 100."""
    problems_dropped: int = 0
    all_folders: int = 0
    all_groups: int = 0


@tool(
    tier=PermissionTier.READ_ONLY,
    kinds=(SessionKind.MAIN, SessionKind.BRANCH),
    capabilities=[READER],
    idempotent=True,
)
def survey_plan(
    ctx: ToolContext, folder: str | None = None, after: str | None = None, leave_out: tuple[str, ...] = ()
) -> SurveyPage:
    """Say which top folders hold files to survey, or how one folder's files are grouped for workers.

    What .gitignore names is left out, and so are version control, caches and installed packages.

    Args:
        folder: A top folder, or '.' for the files in the root itself: its groups of files. Left out: all top
            folders.
        after: The 'next' of the page before; left out: the first page.
        leave_out: Files not to plan.
        ctx: What the session may use.
    """
    found = walk(ctx.require(READER), folder, leave_out=leave_out, stop=lambda: ctx.cancelled)
    max_chars = int(ctx.config.max_result_chars * _PAGE_SHARE)
    if folder is not None:
        left = [file for file in found.files if after is None or file.path > after]
        groups = plan(left, max_chars).get(folder, [])
        shown = groups[: _count_fitting(groups, max_chars)]
        rest = shown[-1][-1] if len(shown) < len(groups) else None
        return SurveyPage(groups=tuple(map(tuple, shown)), next=rest)
    folders = plan(found.files, max_chars)
    ahead = [name for name in folders if after is None or name > after]
    names = ahead[: _count_fitting(ahead, max_chars)]
    return SurveyPage(
        folders={name: sum(map(len, folders[name])) for name in names},
        next=names[-1] if len(names) < len(ahead) else None,
        files=len(found.files),
        ignored=found.ignored,
        problems=tuple(found.problems[:PROBLEMS_KEPT]),
        problems_dropped=max(0, len(found.problems) - PROBLEMS_KEPT),
        all_folders=len(folders),
        all_groups=sum(map(len, folders.values())),
    )


def _count_fitting(items: Sequence[object], max_chars: int) -> int:
    """Return how many of the first items fit a page: 1 to 16, and not more characters of JSON than given."""
    costs = accumulate(map(_count_chars, items[:PAGE_ITEMS]))
    return max(1, sum(cost <= max_chars for cost in costs))


@tool(tier=PermissionTier.READ_ONLY, kinds=SessionKind, capabilities=[READER], idempotent=True)
def survey_files(paths: list[str], ctx: ToolContext) -> Findings:
    """Parse files and return what they hold together.

    That is totals per language and folder, the longest and most complex functions, notes, entry points,
    public names, dependencies and imports. What cannot be read becomes a problem, never an error.

    Args:
        paths: Files to survey, relative to the workspace.
        ctx: What the session may use.
    """
    found: list[Findings] = []
    with FileProcess(ctx.require(READER)) as files:
        for path in paths:
            if ctx.cancelled:
                raise ExecutionError(f"stopped after {len(found)} of {len(paths)} files; call it again")
            found.append(files.read_findings(path))
            if len(found) % _UPDATE_EVERY == 0 or len(found) == len(paths):
                ctx.update({"done": len(found), "of": len(paths), "path": path})
    return fit_findings(merge(found), ctx.config.max_result_chars)


class Remembered(CensusPart):
    """What was put into memory."""

    files: int = 0
    """Files with records."""
    records: int = 0
    dropped: int = 0
    """Records beyond the bounds."""


@tool(tier=PermissionTier.WORKSPACE, capabilities=[READER, MEMORY_WRITER], idempotent=True, sequential=True)
async def remember_files(
    ctx: ToolContext,
    folder: str,
    leave_out: tuple[str, ...] = (),
    records_per_file: int = MAX_RECORDS_PER_FILE,
) -> Remembered:
    """Put into memory what the files of a folder define and say, so that later questions find the place.

    There is a record per function, class, constant, section and file, with its lines, as foreign text. A call
    that is repeated stores under the same keys, so nothing is stored twice.

    Args:
        folder: A top folder, or '.' for the files in the root itself, as the plan names them.
        leave_out: Files not to remember.
        records_per_file: Most records of a file on average.
        ctx: What the session may use.
    """
    reader, writer = ctx.require(READER), ctx.require(MEMORY_WRITER)
    found = await asyncio.to_thread(walk, reader, folder, leave_out=leave_out, stop=lambda: ctx.cancelled)
    done, stores = Remembered(), 0
    for paths in chain(*plan(found.files, ctx.config.max_result_chars).values()):
        entries, more = await asyncio.to_thread(_collect_entries, reader, paths, records_per_file, ctx)
        records = [NewRecord(one.text, one.type, one.source, trust="foreign") for one in entries]
        for first in range(0, len(records), _STORED_AT_ONCE):
            # the n-th store of a call has the n-th key
            await writer.store(records[first : first + _STORED_AT_ONCE], key=f"{ctx.call_id}/{stores}")
            stores += 1
        done = Remembered(**{name: value + getattr(more, name) for name, value in done})
    return done


def _collect_entries(
    reader: FileReader, paths: Sequence[str], per_file: int, ctx: ToolContext
) -> tuple[list[SurveyEntry], Remembered]:
    """Return what is to be remembered of a group of files, the longest where it is too much. Blocks."""
    found: list[SurveyEntry] = []
    files = dropped = 0
    with FileProcess(reader) as process:
        for path in paths:
            if ctx.cancelled:
                raise ExecutionError("the call was stopped; what is stored stays stored; call it again")
            # memory takes no source whose characters could deceive a reader
            if not path.isprintable() or len(path) > _MAX_SOURCE_PATH_CHARS:
                dropped += 1
                continue
            entries, more = process.read_entries(path)
            found += entries
            files += bool(entries)
            dropped += more
    most = per_file * len(paths)
    if len(found) > most:
        dropped += len(found) - most
        found = sorted(found, key=lambda one: one.first - one.last)[:most]
    return found, Remembered(files=files, records=len(found), dropped=dropped)
