"""What reads the web for a session is the session's for as long as it is embodied."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import BaseModel

from sessiontree import (
    WEB,
    PermissionTier,
    ScriptedModel,
    SessionClosed,
    SessionKind,
    SessionTree,
    Tool,
    ToolContext,
    ToolResult,
    WebSettings,
    script_call,
)
from sessiontree.contracts.handles.ports import SearchQuery, Web
from tests.unit.web.site_fakes import answer, serving


class Nothing(BaseModel):
    """No parameters."""


class Keep(Tool[Nothing]):
    """Keeps the handle it was given, which no tool should."""

    name = "keep"
    description = "Keep the handle."
    Params: ClassVar[type[BaseModel]] = Nothing
    tier = PermissionTier.READ_ONLY
    kinds = frozenset(SessionKind)
    capabilities = frozenset({"web"})

    def __init__(self, url: str) -> None:
        self.url = url
        self.kept: list[Web] = []

    async def execute(self, params: Nothing, ctx: ToolContext) -> ToolResult:
        web = ctx.require(WEB)
        self.kept.append(web)
        return ToolResult((await web.get(self.url)).body.decode())


async def test_handle_dies_with_the_adoption(tmp_path: Path) -> None:
    """Whoever kept it reads nothing for a session that has ended."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    async with serving(answer(b"hello")) as site:
        tool = Keep(site.url)
        tree = SessionTree(
            workspace,
            model=ScriptedModel([script_call("keep"), "done"]),
            tools=[tool],
            web=WebSettings(allow_private=(f"127.0.0.1:{site.port}",)),
            state_dir=tmp_path / "state",
            backend="local",
        )
        async with tree:
            worker = await tree.main.spawn("worker", "look")
            await worker.result()
        assert len(site.requests) == 1
        with pytest.raises(SessionClosed):
            await tool.kept[0].get(site.url)
        with pytest.raises(SessionClosed):
            await tool.kept[0].search(SearchQuery("x", 1))
    assert len(site.requests) == 1
