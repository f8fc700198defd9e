"""LangGraph's agent, as ``langchain.agents.create_agent`` builds it now, without a checkpointer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from pydantic import PrivateAttr

from benchmarks.peers.work import ARGUMENTS, DESCRIPTION, LAST_WORD, TOOL, NothingParams, Script

PACKAGE = "langgraph"


class ScriptedModel(BaseChatModel):
    """Says what the script says."""

    _script: Script = PrivateAttr()

    def __init__(self, script: Script) -> None:
        """Bind the script."""
        super().__init__()
        self._script = script

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **settings: Any) -> ScriptedModel:
        """Return itself: a script needs no tools reported."""
        return self

    def _generate(self, messages: list[BaseMessage], *arguments: Any, **settings: Any) -> ChatResult:
        call_id = self._script.next_call()
        if call_id is None:
            message = AIMessage(LAST_WORD)
        else:
            message = AIMessage("", tool_calls=[{"name": TOOL, "args": ARGUMENTS, "id": call_id}])
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _agenerate(self, messages: list[BaseMessage], *arguments: Any, **settings: Any) -> ChatResult:
        return self._generate(messages)


def prepare(turns: int) -> Callable[[], Awaitable[None]]:
    """Return what runs the agent once."""
    script = Script(turns)

    @tool(TOOL, description=DESCRIPTION, args_schema=NothingParams)
    async def nothing(path: str, limit: int = 10) -> str:
        return script.executed(path, limit)

    agent = create_agent(ScriptedModel(script), [nothing])
    settings = {"recursion_limit": 2 * turns + 5}

    async def run() -> None:
        state = await agent.ainvoke({"messages": [("user", "go")]}, settings)
        script.finish(state["messages"][-1].content)

    return run
