"""A program that runs the household until it is killed; it prints the tree's id.

Usage: ``python -m tests.behaviour.killed_program BACKEND WORKSPACE STATE_DIR``, with a pickled countdown on
its input.
"""

from __future__ import annotations

import asyncio
import pickle
import sys
from pathlib import Path
from typing import cast

from sessiontree import FunctionModel, SessionTree
from sessiontree.api.runtime.runtime_options import BackendName
from tests.behaviour import household_fakes as household
from tests.behaviour.deadly_fakes import Countdown, DeadlyAppend, DeadlyLaunch, DeadlyReply
from tests.behaviour.effect_fakes import Look


async def main(backend: BackendName, workspace: str, state_dir: str, countdown: Countdown) -> None:
    """Run until killed."""
    tree = SessionTree(
        workspace,
        model=FunctionModel(DeadlyReply(countdown)),
        tools=[DeadlyAppend(countdown), DeadlyLaunch(countdown), Look()],
        approvals="auto",
        state_dir=Path(state_dir),
        backend=backend,
    )
    async with tree:
        sys.stdout.write(tree.tree_id + "\n")
        sys.stdout.flush()
        tree.main.send("go")
        await household.finished(tree)


if __name__ == "__main__":
    _, name, place, state = sys.argv
    asyncio.run(main(cast("BackendName", name), place, state, pickle.load(sys.stdin.buffer)))
