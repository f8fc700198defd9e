"""The transport from a supervisor to one host on Ray: frames go out in batches, and one poll waits."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from sessiontree.backends.ray.client.serialization import dump_value, load_value
from sessiontree.backends.ray.client.socket_rpc import LineListener, Methods, SocketRpc, SocketRpcClosed
from sessiontree.backends.ray.hosts.process_start import LOOK_S, StartMonitor
from sessiontree.contracts.errors import describe_error
from sessiontree.runtime.transport.frames import Hello, HostHealth, PollReply
from sessiontree.runtime.transport.link import HostLost
from sessiontree.sandbox.process_tree import END_WITHIN_S, LET_END_S, REPORT

START_S = 120.0
"""How long a host may take to start, on a busy machine."""
POLL_S = 5.0
REAPED_S = LET_END_S + END_WITHIN_S + 1.0
"""How long it may take until every process of a host has ended."""
ANSWER_S = 2.0
"""How late an answer of a host may be."""


async def wait_for_reaper(reaper: int, reports: Path, host: int) -> int:
    """Wait up to ``REAPED_S`` for the end of a host's reaper; return how many processes it ended.

    Args:
        reaper: Its descriptor, which is closed.
        reports: The directory of its reports.
        host: The process id of the host.
    """
    loop, gone = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(reaper, gone.set)
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REAPED_S):
                await gone.wait()
    finally:
        loop.remove_reader(reaper)
        os.close(reaper)
    report = reports / f"{REPORT}{host}"
    with contextlib.suppress(OSError, ValueError):  # the reaper was killed, or has not finished
        ended = int(report.read_text("ascii"))
        report.unlink()
        return ended
    return 0


class RayTransport:
    """Carries frames to one actor.

    Args:
        actor: With ``hello``, ``submit``, ``poll`` and ``health``; None = ``ready`` starts it.
        on_close: Called once, when the host is ended.
        reports: Directory in which its reaper, if it has one, reports how many processes it ended.
        start: Watches the host's start; None = it can't be seen.
        failed: Called with the reason if the host did not start.
    """

    def __init__(
        self,
        actor: Any,
        on_close: Callable[[RayTransport], None],
        reports: Path,
        start: StartMonitor | None,
        failed: Callable[[str], None],
    ) -> None:
        self.actor = actor
        self.level = "starting"
        self.node = ""
        self.pid = 0
        self.is_ready = False
        self.embodied: tuple[str, int] | None = None
        self._on_close = on_close
        self._reports = reports
        self._start = start
        self._failed = failed
        self._reaper: int | None = None
        """Descriptor of the host's reaper, which ends after the host."""
        self._buffer: list[tuple[int, Any]] = []
        self._closed = False
        self._silent_since: float | None = None

    def submit(self, frames: Sequence[tuple[int, Any]]) -> None:
        """Send frames without waiting; frames of one turn of the event loop go together."""
        if not self._buffer:
            asyncio.get_running_loop().call_soon(self._flush)
        self._buffer.extend(frames)

    async def ready(self) -> None:
        """Wait until the host has said hello.

        Raises:
            HostLost: it did not start, or reported that it cannot serve.
        """
        try:
            hello: Hello = await self._await_hello(asyncio.ensure_future(self._request_hello()))
            if hello.failure is not None:
                raise HostLost(hello.failure)
        except (TimeoutError, HostLost) as error:
            late = f"the host did not start within {START_S:g} s"
            reason = error.reason if isinstance(error, HostLost) else late
            self._failed(reason)
            counts = not isinstance(error, HostLost) or error.counts
            raise HostLost(reason, served=False, counts=counts) from None
        self._hold(hello)
        self.level, self.pid, self.is_ready = hello.level, hello.pid, True

    def expect(self) -> bool:
        """Watch the start from now on, because nobody did so far; return whether it may still succeed."""
        if self._start is None:
            return True
        self._start.begin()
        return self._start.look() is None

    def _hold(self, hello: Hello) -> None:
        """Note the host's reaper."""
        with contextlib.suppress(OSError):  # it has ended already, as the host has
            self._reaper = os.pidfd_open(hello.reaper) if hello.reaper else None

    async def _request_hello(self) -> Any:
        return await self._answer(self.actor.hello.remote(), START_S)

    async def _await_hello(self, hello: asyncio.Task[Any]) -> Any:
        """Return the host's hello.

        Raises:
            HostLost: the start failed, which is noticed before Ray reports it.
        """
        try:
            while not hello.done():
                await asyncio.wait((hello,), timeout=LOOK_S)
                reason = None if hello.done() or self._start is None else self._start.look()
                if reason is not None:
                    raise HostLost(reason)
            return await hello
        finally:
            hello.cancel()

    async def poll(self, after: int, wait_s: float) -> PollReply:
        """Return outcomes after a number.

        Raises:
            HostLost: the host is gone, or did not start.
            TimeoutError: the host did not answer in time.
        """
        wait_s = min(wait_s, POLL_S)
        data = await self._answer(self.actor.poll.remote(after, wait_s), wait_s + ANSWER_S)
        self._silent_since = None
        reply: PollReply = load_value(data)
        return reply

    async def lag_s(self) -> float:
        """Return for how long the host has not answered; 0 while it starts.

        Raises:
            HostLost: the host's process is gone.
        """
        if not self.is_ready:
            return 0.0
        try:
            health: HostHealth = await self._answer(self.actor.health.remote(), ANSWER_S)
        except TimeoutError:
            self.embodied = None
            now = asyncio.get_running_loop().time()
            self._silent_since = self._silent_since or now
            return now - self._silent_since
        self.embodied = health.embodied
        return health.lag_s

    def close(self) -> None:
        """End the host's process."""
        if not self._closed:
            self._closed = True
            if self.actor is not None:
                ray.kill(self.actor)
            self._on_close(self)

    async def ended(self) -> int:
        """Wait up to ``REAPED_S`` for the host's reaper; return how many processes the reaper ended."""
        descriptor, self._reaper = self._reaper, None
        return 0 if descriptor is None else await wait_for_reaper(descriptor, self._reports, self.pid)

    def _flush(self) -> None:
        frames, self._buffer = tuple(self._buffer), []
        if not self._closed:
            self._send(frames)

    def _send(self, frames: Sequence[tuple[int, Any]]) -> None:
        self.actor.submit.remote(dump_value(frames))

    async def _answer(self, ref: Any, within_s: float) -> Any:
        try:
            async with asyncio.timeout(within_s):
                return await ref
        except RayError as error:
            cause = getattr(error, "cause", None)
            raise HostLost(describe_error(cause or error).splitlines()[0]) from None


class LineTransport(RayTransport):
    """Carries frames over a line once the other end has opened it, else as calls of the actor.

    Nothing is lost when the line breaks, because frames and answers are repeated until they are acknowledged.

    Args:
        lines: Where the other end may open the line.
        methods: What the other end may call, by name. What it calls comes as it happens, and before answers
            that follow it.
        given: As for :class:`RayTransport`.
    """

    def __init__(self, lines: LineListener, methods: Methods, *given: Any) -> None:
        super().__init__(*given)
        self._lines = lines
        self._methods = methods
        self._line: SocketRpc | None = None

    async def ready(self) -> None:
        """Wait until the actor has said hello, and let it open a line.

        Raises:
            HostLost: it did not start, or reported that it cannot serve.
        """
        await super().ready()
        self._offer_line()

    def _offer_line(self) -> None:
        self._lines.admit(self.pid, self._make_line)
        self.actor.open_line.remote()

    async def poll(self, after: int, wait_s: float) -> PollReply:
        """Return answers after a number; errors as :meth:`RayTransport.poll`."""
        if self._line is not None and self._line.is_open:
            wait_s = min(wait_s, POLL_S)
            with contextlib.suppress(SocketRpcClosed):
                async with asyncio.timeout(wait_s + ANSWER_S):
                    reply: PollReply = await self._line.ask("poll", after, wait_s)
                self._silent_since = None
                return reply
        return await super().poll(after, wait_s)

    def close(self) -> None:
        """End the actor's process."""
        if not self.node:  # the number of a process on another node may be another process's here
            self._lines.refuse(self.pid)
        if self._line is not None:
            self._line.close()
        super().close()

    def _make_line(self) -> SocketRpc:
        if self._line is not None:
            self._line.close()
        self._line = SocketRpc(self._methods)
        return self._line

    def _send(self, frames: Sequence[tuple[int, Any]]) -> None:
        if self._line is not None and self._line.is_open:
            self._line.tell("submit", frames)
        else:
            super()._send(frames)
