"""A peer that does its work as it should, where the standard library and pytest are all there is."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable

from benchmarks.peers.work import ARGUMENTS, LAST_WORD, NothingParams, Script

PACKAGE = "pytest"


def prepare(turns: int) -> Callable[[], Awaitable[None]]:
    """Return what runs once."""
    script = Script(turns)

    async def run() -> None:
        while script.next_call() is not None:
            await asyncio.sleep(0)
            params = NothingParams.model_validate(ARGUMENTS)
            script.executed(params.path, params.limit)
        sys.stdout.write("a peer may print what it likes\n")
        script.finish(LAST_WORD)

    return run
