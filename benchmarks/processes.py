"""What the processes of a runtime hold and use: memory (PSS) and processor time, by kind of process.

Kinds are ``program``, ``supervisor``, ``gateway``, ``memory``, ``acting`` and ``observing`` (hosts on Ray),
``gcs_server``, ``raylet`` and ``agent`` (of runtime environments).
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Self

from sessiontree import Runtime
from sessiontree.backends.ray.engine.engine_servers import RAYLET, list_watched_servers
from sessiontree.runtime.transport.supervisor_api import ActorRow
from sessiontree.sandbox.process_tree import list_children

MIB: Final = 2**20
HOSTS: Final = frozenset({"acting", "observing"})
SAMPLE_S: Final = 1.0
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


def pss_bytes(pid: int) -> int:
    """Return a process's proportional set size."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"the kernel does not tell what process {pid} holds")


def cpu_ms(pid: int) -> int:
    """Return the processor time that a process has used so far, in milliseconds."""
    after_name = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) * 1000 // TICKS_PER_S


async def actors(runtime: Runtime) -> list[ActorRow]:
    """Return the processes of a runtime on Ray, each once; none for the local backend."""
    backend: Any = runtime.backend
    ask = getattr(backend, "actors", None)
    rows: list[ActorRow] = [] if ask is None else await ask()
    return [row for row in rows if row.pid]


async def measured(runtime: Runtime, figure: Callable[[int], int]) -> Counter[str]:
    """Return the sum of a figure of the processes of each kind; those that just ended are left out."""
    rows = await actors(runtime)
    return await asyncio.to_thread(measured_by, {row.pid: row.role for row in rows}, figure)


def measured_by(roles: Mapping[int, str], figure: Callable[[int], int]) -> Counter[str]:
    """Return a figure of this program, of actors' processes (id to kind) and of Ray's servers, by kind."""
    pids = [(os.getpid(), "program"), *roles.items()]
    if roles:
        for server in list_watched_servers():
            pids.append((server.pid, server.name))
            if server.name == RAYLET:
                pids += [(pid, "agent") for pid in list_children(server.pid) if _is_agent(pid)]
    found: Counter[str] = Counter()
    for pid, kind in pids:
        try:
            found[kind] += figure(pid)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def _is_agent(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::RuntimeEnvAgent")
    except (FileNotFoundError, ProcessLookupError):
        return False


class Peak:
    """Samples memory and the number of hosts while work runs; use it as an async context manager.

    Args:
        runtime: The runtime whose processes are sampled.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._task: asyncio.Task[None] | None = None
        self.pss_mib = 0.0
        """The largest sum of all processes so far."""
        self.pss_bytes: Counter[str] = Counter()
        """The largest sum of the processes of each kind so far."""
        self.hosts = 0
        """The largest number of host processes so far."""

    async def __aenter__(self) -> Self:
        """Begin to sample."""
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Take the last sample."""
        if self._task is not None:
            self._task.cancel()
        await self.sample()

    async def sample(self) -> None:
        """Take one sample."""
        rows = await actors(self._runtime)
        held = await asyncio.to_thread(measured_by, {row.pid: row.role for row in rows}, pss_bytes)
        self.pss_mib = max(self.pss_mib, held.total() / MIB)
        self.pss_bytes |= held
        self.hosts = max(self.hosts, len({row.pid for row in rows if row.role in HOSTS}))

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            until = loop.time() + SAMPLE_S
            await self.sample()
            await asyncio.sleep(max(0.0, until - loop.time()))
