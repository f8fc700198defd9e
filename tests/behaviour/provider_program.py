"""A program that asks a provider twice, and is killed in the middle of the second reply.

Usage: ``python -m tests.behaviour.provider_program BACKEND WORKSPACE STATE_DIR URL``. It prints the tree's
id, the first reply once it has it, and ``asked`` once its second message is durable.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import cast

from sessiontree import ProviderModel, SessionTree
from sessiontree.api.runtime.runtime_options import BackendName
from sessiontree.contracts.facts.session_facts import MessageReceived
from tests.behaviour.fact_fixtures import until

MODEL, KEY = "openai:gpt-5", "sk-sentinel-8vB2"


def said(text: str) -> None:
    """Acknowledge."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def main(backend: BackendName, workspace: str, state_dir: str, url: str) -> None:
    """Run until killed."""
    model = ProviderModel(MODEL, api_key=KEY, base_url=url)
    async with SessionTree(workspace, model=model, state_dir=Path(state_dir), backend=backend) as tree:
        said(tree.tree_id)
        said(await tree.main.send("First."))
        asking = tree.main.send("Talk.")
        await until(tree, MessageReceived, count=2)
        said("asked")
        await asking


if __name__ == "__main__":
    _, name, place, state, address = sys.argv
    asyncio.run(main(cast("BackendName", name), place, state, address))
