"""A program that runs the fan-out of forty until it is killed; it prints its tree when thirty have ended.

Usage: ``python -m tests.behaviour.forty_program BACKEND WORKSPACE STATE_DIR``, with the pickled reply on its
input.
"""

from __future__ import annotations

import asyncio
import pickle
import sys
from pathlib import Path
from typing import cast

from sessiontree import AsyncFunctionModel, Limits, PolicyConfig, SessionTree, ToolPolicy
from sessiontree.api.runtime.runtime_options import BackendName
from sessiontree.contracts.facts.tree_facts import SessionEnded
from tests.behaviour.fact_fixtures import until
from tests.behaviour.forty_fakes import CHILDREN, FREE, FortyReply


async def main(backend: BackendName, workspace: str, state_dir: str, reply: FortyReply) -> None:
    """Run until killed."""
    tree = SessionTree(
        workspace,
        model=AsyncFunctionModel(reply),
        policy=PolicyConfig(tools=ToolPolicy(allow=("*",))),
        limits=Limits(max_children=CHILDREN, max_total=CHILDREN + 1),
        state_dir=Path(state_dir),
        backend=backend,
    )
    async with tree:
        said = tree.main.send("go")
        await until(tree, SessionEnded, count=FREE)
        sys.stdout.write(tree.tree_id + "\n")
        sys.stdout.flush()
        await said


if __name__ == "__main__":
    _, name, place, state = sys.argv
    asyncio.run(main(cast("BackendName", name), place, state, pickle.load(sys.stdin.buffer)))
