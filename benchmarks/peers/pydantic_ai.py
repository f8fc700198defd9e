"""pydantic-ai with a ``FunctionModel``; its usage is given, so that none is estimated."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage, UsageLimits

from benchmarks.peers.work import ARGUMENTS_JSON, LAST_WORD, TOOL, Script

PACKAGE = "pydantic-ai-slim"


def prepare(turns: int) -> Callable[[], Awaitable[None]]:
    """Return what runs the agent once."""
    script = Script(turns)
    usage = RequestUsage(input_tokens=1, output_tokens=1)

    async def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        call_id = script.next_call()
        if call_id is None:
            return ModelResponse(parts=[TextPart(LAST_WORD)], usage=usage)
        return ModelResponse(parts=[ToolCallPart(TOOL, ARGUMENTS_JSON, call_id)], usage=usage)

    agent = Agent(FunctionModel(reply))

    @agent.tool_plain
    async def nothing(path: str, limit: int = 10) -> str:
        """Does nothing."""
        return script.executed(path, limit)

    limits = UsageLimits(request_limit=None)

    async def run() -> None:
        script.finish((await agent.run("go", usage_limits=limits)).output)

    return run
