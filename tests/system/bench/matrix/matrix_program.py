"""Two suites of an adder that is right, or wrong for odd numbers; one program of theirs can be stopped."""

from __future__ import annotations

from typing import Any

from sessiontree import AssistantMessage, FunctionModel, ModelRequest, Usage
from sessiontree.bench import Attempt, Sample, Suite
from sessiontree.contracts.values.messages import TextContent


def adder(*, fails_odd: bool) -> FunctionModel:
    """Return a model that doubles a number, for a cent."""

    def reply(request: ModelRequest) -> AssistantMessage:
        number = int(request.messages[-1].text)
        said = 2 * number + (number % 2 if fails_odd else 0)
        return AssistantMessage((TextContent(str(said)),), usage=Usage(6, 4, 0.01))

    return FunctionModel(reply, name="odd" if fails_odd else "right")


async def solve(attempt: Attempt[Any]) -> str:
    """Ask the model."""
    return await attempt.tree.main.send(attempt.sample.input)


def exact(attempt: Attempt[Any]) -> bool:
    """Compare."""
    return bool(attempt.output == attempt.sample.target)


def suite_of(name: str, count: int) -> Suite:
    """Return a suite of so many samples."""
    samples = [Sample(f"s{number}", str(number), str(2 * number)) for number in range(count)]
    models = {"right": lambda _: adder(fails_odd=False), "odd": lambda _: adder(fails_odd=True)}
    return Suite(name, samples, solve, exact, models=models, model="right")


small = suite_of("small", 4)
large = suite_of("large", 6)
