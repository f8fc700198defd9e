"""Remembering: the tool by which a Branch puts into memory what its files define and say.

Workers can't store, and what they hand up is journaled; so the Branch reads its files once more, for their
entries alone, and nothing but amounts comes into the journal.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from sessiontree.contracts.capabilities import MEMORY_WRITER, READER
from sessiontree.contracts.context import ToolContext
from sessiontree.contracts.errors import ExecutionError, ToolError
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.memory import NewRecord, Source
from sessiontree.contracts.ports import Reader
from sessiontree.contracts.results import ToolResult
from sessiontree.contracts.tiers import PermissionTier
from sessiontree.contracts.tool import MAIN_AND_BRANCH, Tool
from sessiontree.survey.entries import MAX_FILE_ENTRIES, FileEntries, entries_of
from sessiontree.survey.entry import Entry
from sessiontree.survey.plan import DEFAULT_FILE_BYTES, MAX_GROUP_FILES

MAX_SURVEY_RECORDS = 200_000
"""Most records of one survey, beside one of each file."""
STORED_AT_ONCE = 500
"""Records of one store."""


class RememberFilesParams(BaseModel):
    """Which files to remember."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    paths: list[Annotated[str, Field(min_length=1, max_length=4096)]] = Field(
        min_length=1, max_length=MAX_GROUP_FILES, description="Files to remember, relative to the workspace."
    )
    records_per_file: int = Field(
        default=MAX_FILE_ENTRIES,
        ge=1,
        le=MAX_FILE_ENTRIES,
        description="Most records of a file on average; what one does not need another may have.",
    )


class Remembered(BaseModel):
    """What came of it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    files: int
    """Files with records."""
    records: int
    """Records that are in memory now."""
    dropped: int
    """Records beyond the bounds."""


class RememberFiles(Tool[RememberFilesParams]):
    """Stores a record per definition, section and file, each with the lines it comes from, as foreign text.

    A file that can't be read has none; the survey names it as a problem already. A call that is repeated
    stores under the same keys, so nothing is there twice.
    """

    name: ClassVar[str] = "remember_files"
    description: ClassVar[str] = (
        "Put into memory what files define and say: a record per function, class, section and file, with its "
        "lines, so that later questions find the place."
    )
    Params: ClassVar[type[BaseModel]] = RememberFilesParams
    label: ClassVar[str] = "Remember files"
    section: ClassVar[str] = "survey"
    tier: ClassVar[PermissionTier] = PermissionTier.WORKSPACE
    kinds: ClassVar[frozenset[SessionKind]] = MAIN_AND_BRANCH
    capabilities: ClassVar[frozenset[str]] = frozenset({READER.name, MEMORY_WRITER.name})
    idempotent: ClassVar[bool] = True

    async def execute(self, params: RememberFilesParams, ctx: ToolContext) -> ToolResult:
        """Read the files in a thread, then store; the output is a :class:`Remembered`.

        Raises:
            PermissionDenied: the session holds no reader, or may not store.
            ExecutionError: the call was stopped; what is stored already stays.
            MemoryFailed: memory can't take the records.
        """
        reader, writer = ctx.require(READER), ctx.require(MEMORY_WRITER)
        abandoned = threading.Event()
        paths = list(dict.fromkeys(params.paths))
        try:
            found = await asyncio.to_thread(
                lambda: list(_found(reader, paths, lambda: abandoned.is_set() or ctx.cancelled))
            )
        finally:
            # the thread of a cancelled call stops at the next file
            abandoned.set()
        kept = within(found, params.records_per_file * len(paths))
        records = [_record(path, entry) for path, file in kept for entry in file.entries]
        for number, start in enumerate(range(0, len(records), STORED_AT_ONCE)):
            await writer.store(records[start : start + STORED_AT_ONCE], key=f"{ctx.call_id}/{number}")
        done = Remembered(
            files=sum(1 for _, file in kept if file.entries),
            records=len(records),
            dropped=sum(file.dropped for _, file in kept),
        )
        return ToolResult(
            output=done.model_dump(mode="json"), display=f"{done.records:,} records of {done.files:,} files"
        )


def records_per_file(files: int) -> int:
    """Return how many records a file of a survey may have on average."""
    return max(1, min(MAX_FILE_ENTRIES, MAX_SURVEY_RECORDS // max(1, files)))


def within(found: Sequence[tuple[str, FileEntries]], most: int) -> list[tuple[str, FileEntries]]:
    """Return the files' entries, of too many each file's own first and then the longest.

    Args:
        found: Files by path.
        most: Most entries of all together.
    """
    if sum(len(file.entries) for _, file in found) <= most:
        return list(found)
    ranked = sorted(
        (entry.kind != "file", -entry.lines, number, place)
        for number, (_, file) in enumerate(found)
        for place, entry in enumerate(file.entries)
    )
    chosen = {(number, place) for _, _, number, place in ranked[:most]}
    kept = []
    for number, (path, file) in enumerate(found):
        entries = tuple(one for place, one in enumerate(file.entries) if (number, place) in chosen)
        kept.append((path, FileEntries(entries, file.dropped + len(file.entries) - len(entries))))
    return kept


def file_entries(reader: Reader, path: str, max_bytes: int = DEFAULT_FILE_BYTES) -> FileEntries:
    """Return the entries of one file as it is now, none where it can't be read. Blocks."""
    try:
        with reader.open(path) as file:
            total_bytes = file.seek(0, os.SEEK_END)
            file.seek(0)
            data = file.read(min(max_bytes, total_bytes))
    except (ToolError, OSError):
        return FileEntries()
    return entries_of(path, data, total_bytes)


def _found(
    reader: Reader, paths: Sequence[str], stop: Callable[[], bool]
) -> Iterator[tuple[str, FileEntries]]:
    for number, path in enumerate(paths):
        if stop():
            raise ExecutionError(f"can't remember the files: stopped after {number} of {len(paths)}")
        yield path, file_entries(reader, path)


def _record(path: str, entry: Entry) -> NewRecord:
    return NewRecord(
        text=entry.text, type="free", source=str(Source(path, entry.first, entry.last)), trust="foreign"
    )
