"""openai-agents with a ``Model`` of its own, tracing off."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage, function_tool, set_tracing_disabled
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from benchmarks.peers.work import ARGUMENTS_JSON, LAST_WORD, TOOL, Script

PACKAGE = "openai-agents"


class ScriptedModel(Model):
    """Says what the script says."""

    def __init__(self, script: Script) -> None:
        """Bind the script."""
        self._script = script

    async def get_response(self, *arguments: Any, **settings: Any) -> ModelResponse:
        """Return the next call, or the final message."""
        call_id = self._script.next_call()
        if call_id is None:
            text = ResponseOutputText(annotations=[], text=LAST_WORD, type="output_text")
            message = ResponseOutputMessage(
                id="m", content=[text], role="assistant", status="completed", type="message"
            )
            return ModelResponse([message], Usage(), None)
        call = ResponseFunctionToolCall(
            arguments=ARGUMENTS_JSON, call_id=call_id, name=TOOL, type="function_call"
        )
        return ModelResponse([call], Usage(), None)

    def stream_response(self, *arguments: Any, **settings: Any) -> AsyncIterator[Any]:
        """Nothing is streamed here."""
        raise NotImplementedError


def prepare(turns: int) -> Callable[[], Awaitable[None]]:
    """Return what runs the agent once."""
    set_tracing_disabled(True)
    script = Script(turns)

    @function_tool
    async def nothing(path: str, limit: int = 10) -> str:
        """Does nothing."""
        return script.executed(path, limit)

    agent = Agent(name="a", model=ScriptedModel(script), tools=[nothing])
    settings = RunConfig(tracing_disabled=True)

    async def run() -> None:
        result = await Runner.run(agent, "go", max_turns=turns + 1, run_config=settings)
        script.finish(result.final_output)

    return run
