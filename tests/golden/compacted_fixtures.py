"""A tree whose Main's conversation was compacted, and a fork of it, and how their journals were made.

``python -m tests.golden.compacted_fixtures`` writes ``<release>-rules-<number>-compacted`` and ``…-forked``
next to this file, as ``scenario_fixtures`` does. Recorded ones are never changed.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from sessiontree import (
    ContextOverflow,
    FunctionModel,
    ModelRequest,
    PermissionTier,
    SessionTree,
    call,
    tool,
)
from sessiontree.contracts.messages import AssistantMessage
from sessiontree.models.answers import Answer
from sessiontree.version import RULES, VERSION
from tests.behaviours.fact_fixtures import asked
from tests.golden.scenario_fixtures import write

LONG = "x" * 3_000
ROOM = 13_000
"""Characters that the model takes."""
WAITING_S = 60.0


@tool(tier=PermissionTier.ELEVATED)
def launch(target: str) -> str:
    """Do something that cannot be undone.

    Args:
        target: What.
    """
    return f"launched {target}"


class Narrow:
    """Answers with the first word of the newest message; its first summary is empty."""

    def __init__(self) -> None:
        self.summaries = 0

    def __call__(self, request: ModelRequest) -> Answer:
        """Return the next answer."""
        heard = [each.text for each in request.messages if not isinstance(each, AssistantMessage)]
        size = sum(map(len, heard))
        if size > ROOM:
            raise ContextOverflow(f"{size} characters > {ROOM} maximum")
        if request.summarises:
            self.summaries += 1
            return f"{len(heard)} messages" if self.summaries > 1 else ""
        word = heard[-1].split()[0]
        return call("launch", target="moon") if word == "launch" else f"heard {word}"


async def play(place: Path) -> tuple[str, str]:
    """Play until Main waits for a person, fork the tree, end both; return the ids of tree and fork."""
    workspace = place / "workspace"
    workspace.mkdir()
    tree = SessionTree(
        workspace,
        model=FunctionModel(Narrow(), "golden"),
        tools=(launch,),
        state_dir=place / "state",
        backend="local",
        purpose="golden",
    )
    async with asyncio.timeout(WAITING_S), tree:
        for number in range(6):
            await tree.main.send(f"m{number} {LONG}")
        sent = asyncio.ensure_future(tree.main.send("launch"))
        await asked(tree)
        async with await tree.fork() as fork:
            (pending,) = await asked(fork, 2)
            await pending.approve()
            await fork.main.send("over")
            await fork.cancel("the fork is over")
        (pending,) = tree.approvals.pending()
        await pending.deny()
        await sent
        await tree.cancel("the tree is over")
    return tree.tree_id, fork.tree_id


async def record() -> None:
    """Write both journals and what they must replay to."""
    with tempfile.TemporaryDirectory() as directory:
        ids = await play(Path(directory))
        for tree_id, name in zip(ids, ("compacted", "forked"), strict=True):
            write(f"{VERSION}-rules-{RULES}-{name}", Path(directory), tree_id)


if __name__ == "__main__":
    asyncio.run(record())
