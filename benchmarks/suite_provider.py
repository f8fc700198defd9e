"""The provider of ``benchmarks.suite --provider``: a fake one in a process of its own, which may be killed.

It calls the tool once for a sample, then repeats what the tool returned. It can be started again at the same
port, and remembers nothing.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Final

from sessiontree.testing.fake_provider.fake_reply import FakeCall, FakeReply
from sessiontree.testing.fake_provider.fake_server import FakeProvider, FakeRequest

KEY: Final = "benchmark-key"


def reply_to(request: FakeRequest) -> FakeReply:
    """Return a call for a question that begins, and the tool's words for one that goes on."""
    last = request.body["messages"][-1]
    content = last["content"]
    text = content if isinstance(content, str) else content[0]["text"]
    return (
        FakeReply(text)
        if last["role"] == "tool"
        else FakeReply(calls=(FakeCall("note", json.dumps({"key": text})),))
    )


class ProviderProcess:
    """The provider as a process.

    Args:
        port: Where it listens; 0 = any port that is free.
    """

    def __init__(self, port: int = 0) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}/v1"

    def kill(self) -> None:
        """End it by SIGKILL."""
        self._process.kill()
        self._process.communicate()


async def serve(port: int) -> None:
    """Serve until the standard input closes; the first line says the port."""
    async with FakeProvider(reply_to, port) as provider:
        print(provider.port, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
