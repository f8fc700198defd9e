"""``tool_search``: finds tools of the session by words, for programs of a model that is not offered them."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from sessiontree.contracts.context import ToolContext
from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.program_tool import ToolFinder
from sessiontree.contracts.programs import DEFAULT_FOUND
from sessiontree.contracts.results import ToolResult
from sessiontree.contracts.tool import ALL_KINDS

MAX_QUERY_CHARS = 400
MAX_FOUND = 50


class ToolSearchParams(BaseModel):
    """What the tool is for, in words."""

    model_config = ConfigDict(extra="forbid")

    query: str = Field(
        min_length=1, max_length=MAX_QUERY_CHARS, description="Words for what it does, or its name."
    )
    limit: int = Field(default=DEFAULT_FOUND, ge=1, le=MAX_FOUND, description="Most tools to show.")


class ToolSearch(ToolFinder[ToolSearchParams]):
    """Returns names, signatures and one-line descriptions of tools that the session holds."""

    name = "tool_search"
    description = "Find tools by words; programs call them by the signatures that it shows."
    brief = True
    Params: ClassVar[type[BaseModel]] = ToolSearchParams
    label = "Search tools"
    section = "sessions"
    profiles = frozenset({"coding"})
    tier = PermissionTier.READ_ONLY
    kinds = ALL_KINDS
    idempotent = True

    async def execute(self, params: ToolSearchParams, ctx: ToolContext) -> ToolResult:
        """Raise an error: a session's host answers instead.

        Raises:
            ExecutionError: always.
        """
        raise ExecutionError(f"{self.name} is answered by a session's host")
