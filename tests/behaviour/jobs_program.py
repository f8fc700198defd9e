"""A program whose Main leaves a command in the background; prints the tree's id, and runs until it is killed.

Usage: ``python -m tests.behaviour.jobs_program BACKEND WORKSPACE STATE_DIR COMMAND``.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import cast

from sessiontree import SessionTree, script_call
from sessiontree.api.runtime.runtime_options import BackendName
from tests.behaviour.job_fakes import steps


async def main(backend: BackendName, workspace: str, state_dir: str, command: str) -> None:
    """Run until killed."""
    model = steps(script_call("exec", command=command, background=True), "it runs")
    tree = SessionTree(workspace, model=model, state_dir=Path(state_dir), backend=backend)
    async with tree:
        await tree.main.send("go")
        sys.stdout.write(tree.tree_id + "\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    _, name, place, state, line = sys.argv
    asyncio.run(main(cast("BackendName", name), place, state, line))
