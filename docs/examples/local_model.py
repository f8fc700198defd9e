"""Three Workers with typed results over a small real model on this machine; needs `make setup-local`."""

import asyncio
from dataclasses import dataclass
from typing import Literal

from sessiontree import AgentSpec, ModelSettings, SessionTree

PROMPT = "You answer questions about things. A cat is an animal, a rose is a plant, a hammer is a tool."


@dataclass
class Thing:
    name: str
    kind: Literal["animal", "plant", "tool"]


async def main() -> None:
    agents = {"default": AgentSpec(prompt=PROMPT, settings=ModelSettings(temperature=0), tools=())}
    async with SessionTree(".", model="local:smollm2", agents=agents) as tree:
        tasks = [f"What is {thing}?" for thing in ("a horse", "an oak", "a saw")]
        for answer in await tree.main.map("worker", tasks, result_type=Thing):
            print(answer.output, f"({answer.usage.output_tokens} tokens)")
        async for piece in tree.main.send("Say hello in one short sentence."):
            print(piece, end="", flush=True)
        print()


asyncio.run(main())
