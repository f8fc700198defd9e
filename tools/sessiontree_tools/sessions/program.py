"""``program``: a small program that the model writes, over the session's tools and children.

``tool_search`` finds those tools, for a model that is offered only the two.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.recorded.programs import DEFAULT_FOUND
from sessiontree.contracts.recorded.results import ToolResult
from sessiontree.contracts.tools.context import ToolContext
from sessiontree.contracts.tools.program_tool import ProgramTool, ToolFinder
from sessiontree.contracts.tools.tool import ALL_KINDS, ToolFlag

MAX_CODE_CHARS = 100_000
MAX_TIMEOUT_S = 30 * 24 * 3600
NAME = r"^[a-z][a-z0-9_]*$"
"""What a variable that a program starts with is called."""
MAX_QUERY_CHARS = 400
MAX_FOUND = 50


class ProgramParams(BaseModel):
    """The program, and values that it starts with."""

    model_config = ConfigDict(extra="forbid")

    code: str = Field(
        min_length=1, max_length=MAX_CODE_CHARS, description="Only its last expression comes back to you."
    )
    inputs: dict[Annotated[str, Field(pattern=NAME)], Any] | None = Field(
        default=None, description="Its variables."
    )
    timeout_s: float | None = Field(default=None, gt=0, le=MAX_TIMEOUT_S, description="Of all its time.")


class RunProgram(ProgramTool[ProgramParams]):
    """Runs a program whose calls are calls of the session."""

    name = "program"
    description = (
        "Run Python over your tools: loops, asyncio.gather, try. Each tool is an async function with keyword "
        "arguments, and timeout_s: text = await read(path='a.txt'). No classes with bases, yield, "
        "create_task, files or other modules than asyncio, json, re, math, datetime, collections, itertools."
    )
    brief = True
    Params: ClassVar[type[BaseModel]] = ProgramParams
    label = "Program"
    section = "sessions"
    profiles = frozenset({"coding"})
    flags = frozenset({ToolFlag.OPTIONAL})
    tier = PermissionTier.READ_ONLY
    kinds = ALL_KINDS
    idempotent = True

    async def execute(self, params: ProgramParams, ctx: ToolContext) -> ToolResult:
        """Raise an error: a session's host gives the program to an interpreter instead.

        Raises:
            ExecutionError: always.
        """
        raise ExecutionError(f"{self.name} is run by a session's host")


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
