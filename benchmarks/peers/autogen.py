"""autogen-agentchat's ``AssistantAgent``, its tool loop as long as the run; reset after each run."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_core import EVENT_LOGGER_NAME, TRACE_LOGGER_NAME, CancellationToken, FunctionCall
from autogen_core.models import ChatCompletionClient, CreateResult, ModelFamily, ModelInfo, RequestUsage
from autogen_core.tools import FunctionTool

from benchmarks.peers.work import ARGUMENTS_JSON, DESCRIPTION, LAST_WORD, TOOL, Script

PACKAGE = "autogen-agentchat"


class ScriptedClient(ChatCompletionClient):
    """Says what the script says."""

    def __init__(self, script: Script) -> None:
        """Bind the script."""
        self._script = script
        self._used = RequestUsage(prompt_tokens=0, completion_tokens=0)

    async def create(self, *arguments: Any, **settings: Any) -> CreateResult:
        """Return the next call, or the final message."""
        call_id = self._script.next_call()
        if call_id is None:
            return CreateResult(finish_reason="stop", content=LAST_WORD, usage=self._used, cached=False)
        call = FunctionCall(id=call_id, name=TOOL, arguments=ARGUMENTS_JSON)
        return CreateResult(finish_reason="function_calls", content=[call], usage=self._used, cached=False)

    def create_stream(self, *arguments: Any, **settings: Any) -> AsyncGenerator[str | CreateResult, None]:
        """Nothing is streamed here."""
        raise NotImplementedError

    async def close(self) -> None:
        """Nothing is open."""

    def actual_usage(self) -> RequestUsage:
        """Return nothing used."""
        return self._used

    def total_usage(self) -> RequestUsage:
        """Return nothing used."""
        return self._used

    def count_tokens(self, *arguments: Any, **settings: Any) -> int:
        """Return nothing used."""
        return 0

    def remaining_tokens(self, *arguments: Any, **settings: Any) -> int:
        """Return room enough."""
        return 1_000_000

    @property
    def capabilities(self) -> ModelInfo:
        """Return what it can."""
        return self.model_info

    @property
    def model_info(self) -> ModelInfo:
        """Return what it can."""
        return ModelInfo(
            vision=False,
            function_calling=True,
            json_output=False,
            family=ModelFamily.UNKNOWN,
            structured_output=False,
            multiple_system_messages=False,
        )


def prepare(turns: int) -> Callable[[], Awaitable[None]]:
    """Return what runs the agent once."""
    for name in (EVENT_LOGGER_NAME, TRACE_LOGGER_NAME, "autogen_core", "autogen_agentchat"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    script = Script(turns)
    client = ScriptedClient(script)

    async def nothing(path: str, limit: int = 10) -> str:
        return script.executed(path, limit)

    tool = FunctionTool(nothing, DESCRIPTION, name=TOOL)
    agent = AssistantAgent("a", client, tools=[tool], max_tool_iterations=turns + 1)

    async def run() -> None:
        result = await agent.run(task="go")
        await agent.on_reset(CancellationToken())
        script.finish(getattr(result.messages[-1], "content", None))

    return run
