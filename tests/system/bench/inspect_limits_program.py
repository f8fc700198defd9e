"""Limits of a sample's time, by inspect alone and as a suite; prints one JSON object.

Three cases: samples that have done their work when the time is over, samples that wait for each other at a
model which answers one question at a time, and samples next to one whose code blocks the loop.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from inspect_ai import Task, eval_async
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalLog
from inspect_ai.model import ChatMessage, GenerateConfig, Model, ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import Generate, Solver, TaskState, generate, solver, use_tools, user_message
from inspect_ai.util._display import init_display_type

from sessiontree import AsyncFunctionModel, FunctionModel, ModelRequest, ProviderModel, script_call
from sessiontree.bench.adapters.inspect_suite import InspectSuite
from sessiontree.models.providers.call_limits import CallLimits
from sessiontree.testing.fake_provider.fake_reply import FakeReply
from sessiontree.testing.fake_provider.fake_server import FakeProvider
from tests.system.bench.inspect_suite_program import log_in, save, stored

MOCK = "mockllm/model"
AT_ONCE = 6
QUESTION_S = 0.2
LIMIT_S = 1
"""Less than all questions take one after another."""
Reply = Callable[[list[ChatMessage]], Awaitable[ModelOutput]]


def verdicts(log: EvalLog) -> dict[str, Any]:
    """Return of each sample the limit that it met, and its scores."""
    return {
        str(each.id): [
            each.limit and each.limit.type,
            {name: score.value for name, score in (each.scores or {}).items()},
        ]
        for each in log.samples or ()
    }


async def alone(task: Task, place: Path, reply: Reply, max_samples: int = AT_ONCE) -> dict[str, Any]:
    """Return the verdicts of inspect by itself, with a model that answers one question at a time."""

    async def answer(messages: list[ChatMessage], *_: Any) -> ModelOutput:
        found = await reply(messages)
        found.usage = ModelUsage(input_tokens=10, output_tokens=5, total_tokens=15)
        return found

    config = GenerateConfig(max_connections=1)
    model: Model = get_model(MOCK, config=config, memoize=False, custom_outputs=answer)
    (log,) = await eval_async(
        task, model=model, log_dir=str(place / "alone"), log_level="critical", max_samples=max_samples
    )
    return verdicts(log)


async def ours(task: Task, place: Path, model: Any) -> dict[str, Any]:
    """Return the verdicts of the task as a suite."""
    suite = InspectSuite(task, model=model)
    await suite.run(place / "suite", backend="local", concurrency=AT_ONCE)
    return verdicts(log_in(place / "suite"))


async def late(place: Path) -> dict[str, Any]:
    """Save the answer, then take too long."""

    def task() -> Task:
        return Task(
            name="late",
            dataset=[Sample(input=f"question {at}", target="42") for at in range(3)],
            solver=[use_tools(save()), generate(tool_calls="loop")],
            scorer=stored(),
            time_limit=3,
        )

    async def reply(messages: list[ChatMessage]) -> ModelOutput:
        if messages[-1].role == "user":
            return ModelOutput.for_tool_call(MOCK, "save", {"answer": "42"})
        await asyncio.sleep(60)
        return ModelOutput.from_content(MOCK, "It is 42.")

    async def slow(request: ModelRequest) -> Any:
        if request.turn == 1:
            return script_call("save", answer="42")
        await asyncio.sleep(60)
        return "It is 42."

    return {
        "alone": await alone(task(), place, reply),
        "suite": await ours(task(), place, AsyncFunctionModel(slow)),
    }


@solver
def sit_out() -> Solver:
    """Return a solver that lets the last sample's own time pass."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        if state.sample_id == AT_ONCE:
            await asyncio.sleep(3 * LIMIT_S)
        return state

    return solve


async def queue(place: Path) -> dict[str, Any]:
    """Ask twice; only the last sample takes more time than it has, by itself."""

    def task() -> Task:
        return Task(
            name="queue",
            dataset=[Sample(input=f"question {at}", target="done") for at in range(AT_ONCE)],
            solver=[sit_out(), generate(), user_message("Again."), generate()],
            scorer=includes(),
            working_limit=LIMIT_S,
        )

    async def reply(messages: list[ChatMessage]) -> ModelOutput:
        await asyncio.sleep(QUESTION_S)
        return ModelOutput.from_content(MOCK, "done")

    async with FakeProvider([FakeReply("done", first_s=QUESTION_S)]) as fake:
        model = ProviderModel(
            "openai:gpt-5", api_key="sk-x", base_url=fake.url("openai"), limits=CallLimits(at_once=1)
        )
        return {
            "alone": await alone(task(), place, reply),
            "suite": await ours(task(), place, model),
        }


@solver
def block() -> Solver:
    """Return a solver that blocks the loop in the first sample."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        if state.sample_id == 1:
            threading.Event().wait(2 * LIMIT_S)
            await asyncio.sleep(2 * LIMIT_S)  # only then does inspect look at the time
        await asyncio.sleep(LIMIT_S / 4)
        return state

    return solve


async def neighbours(place: Path) -> dict[str, Any]:
    """Run next to a sample that blocks. By inspect alone no sample has a neighbour."""

    def task() -> Task:
        return Task(
            name="neighbours",
            dataset=[Sample(input=f"question {at}", target="done") for at in range(AT_ONCE)],
            solver=[block(), generate()],
            scorer=includes(),
            working_limit=LIMIT_S,
        )

    async def reply(messages: list[ChatMessage]) -> ModelOutput:
        return ModelOutput.from_content(MOCK, "done")

    return {
        "alone": await alone(task(), place, reply, max_samples=1),
        "suite": await ours(task(), place, FunctionModel(lambda request: "done")),
    }


async def main(place: Path) -> dict[str, Any]:
    """Return the verdicts of every case by name."""
    found: dict[str, Any] = {}
    for each in (late, queue, neighbours):
        (place / each.__name__).mkdir()
        found[each.__name__] = await each(place / each.__name__)
    return found


if __name__ == "__main__":
    init_display_type("none")
    with tempfile.TemporaryDirectory() as folder:
        json.dump(asyncio.run(main(Path(folder))), sys.stdout)
