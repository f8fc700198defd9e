"""The way to a host in the same process, with the faults a real one has, on purpose.

``Faults`` makes frames and answers be lost, repeated, delayed and reordered, and hosts die; a tree must
come out the same.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sessiontree.runtime.frames import Frame, PollReply
from sessiontree.runtime.host import HostCore
from sessiontree.runtime.host_link import HostLost


@dataclass(slots=True)
class Faults:
    """What goes wrong, each as a chance per message from 0 to 1; the random source makes it repeatable."""

    random: random.Random
    lose: float = 0.0
    repeat: float = 0.0
    delay: float = 0.0
    delay_s: float = 0.002
    """Longest delay; delayed messages overtake each other."""
    die: float = 0.0
    """Chance per submit and poll that the host is gone from then on."""
    deaths_left: int = 0
    deaths: int = field(default=0, init=False)

    def happens(self, chance: float) -> bool:
        """Whether something of a chance happens now."""
        return chance > 0 and self.random.random() < chance


class LocalTransport:
    """Calls the host directly; as bad as its faults make it."""

    pid = os.getpid()
    level = "structural"
    """Sessions share the program's own process: what confines them is what they hold."""
    is_ready = True

    def __init__(
        self, host: HostCore, faults: Faults | None, on_close: Callable[[LocalTransport], None]
    ) -> None:
        self.host = host
        self._faults = faults
        self._on_close = on_close
        self._dead = False

    def submit(self, frames: Sequence[tuple[int, Frame]]) -> None:
        """Hand frames over."""
        faults = self._faults
        if self._dead:
            return
        if faults is None:
            self.host.receive(frames)
            return
        if self._is_doomed(faults):
            # Not from within the caller: a real host dies on its own time.
            asyncio.get_running_loop().call_soon(self.kill)
        for frame in frames:
            if faults.happens(faults.lose):
                continue
            for _ in range(2 if faults.happens(faults.repeat) else 1):
                self._hand_over(frame, faults)

    async def poll(self, after: int, wait_s: float) -> PollReply:
        """Return the host's outcomes; a host may die with them on the way.

        Raises:
            HostLost: the host is gone.
            TimeoutError: the answer is.
        """
        faults = self._faults
        if faults is None:
            return await self.host.poll(after, wait_s)
        reply = await self.host.poll(after, min(wait_s, faults.delay_s * 5))
        if self._is_doomed(faults):
            self.kill()
            raise HostLost("the host died")
        if faults.happens(faults.delay):
            await asyncio.sleep(faults.delay_s * faults.random.random())
        if faults.happens(faults.lose):
            raise TimeoutError
        return reply

    async def ready(self) -> None:
        """Return at once: nothing has to start."""

    async def lag_s(self) -> float:
        """Return 0: a host in this process is never deaf while anybody else runs."""
        return 0.0

    def kill(self) -> None:
        """End the host at once; what it had not reported is lost."""
        if not self._dead:
            self._dead = True
            self.host.close()
            self._on_close(self)

    def close(self) -> None:
        """End the host."""
        self.kill()

    async def ended(self) -> int:
        """Return how many processes of commands still ran when the host was closed."""
        return self.host.killed

    def _hand_over(self, frame: tuple[int, Frame], faults: Faults) -> None:
        if faults.happens(faults.delay):
            delay_s = faults.delay_s * faults.random.random()
            asyncio.get_running_loop().call_later(delay_s, self._receive, frame)
        else:
            self._receive(frame)

    def _receive(self, frame: tuple[int, Frame]) -> None:
        if not self._dead:
            self.host.receive((frame,))

    def _is_doomed(self, faults: Faults) -> bool:
        dies = not self._dead and faults.deaths_left > 0 and faults.happens(faults.die)
        if dies:
            faults.deaths_left -= 1
            faults.deaths += 1
        return dies
