"""``memory_forget``: removes what was remembered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from sessiontree.contracts.capabilities import MEMORY_WRITER
from sessiontree.contracts.context import ToolContext
from sessiontree.contracts.errors import ExecutionError, MemoryFailed
from sessiontree.contracts.memory import MAX_SOURCE_CHARS, Selection
from sessiontree.contracts.params import Trimmed
from sessiontree.contracts.results import ToolResult
from sessiontree.contracts.tiers import PermissionTier
from sessiontree.contracts.tool import MAIN_AND_BRANCH, Tool

MAX_IDS = 1_000
RecordId = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]


class MemoryForgetParams(BaseModel):
    """Which records."""

    model_config = ConfigDict(extra="forbid")

    ids: Annotated[list[RecordId], Trimmed()] = Field(
        default_factory=list, max_length=MAX_IDS, description="Ids of the records; give this or path."
    )
    path: str | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_SOURCE_CHARS,
        description="All records about this file, or about files below this directory; give this or ids.",
    )

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        if bool(self.ids) == (self.path is not None):
            raise ValueError("give ids or path, one of them")
        return self


class MemoryForget(Tool[MemoryForgetParams]):
    """Removes records for good."""

    name = "memory_forget"
    description = (
        "Remove records from memory for good: by their ids, or all about a file or directory. Only what "
        "this session sees goes: its own, those of sessions above it, and what earlier trees of this agent "
        "and workspace left. Needs the owner's approval."
    )
    Params: ClassVar[type[BaseModel]] = MemoryForgetParams
    label = "Forget"
    section = "memory"
    tier = PermissionTier.ELEVATED
    kinds = MAIN_AND_BRANCH
    capabilities = frozenset({"memory_writer"})
    param_aliases: ClassVar[Mapping[str, str]] = {"id": "ids"}
    idempotent = True

    async def execute(self, params: MemoryForgetParams, ctx: ToolContext) -> ToolResult:
        """Remove the records; the output is ``{status: "forgotten", count}``, details name their ids.

        Raises:
            ExecutionError: memory can't be written now.
            PermissionDenied: the session forgets nothing.
        """
        selection = Selection(ids=tuple(dict.fromkeys(params.ids)), path=params.path)
        try:
            gone = await ctx.require(MEMORY_WRITER).forget(selection, key=ctx.call_id)
        except MemoryFailed as error:
            raise ExecutionError(f"it is not known to be forgotten: {error}; try again") from error
        return ToolResult(
            output={"status": "forgotten", "count": len(gone)},
            display=f"forgot {len(gone)} records",
            details={"ids": list(gone)},
        )
