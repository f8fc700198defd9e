"""The shipped contexts hold what their kind may hold, and the fakes write down what was asked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from sessiontree.contracts.errors import PermissionDenied, SpawnRefused, ValidationError
from sessiontree.contracts.handles.ports import SpawnRequest
from sessiontree.contracts.kinds import PermissionTier, SessionKind
from sessiontree.contracts.recorded.capabilities import CAPABILITIES, WRITER, list_capabilities
from sessiontree.contracts.recorded.results import ToolResult
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.contracts.tools.context import ToolContext
from sessiontree.contracts.tools.decorator import tool
from sessiontree.contracts.tools.tool import RawTool, Tool
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.testing.context import RecordingChannel, RecordingSessions, call_tool, make_context
from sessiontree.workspace import WorkspaceReader, WorkspaceWriter


class _Inner(BaseModel):
    count: int


class _Params(BaseModel):
    inner: _Inner


class Counting(Tool[_Params]):
    """Says the number it was given."""

    name = "counting"
    description = "Says the number."
    Params = _Params  # type: ignore[mutable-override]

    async def execute(self, params: _Params, ctx: ToolContext) -> ToolResult:
        """Return the number."""
        return ToolResult(output=params.inner.count)


class Raw(RawTool):
    """Says what it was given."""

    name = "raw"
    description = "Says it."
    parameters: Mapping[str, JsonValue] = {"type": "object"}

    async def execute(self, params: Any, ctx: ToolContext) -> ToolResult:
        """Return the arguments."""
        return ToolResult(output=params)


@pytest.mark.parametrize("kind", list(SessionKind))
def test_context_holds_no_more_than_its_kind_may(tmp_path: Path, kind: SessionKind) -> None:
    """Defaults follow the table of kinds, so a tool tested here meets the rights it will have."""
    ctx = make_context(tmp_path, kind)
    held = {name for name in CAPABILITIES if getattr(ctx, name) is not None}
    assert held == list_capabilities(kind) & {"reader", "writer", "channel", "sessions", "subtree", "images"}
    assert ctx.kind is kind
    assert ctx.workspace_root == tmp_path
    assert not ctx.cancelled


def test_worker_cannot_be_given_what_it_never_holds(tmp_path: Path) -> None:
    """A test that would prove nothing is refused."""
    with pytest.raises(ValueError, match="never holds a writer"):
        make_context(tmp_path, SessionKind.WORKER, writer=WorkspaceWriter(tmp_path))
    with pytest.raises(ValueError, match="never holds a channel"):
        make_context(tmp_path, SessionKind.WORKER, channel=RecordingChannel())


def test_handle_may_be_taken_away(tmp_path: Path) -> None:
    """None means none, also where the kind would allow it."""
    ctx = make_context(tmp_path, reader=WorkspaceReader(tmp_path), writer=None)
    with pytest.raises(PermissionDenied):
        ctx.require(WRITER)


async def test_tool_alone_is_given_what_it_declares(tmp_path: Path) -> None:
    """A declaration that is missing shows in the tool's own test."""

    @tool(tier=PermissionTier.WORKSPACE)
    def careless(ctx: ToolContext) -> str:
        """Write without having said so."""
        return ctx.require(WRITER).write("a", b"").path

    @tool(tier=PermissionTier.WORKSPACE, capabilities=[WRITER])
    def careful(ctx: ToolContext) -> str:
        """Write."""
        return ctx.require(WRITER).write("a", b"").path

    with pytest.raises(PermissionDenied, match="tool 'careless' does not declare capability 'writer'"):
        await call_tool(careless, make_context(tmp_path))
    assert (await call_tool(careful, make_context(tmp_path))).output == "a"


async def test_names_and_standing_fit_together(tmp_path: Path) -> None:
    """Session id, agent and report tell the same story."""
    config = AgentConfig(agent_id="reviewer")
    ctx = make_context(tmp_path, SessionKind.BRANCH, config=config, call_id="call-9")
    report = await ctx.status.report()
    assert (ctx.session_id, ctx.agent_id, ctx.call_id) == ("main/b1", "reviewer", "call-9")
    assert (report.session_id, report.kind, report.depth) == (ctx.session_id, ctx.kind, 1)


async def test_sessions_are_counted_once_per_key() -> None:
    """The same key is the same child; a refusal starts none."""
    sessions = RecordingSessions("main/b3")
    worker = SpawnRequest(SessionKind.WORKER, "look")
    branch = SpawnRequest(SessionKind.BRANCH, "think")
    ids = [
        await sessions.spawn(request, key=key)
        for request, key in ((worker, "a"), (branch, "b"), (worker, "a"))
    ]
    assert ids == ["main/b3/w1", "main/b3/b2", "main/b3/w1"]
    assert sessions.spawned == {"a": worker, "b": branch}
    sessions.refusal = SpawnRefused("main/b3", "no")
    with pytest.raises(SpawnRefused):
        await sessions.spawn(worker, key="c")
    assert list(sessions.spawned) == ["a", "b"]


async def test_calling_a_tool_validates_first(tmp_path: Path) -> None:
    """Arguments arrive as the tool's model, or the first that does not fit is named."""
    ctx = make_context(tmp_path)
    assert (await call_tool(Counting(), ctx, inner={"count": 3})).output == 3
    with pytest.raises(ValidationError) as caught:
        await call_tool(Counting(), ctx, inner={"count": "many"})
    assert caught.value.field == "/inner/count"
    assert (await call_tool(Raw(), ctx, a=1)).output == {"a": 1}
