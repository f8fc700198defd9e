"""A small suite: Main adds two numbers, one of them from a Worker. The model is a function."""

from __future__ import annotations

from sessiontree import FunctionModel, ModelRequest, SessionKind
from sessiontree.bench import Attempt, Sample, Suite


def reply(request: ModelRequest) -> str:
    """Return the sum; a Worker repeats the number that its task names."""
    words = request.messages[0].text.split()
    if request.kind is SessionKind.WORKER:
        return words[-1]
    return str(sum(map(int, words[1:])))


async def solve(attempt: Attempt[str]) -> str:
    """Have a Worker look the second number up, then ask Main for the sum."""
    first, second = attempt.sample.input.split()
    worker = await attempt.tree.main.spawn("worker", f"look up {second}")
    found = (await worker.result()).summary
    return str(await attempt.tree.main.send(f"add {first} {found}"))


def exact(attempt: Attempt[str]) -> bool:
    """Whether it is the sum."""
    return attempt.output == attempt.sample.target


suite = Suite(
    "arithmetic",
    [Sample(f"{number}", input=f"{number} {2 * number}", target=str(3 * number)) for number in range(60)],
    solve,
    [exact],
    model=FunctionModel(reply),
)
