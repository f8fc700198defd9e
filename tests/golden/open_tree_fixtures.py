"""A tree that is closed while much of it waits, and how its journal was made.

``python -m tests.golden.open_tree_fixtures <file>`` plays it and writes the journal. ``0.1.0-open.ndjson``
was written by the code before a call was one value (kinds and shapes of version 1); it is never changed.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path

from pydantic import BaseModel

from sessiontree import (
    ApprovalRequest,
    ClientTool,
    FunctionModel,
    Limits,
    ModelRequest,
    PermissionTier,
    SessionKind,
    SessionTree,
    call,
    tool,
)
from sessiontree.journal.journal import Journal
from sessiontree.models.answers import Answer

PLACE = Path("/tmp/sessiontree-golden")
WORKSPACE = PLACE / "workspace"
LOG = "launched.txt"
JUDGE = "tests.golden.open_tree_fixtures:pass_on"
WAITING_S = 60.0
CENTURY_S = 3.2e9
ENDLESS = Limits(
    approval_expiry_s=CENTURY_S,
    approval_patience_s=None,
    branch_ttl_s=CENTURY_S,
    tool_timeout_s=CENTURY_S,
)
"""What waits in the recorded tree waits still, whenever a test takes the tree up."""


class Question(BaseModel):
    """What to ask."""

    text: str


ASK = ClientTool("ask", "Ask the program.", Question, tier=PermissionTier.WORKSPACE)


@tool(tier=PermissionTier.ELEVATED)
def launch(target: str) -> str:
    """Do something that cannot be undone.

    Args:
        target: What.
    """
    with WORKSPACE.joinpath(LOG).open("a") as log:
        log.write(f"{target}\n")
    return f"launched {target}"


TOOLS = (launch, ASK)


def pass_on(request: ApprovalRequest) -> str:
    """Leave every request to the parent."""
    return "escalate"


def answer(request: ModelRequest) -> Answer:
    """Return what a session says next, by its task and turn."""
    task, turn = request.messages[0].text, request.turn
    script: dict[str, list[Answer]] = {
        "begin": [
            [
                call("sessions_spawn", kind="branch", task="lead", label="leader"),
                call("sessions_spawn", kind="worker", task="stumble", label="clumsy"),
            ],
            "spawned",
        ],
        "lead": [[call("launch", target="own")], "led"],
        "climb": [call("launch", target="north"), "climbed"],
        "question": [call("ask", text="which way?"), "asked"],
        "stumble": [*([call("read", path="a.txt", offset="x")] * 3), "stumbled"],
    }
    return script.get(task, ["done"])[min(turn, len(script.get(task, ["done"]))) - 1]


MODEL = FunctionModel(answer, "golden")


async def play() -> str:
    """Play until two sessions wait for a person and one for the program; return the tree's id."""
    shutil.rmtree(PLACE, ignore_errors=True)
    WORKSPACE.mkdir(parents=True)
    (WORKSPACE / "a.txt").write_text("one\ntwo\n")
    tree = SessionTree(
        WORKSPACE,
        model=MODEL,
        tools=TOOLS,
        state_dir=PLACE / "state",
        backend="local",
        purpose="golden",
        limits=ENDLESS,
    )
    await tree.start()
    leader = await tree.main.spawn(SessionKind.BRANCH, "wait", label="judge", approver=JUDGE)
    await leader.spawn(SessionKind.BRANCH, "climb")
    await tree.main.spawn(SessionKind.BRANCH, "question")
    async with asyncio.timeout(WAITING_S):
        await tree.main.send("begin")
        async for _ in tree.events():
            asked = len(tree.approvals.pending()) == 2 and len(tree.client_calls.pending()) == 1
            if asked and tree.session("main/w1").status().status.is_final:
                break
    tree_id = tree.tree_id
    await tree.close()
    return tree_id


def main() -> None:
    """Write the journal."""
    tree_id = asyncio.run(play())
    with Journal.open(PLACE / "state", read_only=True) as journal, Path(sys.argv[1]).open("w") as out:
        journal.export(tree_id, out)


if __name__ == "__main__":
    main()
