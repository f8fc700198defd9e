"""The launch of the supervisor's actor for one Ray backend, and the end of what was started with it."""

from __future__ import annotations

import asyncio
import os
import secrets
import select
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sessiontree.backends.ray.client.key_server import GATEWAY, KEYS_SOCKET, MEMORY, KeyServer
from sessiontree.backends.ray.client.socket_rpc import LINES_SOCKET
from sessiontree.backends.ray.client.supervisor_client import SupervisorClient
from sessiontree.backends.ray.engine.engine import RayConnection
from sessiontree.backends.ray.engine.engine_settings import select_for_gateway
from sessiontree.backends.ray.engine.program_copy import ProgramCopies
from sessiontree.backends.ray.hosts.process_start import (
    JOINED_UNSEEN_S,
    UNSEEN_S,
    ActorRestarter,
    StartMonitor,
    StartTimeout,
    build_runtime_env,
    end_started,
    note_for,
    open_failed_starts,
    probe_level,
)
from sessiontree.backends.ray.hosts.transport import REAPED_S
from sessiontree.backends.ray.supervisor import SUPERVISOR_CALLS, SupervisorActor, make_actor_class
from sessiontree.contracts.errors import ConfigError, EngineLost, SessionTreeError, describe_error
from sessiontree.contracts.settings.placement import Placements
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.memory.settings import MemorySettings
from sessiontree.models.providers.provider_model import KEY_VARIABLES
from sessiontree.runtime.scheduling.pool import PoolSize
from sessiontree.runtime.scheduling.settings import Settings
from sessiontree.sandbox.process_tree import find_ancestors

GATEWAY_BYTES: Final = 4 * 2**30
MEMORY_BYTES: Final = 4 * 2**30
HOSTS_PER_CORE: Final = 4
MIN_HOSTS: Final = 8
"""How many hosts a pool may have on the smallest node: sessions also wait for things other than a core."""
CLOSE_S: Final = 10.0
REMOVE_AGAIN_S: Final = 0.05
PASSED: Final = "variables"
"""Name of the file with the variables that hosts get."""


@dataclass(eq=False, kw_only=True, repr=False)
class SupervisorLaunch:
    """Starts the supervisor of one backend; what each field means, :class:`RayBackend` says."""

    engine: RayConnection
    copies: ProgramCopies
    state_dir: Path
    journal_dir: Path
    slots: int | None
    sharing: int
    host_bytes: int
    memory: MemorySettings
    pass_env: tuple[str, ...]
    enforcement: Literal["required", "best_effort"]
    placements: Placements | None
    scratch: Path | None = None
    """The directory of sockets and notes; None = nothing was started."""
    client: SupervisorClient | None = None
    """Kept after the runtime was closed, so that calls get an error that says so."""
    keeper: ActorRestarter | None = None
    keys: KeyServer | None = None

    def get_client(self) -> SupervisorClient:
        """Return the client of the supervisor.

        Raises:
            SessionTreeError: it was never started.
        """
        if self.client is None:
            raise SessionTreeError("no tree is open in this runtime; open or resume one first")
        return self.client

    def _find_role(self, pid: int) -> str:
        rows = self.get_client().ask_now(lambda supervisor: supervisor.actors())
        return next((row.role for row in rows if row.pid == pid and not row.node), "")

    def _select_variables(self, role: str) -> Mapping[str, str]:
        """Return the variables of this program that a process gets besides those that Ray gave it."""
        found = select_for_gateway(os.environ)
        if role == GATEWAY:
            return found
        if role == MEMORY:
            others = KEY_VARIABLES - {self.memory.key_variable}
            return {
                name: value
                for name, value in found.items()
                if self.memory.reads_variable(name) and name not in others
            }
        return {}

    async def start(self) -> SupervisorClient:
        """Start the supervisor; return the client of it.

        Raises:
            ConfigError: sessions are to be placed on other nodes without a cluster.
            SessionTreeError: it did not start; says why.
        """
        await self.engine.start()
        if self.placements is not None and self.engine.home is not None:
            raise build_cluster_error()
        if self.scratch is not None:  # left by a start that failed
            await asyncio.to_thread(_remove, self.scratch)
        key = secrets.token_hex(16)
        # A private Ray's directory is removed with it, however the program ends.
        self.scratch = Path(tempfile.mkdtemp(prefix="scratch-", dir=self.engine.home))
        settings = self._build_settings(await asyncio.to_thread(self.copies.root))
        settings.reports.mkdir(mode=0o700)
        if settings.passed is not None:
            _write_variables(settings.passed, self.pass_env)
        if self.keys is not None:
            await asyncio.to_thread(self.keys.close)
        self.keys = KeyServer(
            self.scratch / KEYS_SOCKET,
            self._find_role,
            self._select_variables,
            self.memory.revealed_options(),
        )
        note = note_for("supervisor", settings)
        actor: Any = (
            make_actor_class(SupervisorActor)
            .options(**self._build_options(settings, note))
            .remote(key, settings)
        )
        line = SupervisorClient(actor, key, lines=self.scratch / LINES_SOCKET)
        keeper = self.keeper = ActorRestarter(
            StartMonitor(note, self.engine.raylet, StartTimeout(self._choose_unseen_s(), JOINED_UNSEEN_S)),
            partial(ray.kill, actor, no_restart=False),
            partial(open_failed_starts(settings).add, "supervisor"),
            partial(_give_up, line, actor),
        )
        self.engine.lost.add_done_callback(partial(_lose, line, keeper))
        try:
            await asyncio.to_thread(probe_level, settings)
            await line.begin()
        except RayError as error:
            await asyncio.to_thread(keeper.stop)
            raise SessionTreeError(
                f"the supervisor did not start: {describe_error(error)}; run `sessiontree doctor`"
            ) from error
        except BaseException:
            await asyncio.to_thread(keeper.stop)
            if not line.is_lost:
                ray.kill(actor)
            raise
        self.client = line
        return line

    def _build_options(self, settings: Settings, note: Path) -> dict[str, Any]:
        return {
            "runtime_env": build_runtime_env("supervisor", settings, note),
            "num_cpus": 0,
            "max_restarts": -1,
            "max_task_retries": 0,
            "max_concurrency": SUPERVISOR_CALLS,
            "scheduling_strategy": NodeAffinitySchedulingStrategy(self.engine.node_id, soft=False),
        }

    def measure_pool(self) -> PoolSize:
        """Return how many hosts each pool may have, and how many it usually has."""
        cores = self.engine.core_count
        most = max(MIN_HOSTS, HOSTS_PER_CORE * cores) if self.slots is None else self.slots
        return PoolSize(most=most, usual=min(most, max(1, cores // self.sharing)))

    def _choose_unseen_s(self) -> float:
        return JOINED_UNSEEN_S if self.engine.home is None else UNSEEN_S

    def _build_settings(self, program: Path) -> Settings:
        assert self.scratch is not None  # noqa: S101 - made just before
        return Settings(
            state_dir=self.state_dir,
            journal_dir=self.journal_dir,
            program_pid=os.getpid(),
            program_started=find_ancestors(os.getpid())[0].started,
            python=ray.get_runtime_context().runtime_env.get("py_executable"),
            node_id=self.engine.node_id,
            logs_dir=self.engine.logs_dir,
            unseen_s=self._choose_unseen_s(),
            token_path=self.engine.token_path,
            scratch=self.scratch,
            reports=self.scratch / "reports",
            program=program,
            pool=self.measure_pool(),
            warm=1,
            host_bytes=self.host_bytes,
            gateway_bytes=GATEWAY_BYTES,
            memory=self.memory.without_values(),
            memory_bytes=MEMORY_BYTES,
            pass_env=self.pass_env,
            passed=self.scratch / PASSED if self.pass_env and self.engine.home is not None else None,
            enforcement=self.enforcement,
            security=self.engine.describe_protection(),
            placements=self.placements,
        )

    async def end(self, line: SupervisorClient) -> None:
        """End the supervisor; it is not restarted."""
        if self.keeper is not None:
            await asyncio.to_thread(self.keeper.stop)
        await _end(line)

    async def remove_rest(self, line: SupervisorClient | None) -> None:
        """Close the socket of the keys, end what a lost supervisor left, and remove the directory."""
        if self.keys is not None:
            await asyncio.to_thread(self.keys.close)
        if self.scratch is not None:
            if line is not None and line.is_lost:
                await asyncio.to_thread(end_started, self.scratch, CLOSE_S)
            await asyncio.to_thread(_remove, self.scratch)


def build_cluster_error() -> ConfigError:
    """Return the error that sessions can't be placed without a cluster."""
    return ConfigError(
        "placement needs a cluster, and this program has a Ray of its own machine alone; give "
        "address='auto' on a node of the cluster, or call ray.init(address=…) first"
    )


def _write_variables(path: Path, names: Sequence[str]) -> None:
    """Write variables of this program to a file that only this user reads, for hosts."""
    words = [f"{name}={os.environ[name]}\0" for name in names if name in os.environ]
    path.touch(0o600, exist_ok=False)
    path.write_bytes(os.fsencode("".join(words)))


def _remove(directory: Path) -> None:
    """Remove a directory, also while a reaper that is about to end still writes to it."""
    deadline = time.monotonic() + REAPED_S
    while directory.exists():
        shutil.rmtree(directory, ignore_errors=True)
        if time.monotonic() > deadline:
            return
        select.select([], [], [], REMOVE_AGAIN_S)


async def _end(line: SupervisorClient) -> None:
    """Ask the supervisor to end, and kill it if it does not."""
    try:
        async with asyncio.timeout(CLOSE_S):
            await line.end()
    except (RayError, TimeoutError, SessionTreeError):
        pass  # it has ended, or is killed now
    if ray.is_initialized() and not line.is_lost:  # a lost Ray may have been replaced by another one
        ray.kill(line.actor)


def _lose(line: SupervisorClient, keeper: ActorRestarter, lost: Future[EngineLost]) -> None:
    if not lost.cancelled():
        line.lose(lost.result())
        keeper.stop()


def _give_up(line: SupervisorClient, actor: Any, failures: int, reason: str) -> None:
    """Fail all callers that wait, and kill the actor, which a joined Ray would restart again and again."""
    died = f"its supervisor failed to start {failures} times in a row, the last: {reason}"
    advice = "look at the machine's memory and at `sessiontree doctor`, then go on with SessionTree.resume"
    line.lose(EngineLost(died, advice, "start"))
    ray.kill(actor)
