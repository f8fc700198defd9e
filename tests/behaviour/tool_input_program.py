"""A program whose Branch's call asks for input; it prints two ids, and waits to be killed.

Usage: ``python -m tests.behaviour.tool_input_program BACKEND WORKSPACE STATE_DIR``.
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
from tests.behaviour.question_fixtures import ENDLESS
from tests.behaviour.tool_input_fakes import AskingTool
from tests.behaviour.tool_input_fixtures import AGENTS, booking_model


async def main(backend: BackendName, workspace: str, state_dir: str) -> None:
    """Call, ask, and wait."""
    tree = SessionTree(
        workspace,
        model=booking_model(2),
        tools=[AskingTool()],
        agents=AGENTS,
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
