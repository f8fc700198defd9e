"""The actor of this runtime on another node: it looks at the node, prepares it for hosts, and sees them end.

Hosts of a placed pool run on nodes that the supervisor cannot look at. The program starts one such actor on
each of them. Not here: which nodes are used (``placed_nodes.py``), and the hosts (``placed_hosts.py``).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ray._private import worker as ray_worker

from sessiontree.backends.ray.commands.remote_node import compare_releases, look_at, start_watch
from sessiontree.backends.ray.engine import engine_home
from sessiontree.backends.ray.engine.engine import find_token_file
from sessiontree.backends.ray.engine.program_copy import write_files
from sessiontree.backends.ray.hosts.transport import wait_for_reaper
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.interpreter.import_guard import tidy
from sessiontree.sandbox import Jail, prepare_canaries, probe
from sessiontree.workspace.identity import DirectoryView


@dataclass(frozen=True, slots=True)
class AgentPlan:
    """What a node must have, and what its agent makes there."""

    release: tuple[str, str, str]
    """Of sessiontree, Python and Ray in the creating program."""
    python: Path
    """The interpreter that starts every process of the runtime."""
    launcher: Path
    """The file that this interpreter runs first."""
    logs_dir: Path
    """Directory of Ray's logs, the only place that a Worker's process may write to."""
    scratch: Path
    """The runtime's private directory; hosts look for it at this path on every node."""
    enforcement: Any
    """Whether Workers are refused if the kernel can't confine them."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What an agent found on its node."""

    refusal: str | None = None
    """Why no host can run there; None = hosts can."""
    confinement: str = "none"
    """The level of a process that was started there as a Worker's host would be."""
    worker_refusal: str | None = None
    """Why no Worker's host can run there."""
    token: Path | None = None
    """The file of Ray's token there, which is hidden from Workers."""


class NodeAgent:
    """The runtime's actor on another node. Its process ends with the creating program."""

    def __init__(self) -> None:
        tidy()
        self._scratch: Path | None = None
        """The runtime's directory, if it was made here."""
        self._lock: int | None = None
        """Held for as long as the directory is this process's."""
        self._reapers: dict[int, int] = {}
        """Descriptors of reapers by the process ids of their hosts."""
        self._reports = Path()

    async def begin(self, plan: AgentPlan) -> NodeFacts:
        """Look at the node, and make the runtime's directory."""
        return await asyncio.to_thread(self._begin, plan)

    def _begin(self, plan: AgentPlan) -> NodeFacts:
        found = compare_releases(plan.release)
        if found is not None:
            return NodeFacts(f"it has {found}; install the same on every node")
        for path in (plan.python, plan.launcher):
            if not path.is_file():
                return NodeFacts(
                    f"it has no {str(path)!r}; install sessiontree at the same path on every node"
                )
        node: Any = ray_worker._global_node  # noqa: SLF001 - Ray has no public access to its directories
        logs_dir = Path(node.get_logs_dir_path())
        if logs_dir != plan.logs_dir:
            return NodeFacts(
                f"its Ray writes logs to {str(logs_dir)!r} and that of the program's node to "
                f"{str(plan.logs_dir)!r}; start all nodes with the same --temp-dir"
            )
        try:
            unsafe = self.take(plan.scratch)
        except OSError as error:
            return NodeFacts(f"can't make the runtime's directory {str(plan.scratch)!r}: {error}")
        if unsafe is not None:
            return NodeFacts(unsafe)
        confinement, refusal = "none", None
        try:
            confinement = str(probe(Jail(enforcement=plan.enforcement)))
        except ConfigError as error:
            refusal = str(error)
        return NodeFacts(None, confinement, refusal, find_token_file())

    def take(self, scratch: Path) -> str | None:
        """Make the runtime's directory; return why the one that is there can't be used. Blocks.

        Raises:
            OSError: it can't be made.
        """
        try:
            scratch.mkdir(0o700, parents=True)
        except FileExistsError:  # nodes may share a directory for temporary files
            unsafe = _explain_unsafe(scratch)
            if unsafe is not None:
                return unsafe
        else:
            self._scratch = scratch
            self._lock = engine_home.claim(scratch)
            start_watch(scratch)
        self._reports = scratch / "reports"
        self._reports.mkdir(0o700, exist_ok=True)
        return None

    async def look(self, workspace: Path, entries: bool) -> DirectoryView | str:
        """Return what this node sees of a workspace, or why it sees none."""
        return await look_at(workspace, entries)

    async def receive(self, name: str, files: Mapping[str, bytes]) -> None:
        """Write a copy of the program's modules into the runtime's directory, unless it is there."""
        await asyncio.to_thread(self._write, name, files)

    def _write(self, name: str, files: Mapping[str, bytes]) -> None:
        place = self._reports.parent / name
        if place.exists():
            return
        part = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=place.parent))
        try:
            write_files(part, files)
            part.rename(place)  # so that a copy that was cut short never counts as one
        except OSError:
            if not place.exists():  # another node of this machine was not first
                raise
        finally:
            shutil.rmtree(part, ignore_errors=True)

    async def prepare(self, victims: Path) -> None:
        """Make the files that a Worker's host must fail to change before it serves."""
        if not await asyncio.to_thread(victims.exists):  # one machine may have several nodes
            await asyncio.to_thread(prepare_canaries, victims)

    async def hold(self, host: int, reaper: int) -> None:
        """Remember the reaper of a host, by its process and not by its number alone."""
        with contextlib.suppress(OSError):  # it has ended already, as the host has
            self._reapers[host] = os.pidfd_open(reaper)

    async def ended(self, host: int) -> int:
        """Wait for the end of a host's reaper; return how many processes it ended."""
        descriptor = self._reapers.pop(host, None)
        return 0 if descriptor is None else await wait_for_reaper(descriptor, self._reports, host)

    async def close(self) -> None:
        """Remove the runtime's directory, if it was made here."""
        if self._scratch is not None:
            await asyncio.to_thread(shutil.rmtree, self._scratch, ignore_errors=True)


def _explain_unsafe(scratch: Path) -> str | None:
    """Return why others could read or change what the runtime puts into a directory; None = nobody can."""
    found = scratch.lstat()
    begin = f"the runtime's directory {str(scratch)!r} is there already, and "
    if not stat.S_ISDIR(found.st_mode):
        return f"{begin}it is not a directory; remove it"
    if found.st_uid != os.getuid():
        return f"{begin}it belongs to user {found.st_uid} instead of {os.getuid()}; remove it"
    if found.st_mode & 0o077:
        return f"{begin}other users have rights to it (mode {stat.S_IMODE(found.st_mode):o}); remove it"
    return None
