"""A model that does what its messages say, and the trees that it answers in."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from sessiontree import (
    AsyncFunctionModel,
    Budget,
    Limits,
    ModelRequest,
    PermissionTier,
    PolicyConfig,
    Runtime,
    Tool,
    ToolContext,
    ToolPolicy,
    ToolResult,
    script_call,
)
from sessiontree.contracts.values.messages import UserMessage
from sessiontree.doors.conversations import Conversations
from tests.behaviour.effect_fakes import TOOLS

QUESTION: dict[str, Any] = {"question": "Which colour?", "options": [{"label": "red"}, {"label": "blue"}]}


class Seconds(BaseModel):
    """How long to wait."""

    model_config = ConfigDict(extra="forbid")

    seconds: float


class Pause(Tool[Seconds]):
    """Waits; an interruption ends it."""

    name = "pause"
    description = "Wait."
    Params: ClassVar[type[BaseModel]] = Seconds
    tier = PermissionTier.READ_ONLY

    async def execute(self, params: Seconds, ctx: ToolContext) -> ToolResult:
        await asyncio.sleep(params.seconds)
        return ToolResult(f"waited {params.seconds:g} s")


async def obey(request: ModelRequest) -> Any:
    """Answer a message ``verb words``; after a call, say its result."""
    last = request.messages[-1]
    if not isinstance(last, UserMessage):
        return f"done: {last.text}"
    verb, _, words = last.text.partition(" ")
    match verb:
        case "launch" | "append" | "look":
            return script_call(verb, text=words)
        case "twice":
            return [script_call("launch", text="one"), script_call("launch", text="two")]
        case "pause":
            return script_call("pause", seconds=float(words))
        case "ask":
            return script_call("ask_user", questions=[QUESTION])
        case "fail":
            await asyncio.sleep(float(words))
            raise RuntimeError("the model is broken")
        case "say":
            return words
        case _:
            return f"heard {last.text}"


def make_options(workspace: str, agent: str | None) -> dict[str, Any]:
    """Return the arguments of a tree; the agent ``spent`` may make no call at all."""
    folder = Path(workspace).parent / "programs"
    return {
        **({"programs": folder} if folder.is_dir() else {}),
        "model": AsyncFunctionModel(obey),
        "tools": (*TOOLS, Pause()),
        "policy": PolicyConfig(tools=ToolPolicy(allow=("*",))),
        "limits": Limits(approval_patience_s=None),
        "budget": Budget(tool_calls=0) if agent == "spent" else None,
        "agent": "default",
        "agents_md": None,
    }


def make_trees(place: Path) -> Conversations:
    """Return conversations whose journals are in a directory."""
    (place / "workspace").mkdir(parents=True, exist_ok=True)
    return Conversations(lambda: Runtime(place / "state", backend="local"), make_options)


def say(line: str) -> None:
    """Write a line to whoever started this program."""
    os.write(1, f"{line}\n".encode())
