"""Removal: the tool that takes an earlier survey away: its report, and what it left in memory."""

from __future__ import annotations

import asyncio
from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from sessiontree.contracts.capabilities import MEMORY, MEMORY_WRITER, READER, WRITER
from sessiontree.contracts.context import ToolContext
from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.memory import Selection
from sessiontree.contracts.ports import Reader
from sessiontree.contracts.results import ToolResult
from sessiontree.contracts.tiers import PermissionTier
from sessiontree.contracts.tool import Tool
from sessiontree.survey.mark import MAX_MARKS, remembered_surveys
from sessiontree.survey.report import is_report

_FIRST_LINE_BYTES = 200


class RemoveSurveyParams(BaseModel):
    """Which survey to remove: who allows it reads all of this."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str = Field(
        min_length=1, max_length=4096, description="The report to remove, relative to the workspace."
    )
    trees: list[Annotated[str, Field(min_length=1, max_length=100)]] = Field(
        default=[], max_length=MAX_MARKS, description="Trees whose surveys memory is to forget."
    )
    records: int = Field(default=0, ge=0, description="How many records they left.")


class RemoveSurvey(Tool[RemoveSurveyParams]):
    """Removes the report of an earlier survey and all records of its tree, and nothing else.

    The file must begin with our marker, and each tree must have left a survey's mark in memory. Everything is
    checked before anything is removed; records go first, so that a report that still stands tells of what is
    left to do. Where the report is gone already the records alone are removed.
    """

    name: ClassVar[str] = "remove_survey"
    description: ClassVar[str] = (
        "Remove the SURVEY.md an earlier survey wrote, and the records it left in memory; refuses any other "
        "file, and any tree that is no survey's."
    )
    Params: ClassVar[type[BaseModel]] = RemoveSurveyParams
    label: ClassVar[str] = "Remove earlier survey"
    section: ClassVar[str] = "survey"
    tier: ClassVar[PermissionTier] = PermissionTier.ELEVATED
    kinds: ClassVar[frozenset[SessionKind]] = frozenset({SessionKind.MAIN})
    capabilities: ClassVar[frozenset[str]] = frozenset({READER.name, WRITER.name})
    optional_capabilities: ClassVar[frozenset[str]] = frozenset({MEMORY.name, MEMORY_WRITER.name})
    sequential: ClassVar[bool] = True
    changes: ClassVar[tuple[str, ...]] = ("path",)

    async def execute(self, params: RemoveSurveyParams, ctx: ToolContext) -> ToolResult:
        """Check report and trees, then forget the records and remove the report.

        Raises:
            PermissionDenied: the session may not read, write or forget there.
            ExecutionError: the report does not exist, is no regular file, or is no report of a survey; or a
                tree is no survey's.
            MemoryFailed: memory can't forget now; the report stays.
        """
        size = await asyncio.to_thread(_size_of_report, params.path, ctx.require(READER))
        if size is None and not params.trees:
            raise ExecutionError(f"can't remove {params.path!r}: it does not exist")
        forgotten = await _forget(params.trees, ctx) if params.trees else 0
        if size is not None:
            await asyncio.to_thread(ctx.require(WRITER).remove, params.path)
        display = "" if size is None else f"removed {params.path} ({size:,} bytes)"
        if params.trees:
            display += f"{'; ' if display else ''}forgot {forgotten:,} records"
        return ToolResult(
            output={"removed": params.path, "bytes": size or 0, "records": forgotten}, display=display
        )


async def _forget(trees: list[str], ctx: ToolContext) -> int:
    """Forget what surveys left and return how many records that were."""
    surveys = {one.tree for one in await remembered_surveys(ctx.require(MEMORY))}
    others = sorted(set(trees) - surveys)
    if others:
        raise ExecutionError(
            f"can't forget the records of {', '.join(others)}: no survey of that name left any"
        )
    writer = ctx.require(MEMORY_WRITER)
    forgotten = 0
    for tree in dict.fromkeys(trees):
        forgotten += len(await writer.forget(Selection(tree_id=tree), key=f"{ctx.call_id}/{tree}"))
    return forgotten


def _size_of_report(path: str, reader: Reader) -> int | None:
    """Return the size of a report in bytes, None where nothing stands.

    Raises:
        ExecutionError: something else stands there.
    """
    folder, _, name = path.rpartition("/")
    # a listing tells a link from a file, opening does not
    entries = [entry for entry in reader.list(folder or ".") if entry.path.rpartition("/")[2] == name]
    if not entries:
        return None
    if entries[0].type != "file":
        raise ExecutionError(f"can't remove {path!r}: it is a {entries[0].type}, not a regular file")
    with reader.open(path) as file:
        first_line = file.read(_FIRST_LINE_BYTES).partition(b"\n")[0]
    if not is_report(first_line.decode("latin-1")):
        raise ExecutionError(f"can't remove {path!r}: its first line is not that of a survey report")
    return entries[0].size
