"""A program whose Branch asks a person; it prints the ids of tree and question, and waits to be killed.

Usage: ``python -m tests.behaviour.question_program BACKEND WORKSPACE STATE_DIR``.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import cast

from sessiontree import SessionTree
from sessiontree.api.runtime.runtime_options import BackendName
from sessiontree.contracts.facts.tree_facts import ClientCallOpened
from tests.behaviour.fact_fixtures import until
from tests.behaviour.question_fixtures import ASKS, ENDLESS, asking_model


async def main(backend: BackendName, workspace: str, state_dir: str) -> None:
    """Ask, and wait."""
    tree = SessionTree(
        workspace,
        model=asking_model(),
        agents=ASKS,
        limits=ENDLESS,
        state_dir=Path(state_dir),
        backend=backend,
    )
    async with tree:
        await tree.main.spawn("branch", "go")
        (opened,) = await until(tree, ClientCallOpened)
        sys.stdout.write(f"{tree.tree_id} {opened.call.call_id}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    _, name, place, state = sys.argv
    asyncio.run(main(cast("BackendName", name), place, state))
