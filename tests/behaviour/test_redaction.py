"""A secret a redactor knows is nowhere: not in the journal, not before the model, not on a screen."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel, ConfigDict

from sessiontree import (
    Artifact,
    AsyncFunctionModel,
    ExecutionError,
    FunctionModel,
    Hook,
    HookContext,
    ModelRequest,
    PermissionTier,
    Redact,
    Tool,
    ToolContext,
    ToolResult,
    script_call,
)
from sessiontree.contracts.reports.events import Event, ToolExecutionEnd, ToolExecutionUpdate
from sessiontree.contracts.tools.hooks import CalledTool, HookAnswer, HookResult, OnError
from sessiontree.models.answers import Answer
from tests.behaviour.fact_fixtures import PATIENCE_S, records
from tests.behaviour.tree_fixtures import Opener

SECRET = "open-sesame-1001"
PATHS = ("result", "error", "crash", "details", "display", "artifact", "progress", "hook", "invalid")


class Way(BaseModel):
    """How to let it out."""

    model_config = ConfigDict(extra="forbid")

    path: str


class Leak(Tool[Way]):
    """Lets a secret out in one of many ways."""

    name = "leak"
    description = "Tell."
    Params: ClassVar[type[BaseModel]] = Way
    tier = PermissionTier.WORKSPACE

    async def execute(self, params: Way, ctx: ToolContext) -> ToolResult:
        if params.path == "error":
            raise ExecutionError(f"GET https://x/?q={SECRET} failed")
        if params.path == "crash":
            raise ValueError(SECRET)
        if params.path == "progress":
            ctx.update({"read": SECRET})
            ctx.update("over")
            await asyncio.get_running_loop().run_in_executor(None, lambda: None)
        ways: dict[str, dict[str, Any]] = {
            "result": {"output": {"line": SECRET}},
            "details": {"output": "x", "details": {SECRET: [SECRET]}},
            "display": {"output": "x", "display": f"read {SECRET}"},
            "artifact": {"output": "x", "artifacts": (Artifact("blob", "x", data=SECRET),)},
        }
        return ToolResult(**ways.get(params.path, {"output": "x"}))


class Answerer(Hook):
    """Gives a result of its own that holds the secret."""

    def before_tool_call(self, call: CalledTool, ctx: HookContext) -> HookAnswer:
        return HookResult(ToolResult(SECRET)) if call.params["path"] == "hook" else None


class Screaming(Hook):
    """Fails over the result, and quotes it."""

    on_error: OnError = "block"

    def tool_result_persist(self, result: Any) -> Any:
        raise ValueError(str(result))


class Asker:
    """Calls the tool once, and keeps what the model is given afterwards."""

    def __init__(self, path: str) -> None:
        self.calls: Answer = (
            script_call("leak", path=path)
            if path != "invalid"
            else script_call("leak", path="x", **{SECRET: 1})
        )
        self.given = ""

    def __call__(self, request: ModelRequest) -> Answer:
        if self.given or len(request.messages) == 1:
            return self.calls if len(request.messages) == 1 else "went on"
        self.given = "".join(message.to_json() for message in request.messages[2:])
        return "went on"


@pytest.mark.short(3)
@pytest.mark.covers("REL-P48", "REL-L68")
@pytest.mark.slow
@pytest.mark.parametrize("screams", [False, True], ids=["redacted", "withheld"])
@pytest.mark.parametrize("path", PATHS)
async def test_known_secret_is_nowhere(open_tree: Opener, path: str, screams: bool) -> None:
    """P48: whatever way it takes, and where the redactor fails as well. A model's own call is the model's."""
    guard = Screaming() if screams else Redact([SECRET])
    model = FunctionModel(Asker(path))
    async with open_tree(model, tools=[Leak()], hooks=[Answerer(), guard]) as tree:
        reader = tree.progress()
        async with asyncio.timeout(PATIENCE_S):
            assert await tree.main.send("go") == "went on"
            seen: list[Event] = []
            while not seen or not isinstance(seen[-1], ToolExecutionEnd):
                seen.append((await reader.next()).event)
        reader.close()
        kept = [record.text for record in await records(tree) if '"kind":"turn_replied"' not in record.text]
        session = tree.main.history()
    assert any('"kind":"call_resolved"' in text for text in kept)
    assert [text for text in kept if SECRET in text] == []
    assert SECRET not in "".join(message.to_json() for message in session[2:])
    assert SECRET not in str(
        [event for event in seen if isinstance(event, ToolExecutionEnd | ToolExecutionUpdate)]
    )


async def recite(request: ModelRequest) -> Answer:
    """Let the secret out wherever a model can, but for the arguments of a call of its own."""
    if request.session_id != "main":
        return f"{SECRET} was all there was"
    if len(request.messages) == 1:
        heard = request.messages[0].text
        wish = script_call("sessions_spawn", kind="worker", task=f"find {heard}", label=heard[-20:])
        return [f"so {heard} {SECRET}", wish, script_call("message", text=f"{heard} it is")]
    return f"the word is {SECRET}"


@pytest.mark.covers("REL-P48")
@pytest.mark.on_ray
async def test_known_secret_in_messages_and_tasks_is_nowhere(open_tree: Opener) -> None:
    """P48: in what is sent to a session, said by it, asked of a child by program and model, and come back."""
    model = AsyncFunctionModel(recite)
    async with open_tree(model, hooks=[Redact([SECRET])]) as tree:
        reader = tree.progress()
        async with asyncio.timeout(PATIENCE_S):
            assert SECRET not in await tree.main.send(f"open with {SECRET}")
            child = await tree.main.spawn("worker", f"look for {SECRET}", label=f"on {SECRET}")
            assert SECRET not in (await child.result()).summary
            steered = await tree.main.send(f"{SECRET}, I said", mode="steer")
            assert SECRET not in steered
        kept = [record.text for record in await records(tree)]
        shown = str([progress.event for progress in reader.drain()])
        reader.close()
    assert any("open with \\u2039redacted\\u203a" in text for text in kept)
    assert any("look for \\u2039redacted\\u203a" in text for text in kept)
    assert any('"kind":"channel_said"' in text for text in kept)
    assert [text for text in kept if SECRET in text] == []
    assert SECRET not in shown
