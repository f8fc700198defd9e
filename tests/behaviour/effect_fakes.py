"""Tools whose effects can be counted from outside: each run appends one line to a file of the workspace."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from sessiontree import PermissionTier, SessionKind, Tool, ToolContext, ToolResult

LOG = "effects.log"


class Words(BaseModel):
    """What to write down."""

    model_config = ConfigDict(extra="forbid")

    text: str = "x"


class Append(Tool[Words]):
    """Changes the workspace."""

    name = "append"
    description = "Append a line to the log."
    Params: ClassVar[type[BaseModel]] = Words
    tier = PermissionTier.WORKSPACE

    async def execute(self, params: Words, ctx: ToolContext) -> ToolResult:
        with (ctx.workspace_root / LOG).open("a") as log:
            log.write(f"{ctx.call_id} {params.text}\n")
        return ToolResult(f"appended {params.text}")


class Launch(Append):
    """Needs a human's yes."""

    name = "launch"
    description = "Do something irreversible."
    tier = PermissionTier.ELEVATED


class Look(Tool[Words]):
    """Changes nothing; everybody may hold it."""

    name = "look"
    description = "Look at something."
    Params: ClassVar[type[BaseModel]] = Words
    tier = PermissionTier.READ_ONLY
    kinds = frozenset(SessionKind)

    async def execute(self, params: Words, ctx: ToolContext) -> ToolResult:
        return ToolResult(f"looked at {params.text}")


TOOLS: tuple[Tool[Words], ...] = (Append(), Launch(), Look())


def effects(workspace: Path) -> list[tuple[str, str]]:
    """Return (call id, text) of every run so far, oldest first."""
    log = workspace / LOG
    lines = log.read_text().splitlines() if log.exists() else []
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in lines]
