"""A suite in which one sample ends the process that works on it; a program that is started again and again.

Usage: ``python -m tests.system.bench.run.poison_program RUN``. It ends with 3 where the poison has killed it.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from sessiontree import FunctionModel, ModelRequest, PermissionTier, script_call, tool
from sessiontree.bench import Attempt, Sample, Suite

POISON = "s2"
SAMPLES = 8


@tool(tier=PermissionTier.WORKSPACE)
async def work(what: str) -> str:
    """Work, or end the process."""
    if what == POISON:
        os._exit(3)
    return what


def reply(request: ModelRequest) -> Any:
    """Call the tool, then repeat its result."""
    return (
        script_call("work", what=request.messages[-1].text)
        if request.turn == 1
        else request.messages[-1].text
    )


async def solve(attempt: Attempt[str]) -> str:
    """Let Main work."""
    return await attempt.tree.main.send(attempt.sample.input)


def exact(attempt: Attempt[str]) -> bool:
    """Compare the output with the target."""
    return bool(attempt.output == attempt.sample.target)


suite = Suite(
    "poison",
    [Sample(f"s{number}", f"s{number}", f"s{number}") for number in range(SAMPLES)],
    solve,
    exact,
    tree={"tools": [work], "builtin_tools": False},
    model=FunctionModel(reply),
)

if __name__ == "__main__":
    suite.run_sync(sys.argv[1], backend="local", retries=1, concurrency=SAMPLES)
