"""Remembering: the tool by which Main puts into memory what files define and say.

Workers can't store, and what they hand up is journaled. So Main reads the files once more, for their entries
alone, while the Branches it has spawned survey them; of all of it only amounts come into the journal.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field

from sessiontree.contracts.capabilities import MEMORY_WRITER, READER
from sessiontree.contracts.context import ToolContext
from sessiontree.contracts.errors import ExecutionError, ToolError
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.memory import MAX_SOURCE_CHARS, MAX_STORED_AT_ONCE, NewRecord, Source
from sessiontree.contracts.ports import MemoryWriter, Reader
from sessiontree.contracts.results import ToolResult
from sessiontree.contracts.tiers import PermissionTier
from sessiontree.contracts.tool import MAIN_AND_BRANCH, Tool
from sessiontree.survey.entries import MAX_FILE_ENTRIES, FileEntries, entries_of
from sessiontree.survey.entry import SurveyEntry
from sessiontree.survey.ground import Ground, StoppedLooking
from sessiontree.survey.plan import DEFAULT_FILE_BYTES, plan
from sessiontree.survey.scan import scan

MAX_SURVEY_RECORDS = 200_000
"""Most records of one survey, beside one of each file."""
_MAX_PATH_CHARS = MAX_SOURCE_CHARS - len("#L-L") - 2 * 9


class RememberFilesParams(BaseModel):
    """Which files to remember."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: str = Field(
        min_length=1,
        max_length=4096,
        description="A top folder, or '.' for the files in the root itself, as the plan names them.",
    )
    leave_out: tuple[str, ...] = Field(default=(), max_length=100, description="Files not to remember.")
    records_per_file: int = Field(
        default=MAX_FILE_ENTRIES,
        ge=1,
        le=MAX_FILE_ENTRIES,
        description="Most records of a file on average; what one does not need another may have.",
    )


class Remembered(BaseModel):
    """What came of it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    files: int = 0
    """Files with records."""
    records: int = 0
    """Records that are in memory now."""
    dropped: int = 0
    """Records beyond the bounds."""


class RememberFiles(Tool[RememberFilesParams]):
    """Stores a record per definition, section and file, each with the lines it comes from, as foreign text.

    A file that can't be read has none; the survey names it as a problem already. One whose name holds what is
    invisible has none either, because it could not be cited; what it would have counts as dropped. A call
    that is repeated stores under the same keys, so nothing is there twice; where files have changed in
    between, some records of them may be those from before.
    """

    name: ClassVar[str] = "remember_files"
    description: ClassVar[str] = (
        "Put into memory what the files of a folder define and say: a record per function, class, section "
        "and file, with its lines, so that later questions find the place."
    )
    Params: ClassVar[type[BaseModel]] = RememberFilesParams
    label: ClassVar[str] = "Remember files"
    section: ClassVar[str] = "survey"
    tier: ClassVar[PermissionTier] = PermissionTier.WORKSPACE
    kinds: ClassVar[frozenset[SessionKind]] = MAIN_AND_BRANCH
    capabilities: ClassVar[frozenset[str]] = frozenset({READER.name, MEMORY_WRITER.name})
    idempotent: ClassVar[bool] = True
    sequential: ClassVar[bool] = True

    async def execute(self, params: RememberFilesParams, ctx: ToolContext) -> ToolResult:
        """Read group after group in a thread, each stored while the next is read.

        Returns:
            A :class:`Remembered`.

        Raises:
            PermissionDenied: the session holds no reader, or may not store.
            ExecutionError: the folder can't be listed, or the call was stopped; what is stored already stays.
            MemoryFailed: memory can't take the records.
        """
        reader, writer = ctx.require(READER), ctx.require(MEMORY_WRITER)
        abandoned = threading.Event()
        try:
            done = await _remember(params, reader, writer, ctx, lambda: abandoned.is_set() or ctx.cancelled)
        except StoppedLooking:
            raise ExecutionError(f"can't remember {params.folder!r}: the call was stopped") from None
        finally:
            # the thread of a cancelled call stops at the next file
            abandoned.set()
        return ToolResult(
            output=done.model_dump(mode="json"), display=f"{done.records:,} records of {done.files:,} files"
        )


async def _remember(
    params: RememberFilesParams,
    reader: Reader,
    writer: MemoryWriter,
    ctx: ToolContext,
    stop: Callable[[], bool],
) -> Remembered:
    ground = Ground(reader, params.folder, frozenset(params.leave_out), stop)
    found = await asyncio.to_thread(scan, ground)
    done = Remembered()
    async with _Storing(writer, ctx.call_id) as storing:
        for folder in plan(found.files):
            for paths in folder.groups:
                group = await asyncio.to_thread(_read, reader, paths, params.records_per_file, stop)
                records = [_record(path, entry) for path, file in group for entry in file.entries]
                await storing.take(records)
                done = Remembered(
                    files=done.files + sum(1 for _, file in group if file.entries),
                    records=done.records + len(records),
                    dropped=done.dropped + sum(file.dropped for _, file in group),
                )
    return done


class _Storing:
    """Stores as many records at once as memory takes, one store at a time, while others are being read.

    The n-th store of a call has the n-th key, whatever it holds.
    """

    def __init__(self, writer: MemoryWriter, call_id: str) -> None:
        self._writer = writer
        self._call_id = call_id
        self._waiting: list[NewRecord] = []
        self._stores = 0
        self._running: asyncio.Task[list[str]] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            if self._waiting:
                await self._store()
            await self._stored()
        elif self._running is not None:
            self._running.cancel()

    async def take(self, records: Sequence[NewRecord]) -> None:
        """Store records soon; returns once there is little left to store."""
        self._waiting.extend(records)
        while len(self._waiting) >= MAX_STORED_AT_ONCE:
            await self._store()

    async def _store(self) -> None:
        await self._stored()
        batch = self._waiting[:MAX_STORED_AT_ONCE]
        del self._waiting[:MAX_STORED_AT_ONCE]
        storing = self._writer.store(batch, key=f"{self._call_id}/{self._stores}")
        self._stores += 1
        self._running = asyncio.ensure_future(storing)

    async def _stored(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            await running


def _read(
    reader: Reader, paths: Sequence[str], records_per_file: int, stop: Callable[[], bool]
) -> list[tuple[str, FileEntries]]:
    """Return what is to be remembered of a group of files; blocks."""
    found = []
    for path in paths:
        if stop():
            raise StoppedLooking
        file = file_entries(reader, path)
        # memory takes no source that could deceive an eye
        is_citable = path.isprintable() and len(path) <= _MAX_PATH_CHARS
        found.append((path, file if is_citable else FileEntries(dropped=len(file.entries) + file.dropped)))
    return within(found, records_per_file * len(paths))


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
    """Return the entries of one file as it is now, none where it can't be read or is too odd. Blocks."""
    try:
        with reader.open(path) as file:
            total_bytes = file.seek(0, os.SEEK_END)
            file.seek(0)
            data = file.read(min(max_bytes, total_bytes))
    except (ToolError, OSError):
        return FileEntries()
    try:
        return entries_of(path, data, total_bytes)
    except Exception:  # noqa: BLE001 - one odd file must not cost the records of all others
        return FileEntries(dropped=1)


def _record(path: str, entry: SurveyEntry) -> NewRecord:
    return NewRecord(
        text=entry.text, type="free", source=str(Source(path, entry.first, entry.last)), trust="foreign"
    )
