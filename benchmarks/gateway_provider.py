"""The provider of ``benchmarks.gateway``: a fake one in a process of its own, whose replies show the time.

Each delta of a reply is the time at which it was sent, in ns of ``time.monotonic_ns``, which all processes of
one machine share. The last message of a question orders the reply, see ``order``. The first line on standard
output is the port; the process ends when its standard input closes.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
from http.client import HTTPConnection
from typing import Final, Self, SupportsIndex

from sessiontree.testing.fake_provider.fake_reply import FakeReply
from sessiontree.testing.fake_provider.fake_server import FakeProvider, FakeRequest

_ORDER: Final = re.compile(r"deltas=(\d+) between_s=([0-9.]+) begins_ns=(\d+)")


class SendTimes(str):
    """A text whose every slice is the present time, as a reply sends it: one delta for each character."""

    __slots__ = ()

    def __getitem__(self, part: SupportsIndex | slice) -> str:
        """Return the time in ns, and a space."""
        return f"{time.monotonic_ns()} "


def order(deltas: int, *, between_s: float = 0.0, after_s: float = 0.0) -> str:
    """Return the message that asks for such a reply, which begins so many seconds from now."""
    begins_ns = time.monotonic_ns() + int(after_s * 1e9)
    return f"deltas={deltas} between_s={between_s:f} begins_ns={begins_ns}"


def reply_to(request: FakeRequest) -> FakeReply:
    """Return the reply that a question's last message orders."""
    deltas, between_s, begins_ns = _ORDER.findall(json.dumps(request.body["messages"][-1]))[-1]
    first_s = max(0.0, (int(begins_ns) - time.monotonic_ns()) / 1e9)
    text = SendTimes("." * int(deltas))
    return FakeReply(text, delta_chars=1, between_s=float(between_s), first_s=first_s)


def delays_us(arrived: list[tuple[int, str]]) -> list[float]:
    """Return the microseconds from the sending of each delta to its arrival.

    Args:
        arrived: Pieces of a reply, each with the time at which it came, in ns; it may hold several deltas.
    """
    return [(at_ns - int(sent)) / 1e3 for at_ns, text in arrived for sent in text.split()]


class ProviderProcess:
    """The provider in a process of its own, as a context manager."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    def __enter__(self) -> Self:
        """Start it, and wait until it listens."""
        words = [sys.executable, "-m", "benchmarks.gateway_provider"]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        assert self._process is not None
        self._process.communicate()

    @property
    def url(self) -> str:
        """Its ``base_url`` for OpenAI's library."""
        return f"http://127.0.0.1:{self.port}/v1"

    def most_running(self) -> int:
        """Return how many questions it had at a time, at most."""
        connection = HTTPConnection("127.0.0.1", self.port)
        connection.request("GET", "/")
        counts: dict[str, int] = json.loads(connection.getresponse().read())
        connection.close()
        return counts["most_running"]


async def serve() -> None:
    """Serve until the standard input closes."""
    async with FakeProvider(reply_to) as provider:
        print(provider.port, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve())
