"""Run one peer as often as it is asked to: ``python -m benchmarks.peers.serve MODULE TURNS``.

MODULE is a peer's: it has ``PACKAGE`` and ``prepare``. First its version is reported, ``{"version": …}``;
then, for each line with a number of runs, what each took: ``{"seconds": […]}``.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import json
import sys
import time
from collections.abc import Mapping
from typing import TextIO


async def serve(module: str, turns: int) -> None:
    """Warm up, then run until nothing more is asked."""
    answers = sys.stdout
    sys.stdout = sys.stderr  # what a peer prints is no answer
    peer = importlib.import_module(module)
    run = peer.prepare(turns)
    await run()
    _say(answers, {"version": importlib.metadata.version(peer.PACKAGE)})
    while line := sys.stdin.readline():
        seconds = []
        for _ in range(int(line)):
            started = time.perf_counter()
            await run()
            seconds.append(time.perf_counter() - started)
        _say(answers, {"seconds": seconds})


def _say(answers: TextIO, answer: Mapping[str, object]) -> None:
    print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2])))
