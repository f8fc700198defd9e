"""What one model turn plus one no-op ReadOnly call costs on the local backend, in microseconds.

Timed, with the journal on (FULL) and every acknowledgement inside the clock: from `send` to its reply, so
from the message over all turns to the last word being durable and handed back.

- `turn20_us`: a 20-turn run divided by its turns, median of runs; each run is one message to one session.
- `turn1000_us`: mean of turns 951 to 1,000 of one 1,000-turn run, by the times at which the model was asked.
- `parallel32_us`: one reply with 32 calls, per call.
- `cpu_us`: processor time of the whole process, all threads, per turn of the 20-turn runs.
- `floor_us`: the same turns and calls by a hand-written loop: validate, call, append; no rules, no journal.
- `ratio_1000`: turn1000_us over the mean of turns 11 to 20 of the same run, both by the same clock.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from benchmarks.report import read_options, show
from sessiontree import (
    AssistantMessage,
    Limits,
    ModelRequest,
    PermissionTier,
    SessionKind,
    SessionTree,
    Tool,
    ToolCall,
    ToolContext,
    ToolResult,
)
from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.messages import TextContent


class NothingParams(BaseModel):
    """Two fields, as a small real call has."""

    model_config = ConfigDict(extra="forbid")

    path: str
    limit: int = 10


class Nothing(Tool[NothingParams]):
    """Does nothing."""

    name = "nothing"
    description = "Does nothing."
    Params: ClassVar[type[BaseModel]] = NothingParams
    tier = PermissionTier.READ_ONLY
    kinds = frozenset(SessionKind)

    async def execute(self, params: NothingParams, ctx: ToolContext) -> ToolResult:
        """Return at once."""
        return ToolResult("ok")


class TurnModel:
    """Asks for `calls` no-op calls a turn, for `turns` turns after each message; notes when it was asked."""

    name = "turns"

    def __init__(self, turns: int, calls: int = 1) -> None:
        """Begin before the first message."""
        self._turns = turns
        arguments: dict[str, JsonValue] = {"path": "a.txt", "limit": 5}
        self._calls = tuple(ToolCall(f"c{index}", "nothing", arguments) for index in range(calls))
        self._left = turns
        self.asked: list[float] = []

    def reply(self, request: ModelRequest) -> AssistantMessage:
        """Return calls while turns are left, then text."""
        self.asked.append(time.perf_counter())
        if self._left == 0:
            self._left = self._turns
            return AssistantMessage((TextContent("done"),))
        self._left -= 1
        return AssistantMessage(self._calls, "toolUse")


async def _runs(turns: int, calls: int, runs: int) -> tuple[list[float], list[float], list[float]]:
    """Return seconds of each run, processor seconds of each run, and the last run's times of asking."""
    model = TurnModel(turns, calls)
    with tempfile.TemporaryDirectory() as place:
        tree = SessionTree(
            place,
            model=model,
            tools=(Nothing(),),
            builtin_tools=False,
            limits=Limits(max_turns=10_000),
            state_dir=f"{place}/state",
        )
        async with tree:
            await tree.main.send("warm up")
            walls: list[float] = []
            processor: list[float] = []
            for _ in range(runs):
                model.asked.clear()
                before = time.process_time()
                started = time.perf_counter()
                await tree.main.send("go")
                walls.append(time.perf_counter() - started)
                processor.append(time.process_time() - before)
    return walls, processor, model.asked


def _floor(turns: int) -> float:
    """Return the seconds a hand-written loop needs for the same turns."""
    model = TurnModel(turns)
    messages: list[Any] = []
    request: Any = None

    async def loop() -> None:
        while calls := model.reply(request).tool_calls:
            for call in calls:
                params = NothingParams.model_validate(call.arguments)
                result = await tool.execute(params, request)
                messages.append((call.id, result.text_for_model()))

    tool = Nothing()
    started = time.perf_counter()
    asyncio.run(loop())
    return time.perf_counter() - started


def main() -> None:
    """Measure and print."""
    options = read_options(__doc__.splitlines()[0] if __doc__ else "")
    runs = 10 if options.quick else 60
    long_turns = 300 if options.quick else 1000
    walls, processor, _ = asyncio.run(_runs(20, 1, runs))
    parallel, _, _ = asyncio.run(_runs(1, 32, runs))
    early: list[float] = []
    late: list[float] = []
    for _ in range(1 if options.quick else 5):
        _, _, asked = asyncio.run(_runs(long_turns, 1, 1))
        early.append((asked[20] - asked[10]) / 10)
        late.append((asked[long_turns] - asked[long_turns - 50]) / 50)
    floor = statistics.median(_floor(2000) / 2000 for _ in range(5))
    show(
        {
            "turn20_us": statistics.median(walls) / 20 * 1e6,
            "turn1000_us": statistics.median(late) * 1e6,
            "parallel32_us": statistics.median(parallel) / 32 * 1e6,
            "cpu_us": statistics.median(processor) / 20 * 1e6,
            "floor_us": floor * 1e6,
            "ratio_1000": statistics.median(b / a for a, b in zip(early, late, strict=True)),
        },
        options,
    )


if __name__ == "__main__":
    main()
