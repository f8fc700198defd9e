"""What the benchmarks on Ray are compared with: a plain actor in the same Ray, called and started.

A raw call is ``await actor.nothing.remote()``: an async actor without CPUs, no arguments, no result, awaited
by this program's asyncio loop. Between actors it is the same, awaited inside another such actor.
"""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Self

import ray
from ray import cloudpickle

# The processes of a private Ray import nothing of a checkout; what is measured travels as it is.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

WARM_CALLS = 30


class Plain:
    """An actor that does nothing, and calls others that do nothing."""

    async def nothing(self) -> None:
        """Return at once."""

    async def call_us(self, other: Any, calls: int) -> list[float]:
        """Return the microseconds of each of some calls to another actor, one after the other."""
        return [await _call_us(other) for _ in range(calls)]


class RawActors:
    """Two plain actors in the Ray this process has by now; use it as an async context manager."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._actors: list[Any] = []

    async def __aenter__(self) -> Self:
        """Start both, and call them until they are warm."""
        self._actors = [_start(), _start()]
        for _ in range(WARM_CALLS):
            await self.call_us()
        await self.between_us(WARM_CALLS)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End both."""
        for actor in self._actors:
            ray.kill(actor)

    async def call_us(self) -> float:
        """Return the microseconds of one raw call from this program."""
        return await _call_us(self._actors[0])

    async def between_us(self, calls: int) -> list[float]:
        """Return the microseconds of each of some raw calls from one actor to the other."""
        first, second = self._actors
        taken: list[float] = await first.call_us.remote(second, calls)
        return taken

    async def cold_ms(self) -> float:
        """Return the milliseconds from nothing to a new actor's first answer."""
        started_ns = time.monotonic_ns()
        actor = _start()
        await actor.nothing.remote()
        taken_ns = time.monotonic_ns() - started_ns
        ray.kill(actor)
        return taken_ns / 1e6


def _start() -> Any:
    return ray.remote(num_cpus=0, max_restarts=0, max_task_retries=0)(Plain).remote()


async def _call_us(actor: Any) -> float:
    started_ns = time.monotonic_ns()
    await actor.nothing.remote()
    return (time.monotonic_ns() - started_ns) / 1e3
