"""``python -m sessiontree.testing.fake_provider``: the fake provider as a process, until it is interrupted.

``--script FILE`` names a JSON array of replies, each with the members of ``FakeReply``. The first line on
standard output is ``{"port": …}``. A GET to any path returns what was counted.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
from pathlib import Path

from sessiontree.contracts.values.jsonable import parse_json
from sessiontree.testing.fake_provider.fake_reply import FakeReply
from sessiontree.testing.fake_provider.fake_server import FakeProvider


async def serve(script: tuple[FakeReply, ...], port: int) -> None:
    """Serve until the task is cancelled."""
    async with FakeProvider(script, port) as provider:
        sys.stdout.write(json.dumps({"port": provider.port}) + "\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def main() -> int:
    """Read the command line and serve; return the exit code."""
    parser = argparse.ArgumentParser("python -m sessiontree.testing.fake_provider", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0, the default, is any that is free")
    parser.add_argument("--script", type=Path, help="a JSON array of replies; without it, one greeting")
    given = parser.parse_args()
    script: tuple[FakeReply, ...] = (FakeReply("Hello."),)
    if given.script is not None:
        try:
            wire = parse_json(given.script.read_text("utf-8"))
            if not isinstance(wire, list) or not wire:
                raise ValueError("it is an array of replies, at least one, such as [{'text': 'yes'}]")
            script = tuple(FakeReply.from_wire(each) for each in wire)
        except (OSError, ValueError) as error:
            parser.error(f"--script {str(given.script)!r} can't be used: {error}")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(script, given.port))
    return 0


if __name__ == "__main__":
    sys.exit(main())
