"""A tool that keeps its session at work until somebody who opened the other end of a pipe closes it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sessiontree import PermissionTier, SessionKind, ToolResult, tool


@tool(tier=PermissionTier.READ_ONLY, kinds=list(SessionKind))
async def linger(pipe: str) -> ToolResult:
    """Read a pipe to its end.

    Args:
        pipe: Its path.
    """
    return ToolResult(output=await asyncio.to_thread(Path(pipe).read_text))
