"""The way from a supervisor to one host on Ray: frames out in batches, one poll outstanding."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from sessiontree.backends.ray.start_watch import LOOK_S, StartWatch
from sessiontree.backends.ray.wire import opened, packed
from sessiontree.contracts.errors import words_of
from sessiontree.runtime.frames import PollReply
from sessiontree.runtime.host_link import HostLost
from sessiontree.runtime.rpc_response import Hello, HostHealth
from sessiontree.sandbox.process_tree import END_WITHIN_S, LET_END_S, REPORT

START_S = 120.0
"""How long a host may take to start, on a machine that has much else to do."""
POLL_S = 5.0
REAPED_S = LET_END_S + END_WITHIN_S + 1.0
"""How long it may take until nothing is left of a host."""
ANSWER_S = 2.0
"""How long a host may be late with an answer before it is asked how it stands."""


class RayTransport:
    """Carries frames to one actor.

    Args:
        actor: With ``hello``, ``submit``, ``poll`` and ``standing``.
        on_close: Told once, when the host is ended.
        reports: Where its reaper, if it has one, says how many processes it ended.
        start: Follows its start.
        failed: Told why it did not start.
    """

    def __init__(
        self,
        actor: Any,
        on_close: Callable[[RayTransport], None],
        reports: Path,
        start: StartWatch,
        failed: Callable[[str], None],
    ) -> None:
        self.actor = actor
        self.level = "starting"
        self.pid = 0
        self.is_ready = False
        self._on_close = on_close
        self._reports = reports
        self._start = start
        self._failed = failed
        self._reaper: int | None = None
        """Descriptor of its reaper, which ends after it."""
        self._buffer: list[tuple[int, Any]] = []
        self._closed = False
        self._deaf_since: float | None = None

    def submit(self, frames: Sequence[tuple[int, Any]]) -> None:
        """Send frames without waiting; all of one moment go together."""
        if not self._buffer:
            asyncio.get_running_loop().call_soon(self._flush)
        self._buffer.extend(frames)

    async def ready(self) -> None:
        """Wait until the host has said hello.

        Raises:
            HostLost: it did not start, or says why it can't serve.
        """
        try:
            hello: Hello = await self._started(asyncio.ensure_future(self._hello()))
            if hello.failure is not None:
                raise HostLost(hello.failure)
        except (TimeoutError, HostLost) as error:
            late = f"the host did not start within {START_S:g} s"
            reason = error.reason if isinstance(error, HostLost) else late
            self._failed(reason)
            raise HostLost(reason, served=False) from None
        with contextlib.suppress(OSError):  # it has ended already, as the host has
            self._reaper = os.pidfd_open(hello.reaper) if hello.reaper else None
        self.level, self.pid, self.is_ready = hello.level, hello.pid, True

    async def _hello(self) -> Any:
        return await self._answer(self.actor.hello.remote(), START_S)

    async def _started(self, hello: asyncio.Task[Any]) -> Any:
        """Return the hello, unless the start is seen to fail before Ray says so.

        Raises:
            HostLost: it is.
        """
        try:
            while not hello.done():
                await asyncio.wait((hello,), timeout=LOOK_S)
                reason = None if hello.done() else self._start.look()
                if reason is not None:
                    raise HostLost(reason)
            return await hello
        finally:
            hello.cancel()

    async def poll(self, after: int, wait_s: float) -> PollReply:
        """Return outcomes after a number.

        Raises:
            HostLost: the host is gone, or did not start.
            TimeoutError: it did not answer in time.
        """
        wait_s = min(wait_s, POLL_S)
        data = await self._answer(self.actor.poll.remote(after, wait_s), wait_s + ANSWER_S)
        self._deaf_since = None
        reply: PollReply = opened(data)
        return reply

    async def lag_s(self) -> float:
        """Return for how long the host has been deaf; 0 while it starts.

        Raises:
            HostLost: the host is gone for good.
        """
        if not self.is_ready:
            return 0.0
        try:
            standing: HostHealth = await self._answer(self.actor.standing.remote(), ANSWER_S)
        except TimeoutError:
            now = asyncio.get_running_loop().time()
            self._deaf_since = self._deaf_since or now
            return now - self._deaf_since
        return standing.lag_s

    def close(self) -> None:
        """End the host's process."""
        if not self._closed:
            self._closed = True
            ray.kill(self.actor)
            self._on_close(self)

    async def ended(self) -> int:
        """Wait, for a limited time, until its reaper is done; return how many processes that has ended."""
        descriptor, self._reaper = self._reaper, None
        if descriptor is None:
            return 0
        loop, gone = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(descriptor, gone.set)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REAPED_S):
                    await gone.wait()
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)
        report = self._reports / f"{REPORT}{self.pid}"
        with contextlib.suppress(OSError, ValueError):  # the reaper was killed, or works on
            ended = int(report.read_text("ascii"))
            report.unlink()
            return ended
        return 0

    def _flush(self) -> None:
        frames, self._buffer = tuple(self._buffer), []
        if not self._closed:
            self.actor.submit.remote(packed(frames))

    async def _answer(self, ref: Any, within_s: float) -> Any:
        try:
            async with asyncio.timeout(within_s):
                return await ref
        except RayError as error:
            cause = getattr(error, "cause", None)
            raise HostLost(words_of(cause or error).splitlines()[0]) from None
