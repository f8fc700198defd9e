"""A program whose Branch calls a tool of an MCP server that asks; it waits to be killed.

Usage: ``python -m tests.behaviour.mcp_program BACKEND WORKSPACE STATE_DIR PLACE MODE [TREE]``. The server
has that mode, and leaves its notes in PLACE. Without TREE the program opens a tree, else it resumes that one.
It prints the tree's id, and then the id of each question that was ever asked.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any, cast

from sessiontree import SessionTree
from sessiontree.api.runtime.runtime_options import BackendName
from sessiontree.contracts.facts.tree_facts import ClientCallOpened
from sessiontree.journal.replay import read_facts
from tests.behaviour.mcp_fixtures import asking_options
from tests.behaviour.question_fixtures import ENDLESS


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def main(name: str, workspace: str, state_dir: str, place: str, mode: str, tree_id: str = "") -> None:
    """Open the tree or go on with it, until killed."""
    options: dict[str, Any] = {**asking_options(Path(place), mode), "state_dir": Path(state_dir)}
    options["backend"] = cast("BackendName", name)
    if tree_id:
        tree = await SessionTree.resume(tree_id, **options)
    else:
        tree = SessionTree(workspace, limits=ENDLESS, **options)
    async with tree:
        if not tree_id:
            await tree.main.spawn("branch", "go")
        say(tree.tree_id)
        async for record in tree.events():
            for fact in read_facts(record.text):
                if isinstance(fact, ClientCallOpened):
                    say(fact.call.call_id)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
