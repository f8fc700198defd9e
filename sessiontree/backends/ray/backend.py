"""The Ray backend: a supervisor actor owned by this program, hosts and a gateway owned by the supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import select
import shutil
import tempfile
import time
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sessiontree.backends.ray.engine import Engine
from sessiontree.backends.ray.jail import failed_starts, level_of, note_for, started_as
from sessiontree.backends.ray.owner import RemoteOwner
from sessiontree.backends.ray.program_copy import ProgramCopies
from sessiontree.backends.ray.progress import Watches
from sessiontree.backends.ray.serialization import pack, with_program
from sessiontree.backends.ray.start_watch import (
    JOINED_UNSEEN_S,
    UNSEEN_S,
    RestartKeeper,
    StartPace,
    StartWatch,
    end_started,
)
from sessiontree.backends.ray.supervisor import SUPERVISOR_CALLS, SupervisorActor, actor_of
from sessiontree.backends.ray.supervisor_client import SupervisorClient
from sessiontree.backends.ray.transport import REAPED_S
from sessiontree.contracts.errors import ConfigError, EngineLost, SessionTreeError, StartFailed, words_of
from sessiontree.contracts.tree_config import TreeConfig
from sessiontree.memory.settings import MemorySettings
from sessiontree.runtime.progress import ProgressReader
from sessiontree.runtime.scheduler import PoolSize
from sessiontree.runtime.session_reports import ActorRow
from sessiontree.runtime.settings import Settings, hidden_places
from sessiontree.runtime.tree_resources import TreeSetup
from sessiontree.sandbox import available_level
from sessiontree.sandbox.process_tree import ancestors

HOST_BYTES: Final = 2 * 2**30
GATEWAY_BYTES: Final = 4 * 2**30
MEMORY_BYTES: Final = 4 * 2**30
HOSTS_PER_CORE: Final = 4
CLOSE_S: Final = 10.0
REMOVE_AGAIN_S: Final = 0.05


class RayBackend:
    """Runs trees in actors. Ray is joined or started with the first tree.

    Args:
        state_dir: Hidden from tools; memory lies there.
        journal_dir: Where the journal lies, locked by the supervisor while it lives; None = in the state
            directory.
        slots: Most hosts of each pool; None = four per core, at least eight.
        address: Cluster to connect to; None = the program's own Ray, or a private one.
        num_cpus: CPUs of a private Ray; None counts the machine's.
        insecure: Whether a private Ray may go without authentication.
        host_bytes: Most memory one host may hold.
        enforcement: Whether Workers run where the kernel can't confine them.
        memory: Where memory lies, and what embeds its texts.
        pass_env: Variables of this program's environment that hosts get beside harmless ones.
    """

    def __init__(  # noqa: PLR0913 - keyword-only settings, as the runtime takes them
        self,
        state_dir: Path,
        *,
        journal_dir: Path | None = None,
        slots: int | None = None,
        address: str | None = None,
        num_cpus: int | None = None,
        insecure: bool = False,
        host_bytes: int = HOST_BYTES,
        enforcement: Literal["required", "best_effort"] = "required",
        memory: MemorySettings | None = None,
        pass_env: tuple[str, ...] = (),
    ) -> None:
        """Check what can be checked before anything is started.

        Raises:
            ConfigError: the kernel can't confine Workers, and it is required to.
        """
        level = available_level()
        if enforcement == "required" and not level.is_full:
            raise ConfigError(
                f"this kernel confines Workers only as far as {level}, not to Landlock ABI 3 and seccomp; "
                "give kernel_enforcement='best_effort' to run them all the same, or backend='local'"
            )
        self._state_dir = state_dir
        self._journal_dir = journal_dir or state_dir
        cores = os.cpu_count() or 1
        most = max(8, HOSTS_PER_CORE * cores) if slots is None else slots
        self._pool = PoolSize(most=most, usual=min(most, max(2, cores)))
        self._engine = Engine(address, num_cpus, insecure)
        self._host_bytes = host_bytes
        self._memory = memory or MemorySettings()
        self._pass_env = pass_env
        self._hidden = hidden_places(state_dir, self._memory)
        self._enforcement: Literal["required", "best_effort"] = enforcement
        self._starting: asyncio.Future[SupervisorClient] | None = None
        self._closing: asyncio.Future[None] | None = None
        self._line: SupervisorClient | None = None
        self._watches: Watches | None = None
        self._owner: RemoteOwner | None = None
        self._scratch: Path | None = None
        self._copies = ProgramCopies(state_dir)
        self._keeper: RestartKeeper | None = None

    @property
    def owner(self) -> RemoteOwner:
        """What may be asked about trees that are open."""
        if self._owner is None:
            raise SessionTreeError("no tree is open in this runtime yet")
        return self._owner

    async def config_of(self, tree_id: str) -> TreeConfig:
        """Return a journaled tree's configuration."""
        config: TreeConfig = await (await self._started()).ask("config_of", tree_id)
        return config

    async def create(self, config: TreeConfig, setup: TreeSetup) -> None:
        """Create a tree; durable when this returns."""
        for name, place in zip(("state_dir", "memory"), self._hidden, strict=False):
            _check_apart(name, place, Path(config.workspace))
        await self._open_tree("create", config.tree_id, config, setup)

    async def resume(self, tree_id: str, setup: TreeSetup) -> None:
        """Take up a tree from the journal."""
        await self._open_tree("resume", tree_id, tree_id, setup)

    async def _open_tree(self, how: str, tree_id: str, what: TreeConfig | str, setup: TreeSetup) -> None:
        packed = pack(setup, hidden=self._hidden)
        baggage = with_program(packed, await asyncio.to_thread(self._copies.take))
        line = await self._started()
        opening = asyncio.ensure_future(line.ask(how, what, setup.agents, baggage))
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(partial(_take_back, line, tree_id))
            raise
        line.opened(tree_id, setup.agents, baggage)

    def release(self, tree_id: str) -> None:
        """Let a tree go; it stays in the journal."""
        if self._line is not None:
            self._line.released(tree_id)
            with contextlib.suppress(SessionTreeError):  # a supervisor that is gone keeps no tree
                self._line.ask_now("release", tree_id)

    def watch(self, tree_id: str, session: str | None) -> ProgressReader:
        """Return a reader of progress."""
        if self._watches is None:
            raise SessionTreeError("no tree is open in this runtime yet")
        return self._watches.watch(tree_id, session)

    async def actors(self) -> list[ActorRow]:
        """Return every process of this runtime, and the session it embodies."""
        rows: list[ActorRow] = await (await self._started()).ask("actors")
        return rows

    async def close(self) -> None:
        """End supervisor, hosts and gateway, then the private Ray, if this was its last user.

        Closing again waits for the first; given up, it goes on to its end.
        """
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._starting is not None and not self._starting.done():
            await asyncio.wait([self._starting])
        line, self._line = self._line, None
        if line is not None:
            line.closed()
            if self._watches is not None:
                await self._watches.close()
            if self._keeper is not None:
                await asyncio.to_thread(self._keeper.stop)
            await _end(line)
        if self._scratch is not None:
            if line is not None and line.is_lost:
                await asyncio.to_thread(end_started, self._scratch, CLOSE_S)
            await asyncio.to_thread(_remove, self._scratch)
        if self._copies.is_used:
            await asyncio.to_thread(self._copies.close)
        await self._engine.close()

    async def _started(self) -> SupervisorClient:
        if self._closing is not None:
            raise SessionTreeError("the runtime was closed in this process; open another one")
        if self._line is not None:
            return self._line  # whichever loop it was started on
        if self._starting is None or self._starting.done():
            self._starting = asyncio.ensure_future(self._start())
        return await asyncio.shield(self._starting)

    async def _start(self) -> SupervisorClient:
        await self._engine.start()
        if self._scratch is not None:  # of a start that failed
            await asyncio.to_thread(_remove, self._scratch)
        key = secrets.token_hex(16)
        # In a private Ray's own directory, which goes with it however the program ends.
        self._scratch = Path(tempfile.mkdtemp(prefix="scratch-", dir=self._engine.home))
        settings = self._settings(await asyncio.to_thread(self._copies.root))
        settings.reports.mkdir(mode=0o700)
        note = note_for("supervisor", settings)
        actor: Any = actor_of(SupervisorActor).options(**self._options(settings, note)).remote(key, settings)
        line = SupervisorClient(actor, key)
        keeper = self._keeper = RestartKeeper(
            StartWatch(note, self._engine.raylet, StartPace(self._unseen_s(), JOINED_UNSEEN_S)),
            partial(ray.kill, actor, no_restart=False),
            partial(failed_starts(settings).add, "supervisor"),
            partial(_give_up, line, actor),
        )
        self._engine.lost.add_done_callback(partial(_lose, line, keeper))
        try:
            await asyncio.to_thread(level_of, settings)
            await line.begin()
        except RayError as error:
            await asyncio.to_thread(keeper.stop)
            raise SessionTreeError(f"the supervisor did not start: {words_of(error)}") from error
        except BaseException:
            await asyncio.to_thread(keeper.stop)
            if not line.is_lost:
                ray.kill(actor)
            raise
        self._watches = Watches(line)
        self._owner = RemoteOwner(line)
        self._line = line
        return line

    def _options(self, settings: Settings, note: Path) -> dict[str, Any]:
        return {
            "runtime_env": started_as("supervisor", settings, note),
            "num_cpus": 0,
            "max_restarts": -1,
            "max_task_retries": 0,
            "max_concurrency": SUPERVISOR_CALLS,
            "scheduling_strategy": NodeAffinitySchedulingStrategy(self._engine.node_id, soft=False),
        }

    def _unseen_s(self) -> float:
        return JOINED_UNSEEN_S if self._engine.home is None else UNSEEN_S

    def _settings(self, program: Path) -> Settings:
        assert self._scratch is not None  # noqa: S101 - made just before
        return Settings(
            state_dir=self._state_dir,
            journal_dir=self._journal_dir,
            program_pid=os.getpid(),
            program_started=ancestors(os.getpid())[0].started,
            python=ray.get_runtime_context().runtime_env.get("py_executable"),
            node_id=self._engine.node_id,
            logs_dir=self._engine.logs_dir,
            unseen_s=self._unseen_s(),
            token_path=self._engine.token_path,
            scratch=self._scratch,
            reports=self._scratch / "reports",
            program=program,
            pool=self._pool,
            warm=1,
            host_bytes=self._host_bytes,
            gateway_bytes=GATEWAY_BYTES,
            memory=self._memory,
            memory_bytes=MEMORY_BYTES,
            pass_env=self._pass_env,
            enforcement=self._enforcement,
            security=self._engine.protection(),
        )


def _take_back(line: SupervisorClient, tree_id: str, opening: asyncio.Future[Any]) -> None:
    """Let a tree go that was opened for somebody who no longer waited for it."""
    if not opening.cancelled() and opening.exception() is None:
        line.tell("release", tree_id)


def _check_apart(name: str, place: Path, workspace: Path) -> None:
    """Refuse a place from which Workers could not read their workspace.

    Raises:
        ConfigError: what is hidden from Workers lies inside the workspace.
    """
    if place.resolve().is_relative_to(workspace.resolve()):
        raise ConfigError(
            f"{name} {str(place)!r} lies inside the workspace {str(workspace)!r}: it is hidden from "
            "Workers, and so would be what appears beside it later; give a place outside, or leave it out"
        )


def _remove(directory: Path) -> None:
    """Remove a directory, also while a reaper that is about to end still writes there."""
    deadline = time.monotonic() + REAPED_S
    while directory.exists():
        shutil.rmtree(directory, ignore_errors=True)
        if time.monotonic() > deadline:
            return
        select.select([], [], [], REMOVE_AGAIN_S)


async def _end(line: SupervisorClient) -> None:
    """Let the supervisor end in order, and make sure that it ends."""
    try:
        async with asyncio.timeout(CLOSE_S):
            await line.end()
    except (RayError, TimeoutError, SessionTreeError):
        pass  # it is gone already, or will be at once
    if ray.is_initialized() and not line.is_lost:  # there may be another Ray by now
        ray.kill(line.actor)


def _lose(line: SupervisorClient, keeper: RestartKeeper, lost: Future[EngineLost]) -> None:
    if not lost.cancelled():
        line.lose(lost.result())
        keeper.stop()


def _give_up(line: SupervisorClient, actor: Any, failures: int, reason: str) -> None:
    """Tell whoever waits, and end the actor: in a joined Ray it would be started again and again."""
    line.lose(StartFailed("supervisor", failures, reason))
    ray.kill(actor)
