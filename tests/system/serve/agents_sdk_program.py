"""A program of the OpenAI Agents SDK whose model is a tree; ``make setup-agents`` makes its environment.

It gets the origin of a door, a token, and ``responses`` or ``chat``; it prints as JSON what it saw.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

RAN: list[str] = []
"""What the client's own tool was called with."""


@function_tool  # type: ignore[untyped-decorator]
def look_up(city: str) -> str:
    """Return the weather of a city."""
    RAN.append(city)
    return f"rain in {city}"


async def main(origin: str, token: str, protocol: str) -> None:
    """Ask, hand over to another agent, and ask for a stream."""
    set_tracing_disabled(disabled=True)
    client = AsyncOpenAI(api_key=token, base_url=f"{origin}/v1", max_retries=0)
    kind: Any = OpenAIResponsesModel if protocol == "responses" else OpenAIChatCompletionsModel
    model = kind(model="default", openai_client=client)
    expert = Agent(name="expert", instructions="Know it.", model=model)
    asker = Agent(name="asker", instructions="Ask.", model=model, tools=[look_up], handoffs=[expert])
    config = RunConfig(tracing_disabled=True)
    weather = await Runner.run(asker, "look up Oslo", run_config=config)
    handed = await Runner.run(asker, "hand over", run_config=config)
    streamed = Runner.run_streamed(asker, "look up Rome", run_config=config)
    pieces = [
        event.data.delta
        async for event in streamed.stream_events()
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
    ]
    seen = {
        "weather": weather.final_output,
        "handed": [handed.last_agent.name, handed.final_output],
        "streamed": ["".join(pieces), streamed.final_output],
        "ran": RAN,
    }
    await client.close()
    sys.stdout.write(json.dumps(seen) + "\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
