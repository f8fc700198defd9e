"""A user's suite of 40 lines: a script that runs itself, and a file that the command can run.

Each sample appends a line to a file, through a tool with an effect; its scorer reads it back.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from sessiontree import FunctionModel, ModelRequest, PermissionTier, ToolContext, script_call, tool
from sessiontree.bench import Attempt, Sample, Score, Suite


@tool(tier=PermissionTier.WORKSPACE)
async def note(text: str, ctx: ToolContext) -> str:
    """Write a line into the workspace, and one that outlives it."""
    (ctx.workspace_root / "note.txt").write_text(text)
    effects = ctx.workspace_root.parents[2] / "effects"  # next to the run
    descriptor = os.open(effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{text} {ctx.call_id}\n".encode())
    os.close(descriptor)
    return f"noted {text}"


def reply(request: ModelRequest) -> Any:
    """Note what was said, and repeat the answer."""
    said = request.messages[-1].text
    return script_call("note", text=said) if request.turn == 1 else said


async def solve(attempt: Attempt[str]) -> str:
    """Let Main note the sample."""
    return await attempt.tree.main.send(attempt.sample.input)


def noted(attempt: Attempt[str]) -> Score:
    """Read the note."""
    text = (attempt.workspace / "note.txt").read_text()
    return Score(float(text == attempt.sample.target), answer=text)


suite = Suite(
    "notes",
    [Sample(f"n{number}", f"line {number}", f"line {number}") for number in range(60)],
    solve,
    noted,
    tree={"tools": [note], "builtin_tools": False},
    model=FunctionModel(reply),
)

if __name__ == "__main__":
    print(suite.run_sync(sys.argv[1], backend=sys.argv[2]).counts.scored)  # noqa: T201 - its output
