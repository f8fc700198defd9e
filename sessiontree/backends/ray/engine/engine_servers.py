"""The servers of a Ray: which of them a private Ray starts, and how their end is noticed.

A private Ray starts only the servers that sessions use, on the loopback interface, and silently. Ray has no
arguments for most of this, so its functions are replaced while it starts. A Ray is lost when its GCS or its
raylet ended, or cannot be reached any more.

Not here: the settings of a private Ray (``engine_settings.py``), and its start and end (``engine.py``).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, Final

from ray import _raylet
from ray._private import node as ray_node
from ray._private import parameter, ray_constants, services
from ray._private import state as ray_state
from ray._private import utils as ray_utils
from ray._private import worker as ray_worker
from ray.util import serialization_addons

from sessiontree.backends.ray.engine import environment_agent
from sessiontree.backends.ray.engine.engine_settings import select_for_servers
from sessiontree.contracts.errors import EngineLost
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.control.peer import identify_peer
from sessiontree.interpreter.import_guard import list_user_site_words
from sessiontree.runtime.transport.socket_files import connect_to

PROBE_EVERY_S = 2.0
PROBE_S = 1.0
"""How long an address may take to accept a connection."""
MAX_REFUSALS = 3
"""After this many failed connections in a row a GCS counts as lost: at most 9 s, so a short restart is no
loss."""
STOP_S = 5.0
REGISTERED_S = 5.0
"""How long a raylet is expected to take until it is registered, at most."""
REGISTERED_AGAIN_S = 0.01


@dataclass(frozen=True, slots=True)
class Server:
    """One server of a Ray on this machine.

    Attributes:
        name: Ray's name for it: ``gcs_server`` or ``raylet``.
        pid: Its process id.
    """

    name: str
    pid: int


class EngineWatch:
    """Waits until a Ray is lost, in the thread that calls :meth:`wait`.

    Args:
        servers: The servers that this Ray needs; they are watched from now on.
        gcs_address: Host and port of the GCS, if it is not among the servers.
        probe_every_s: The time between two connections to it.
    """

    def __init__(
        self,
        servers: Iterable[Server],
        gcs_address: str | None = None,
        probe_every_s: float = PROBE_EVERY_S,
    ) -> None:
        """Open a descriptor of each process, because its id may be reused."""
        self._gcs_address = gcs_address
        self._probe_every_s = probe_every_s
        self._refusals = 0
        self._stop_event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._closing = threading.Lock()
        self._died: str | None = None
        self._watched: dict[int, Server] = {}
        for server in servers:
            try:
                self._watched[os.pidfd_open(server.pid)] = server
            except ProcessLookupError:
                self._died = _name(server)

    def wait(self) -> str | None:
        """Wait until a server died and return which, or return None after :meth:`stop`. Call it once."""
        try:
            return self._died or self._wait()
        finally:
            with self._closing:
                for descriptor in (self._stop_event, *self._watched):
                    os.close(descriptor)
                self._stop_event = -1

    def stop(self) -> None:
        """End :meth:`wait`, from any thread, also before it began."""
        with self._closing:
            if self._stop_event >= 0:
                os.eventfd_write(self._stop_event, 1)

    def _wait(self) -> str | None:
        poll = select.poll()
        for descriptor in (self._stop_event, *self._watched):
            poll.register(descriptor, select.POLLIN)
        probe_at = time.monotonic() + self._probe_every_s
        while True:
            left_s = None if self._gcs_address is None else max(0.0, probe_at - time.monotonic())
            ready = {descriptor for descriptor, _ in poll.poll(None if left_s is None else left_s * 1000)}
            if self._stop_event in ready:
                return None
            if ready:
                return _name(self._watched[ready.pop()])
            if self._gcs_address is not None:
                if self._is_refused(self._gcs_address):
                    return f"the GCS at {self._gcs_address} cannot be reached"
                probe_at = time.monotonic() + self._probe_every_s

    def _is_refused(self, address: str) -> bool:
        """Connect, and return whether that has failed ``MAX_REFUSALS`` times in a row."""
        self._refusals = 0 if can_connect(address, PROBE_S) else self._refusals + 1
        return self._refusals >= MAX_REFUSALS


class JoinedWatch:
    """Watches a Ray that the program itself initialised, in a separate thread.

    Args:
        servers: As for :class:`EngineWatch`.
        gcs_address: As for :class:`EngineWatch`.
        probe_every_s: As for :class:`EngineWatch`.

    Attributes:
        lost: Done when this Ray is lost; cancelled by :meth:`stop`.
    """

    def __init__(
        self, servers: Iterable[Server], gcs_address: str, probe_every_s: float = PROBE_EVERY_S
    ) -> None:
        self.lost: Future[EngineLost] = Future()
        self._watch = EngineWatch(servers, gcs_address, probe_every_s)
        self._thread = threading.Thread(target=self._run, name="sessiontree-engine-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and wait for that."""
        self._watch.stop()
        self._thread.join(STOP_S)

    def _run(self) -> None:
        died = self._watch.wait()
        if died is None:
            self.lost.cancel()
        else:
            self.lost.set_result(
                EngineLost(
                    died,
                    "call ray.shutdown() within a minute, or Ray ends the program; then close the runtime "
                    "and use SessionTree.resume",
                )
            )


def can_connect(address: str, within_s: float) -> bool:
    """Whether a server accepts connections at an address, such as ``127.0.0.1:6379`` or ``[::1]:6379``."""
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError, ValueError):
        socket.create_connection((host.strip("[]"), int(port)), within_s).close()
        return True
    return False


def find_listener(path: Path) -> int | None:
    """Return the id of the process that listens at a socket's path, or None if it cannot be seen."""
    with contextlib.suppress(OSError), connect_to(path, PROBE_S) as connection:
        return identify_peer(connection).pid or None  # 0 = it is in another PID namespace
    return None


def _name(server: Server) -> str:
    return f"its {server.name} (process {server.pid}) ended"


RAYLET: Final[str] = ray_constants.PROCESS_TYPE_RAYLET
WATCHED = (ray_constants.PROCESS_TYPE_GCS_SERVER, RAYLET)
"""A Ray without one of these is lost."""
_SET_CHILD_SUBREAPER = 36
_AGENT = "--dashboard_agent_command="
_AGENT_PORTS = ("METRICS_AGENT_PORT_NAME", "METRICS_EXPORT_PORT_NAME", "DASHBOARD_AGENT_LISTEN_PORT_NAME")
"""Names in ``ray._raylet`` of the ports that the raylet expects from its dashboard agent."""
_ENVIRONMENTS = "--runtime_env_agent_command="
_RAYS_PLACE = Path(services.RAY_PATH) / "_private" / "runtime_env" / "agent" / "main.py"
_RAYS_AGENT = f"-u {subprocess.list2cmdline([str(_RAYS_PLACE)])}"
"""The program in the command of the agent for runtime environments."""
_SLEEP = f'-c "exec sleep {2**31 - 1}"'
"""Arguments of a shell. The raylet appends words to the command of its agent, and a shell ignores them."""


@contextlib.contextmanager
def bind_to_loopback() -> Iterator[None]:
    """Bind Ray's servers to the loopback interface, as Ray does on systems where it has no clusters.

    Then no other machine can reach them, and a change of the network does no harm. Otherwise they listen on
    all interfaces, because Ray replaces a loopback address.
    """
    with _replace_attribute(ray_constants, "ENABLE_RAY_CLUSTER", False):
        yield


@contextlib.contextmanager
def force_plain_workers() -> Iterator[None]:
    """Let only Ray's arguments configure its workers.

    Under ``uv run`` every worker would read the project file of the program's working directory, and with
    an interpreter started without a site (``-S``) workers would find no packages.
    """
    with (
        _replace_attribute(ray_constants, "RAY_ENABLE_UV_RUN_RUNTIME_ENV", False),
        _replace_attribute(services, "_site_flags", list),
    ):
        yield


@contextlib.contextmanager
def skip_unused_servers() -> Iterator[None]:
    """Start no dashboard, autoscaler, log monitor and dashboard agent, which take 200 MiB and are not used.

    The raylet requires a dashboard agent and ends with it. So it gets a program that sleeps, and ports of 0
    for its metrics. The agent for runtime environments is needed; ``environment_agent.py`` runs in its place.
    """
    with contextlib.ExitStack() as stack:
        wanted: dict[str, Any] = {"include_log_monitor": False, "no_monitor": True}
        params = partial(parameter.RayParams, **wanted)
        stack.enter_context(_replace_attribute(parameter, "RayParams", params))
        stack.enter_context(_replace_attribute(ray_node.Node, "start_api_server", _start_nothing))
        shell = shutil.which("sh")
        if (
            shell is not None
            and shutil.which("sleep") is not None
            and all(hasattr(_raylet, name) for name in (*_AGENT_PORTS, "persist_port"))
        ):
            start = partial(_start_without_agent, services.start_ray_process, shell)
            stack.enter_context(_replace_attribute(services, "start_ray_process", start))
        yield


@contextlib.contextmanager
def adopt_orphans() -> Iterator[None]:
    """Let Ray's servers adopt orphaned processes of their workers, so that these can be found.

    Ray calls a function in each server process before it executes the server's program; the setting survives
    that. The kernel collects the raylet's dead children.
    """
    libc, ray_own = ctypes.CDLL(None), ray_utils.set_kill_on_parent_death_linux

    def set_both() -> None:
        ray_own()  # type: ignore[no-untyped-call]  # Ray leaves it untyped
        libc.prctl(_SET_CHILD_SUBREAPER, *map(ctypes.c_ulong, (1, 0, 0, 0)))

    with _replace_attribute(ray_utils, "set_kill_on_parent_death_linux", set_both):
        yield


@contextlib.contextmanager
def drop_key_variables() -> Iterator[None]:
    """Start Ray's processes without those variables of the program that may hold keys.

    The program's own environment is not changed for that: its other threads read it meanwhile.
    """
    with _replace_attribute(services, "ConsolePopen", partial(_start_without_keys, services.ConsolePopen)):
        yield


@contextlib.contextmanager
def notice_at_once() -> Iterator[None]:
    """Go on as soon as the raylet is registered; Ray itself looks once a second."""
    with _replace_attribute(services, "get_node", partial(_await_node, services.get_node)):
        yield


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Suppress what Ray prints about errors of its servers, such as the state of a lost raylet."""
    with _replace_attribute(ray_worker, "listen_error_messages", _hear_nothing):
        yield


def skip_serializers() -> None:
    """Prepare Ray to pickle, without what it loads for tables and web servers: NumPy, PyArrow and Starlette.

    Only for a process of this package, which gives Ray nothing but bytes and plain values.
    """
    worker: Any = ray_worker.global_worker
    with _replace_attribute(serialization_addons, "apply", _add_nothing):
        worker.get_serialization_context()


def list_watched_servers() -> list[Server]:
    """Return the watched servers that this process started, of the Ray it is connected to."""
    node: Any = ray_worker._global_node  # noqa: SLF001 - Ray has no public access to its processes
    started = {} if node is None else node.all_processes
    return [Server(kind, each.process.pid) for kind in WATCHED for each in started.get(kind, ())]


def _start_nothing(node: Any, **settings: Any) -> None:
    """Replace the function that starts the dashboard."""


def _await_node(get_node: Any, gcs_address: str, node_id: str) -> Any:
    """Return a node's data once it is registered; after ``REGISTERED_S`` Ray decides how long to wait."""
    make_options: Any = services._get_gcs_client_options  # noqa: SLF001 - Ray has no public one
    make_state: Any = ray_state.GlobalState
    state = make_state()
    state._initialize_global_state(make_options(gcs_address))  # noqa: SLF001 - as above
    deadline = time.monotonic() + REGISTERED_S
    while time.monotonic() < deadline and all(row["NodeID"] != node_id for row in state.node_table()):
        select.select([], [], [], REGISTERED_AGAIN_S)
    return get_node(gcs_address, node_id)


def _add_nothing(context: Any) -> None:
    """Replace what teaches Ray to pickle types of other libraries."""


def _hear_nothing(worker: Any, stopped: Any) -> None:
    """Replace the thread that prints errors."""


def _start_without_agent(
    start: Any, shell: str, command: Sequence[str], process_type: str, *given: Any, **settings: Any
) -> Any:
    """Start one of Ray's processes; a raylet gets a sleeping program as its dashboard agent."""
    words = list(command)
    if process_type == ray_constants.PROCESS_TYPE_RAYLET:
        given_words = dict(word.removeprefix("--").split("=", 1) for word in words[1:] if "=" in word)
        raylet: Any = _raylet
        for name in _AGENT_PORTS:
            raylet.persist_port(given_words["session_dir"], given_words["node_id"], getattr(raylet, name), 0)
        words = [f"{_AGENT}{shell} {_SLEEP}" if word.startswith(_AGENT) else word for word in words]
        words = [_replace_agent(word) if word.startswith(_ENVIRONMENTS) else word for word in words]
    return start(words, process_type, *given, **settings)


def _replace_agent(command: str) -> str:
    """Return the command of the agent for runtime environments, with our program in the place of Ray's."""
    site = [f"--user-site={directory}" for directory in list_user_site_words()[1:]]
    own = subprocess.list2cmdline(["-I", "-S", "-u", environment_agent.__file__, *site])
    return command.replace(_RAYS_AGENT, own, 1)


def _start_without_keys(start: Any, *given: Any, env: Mapping[str, str], **settings: Any) -> Any:
    """Start one of Ray's processes with harmless variables."""
    return start(*given, env=select_for_servers(env), **settings)


@contextlib.contextmanager
def _replace_attribute(place: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(place, name)
    setattr(place, name, value)
    try:
        yield
    finally:
        setattr(place, name, before)
