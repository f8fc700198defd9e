"""Which servers a private Ray starts: those that sessions use, on the loopback interface, and silent.

Ray has no arguments for most of this, so its functions are replaced while it starts. Not here: its settings
(``engine_settings.py``), the thread that starts it (``engine_run.py``).
"""

from __future__ import annotations

import contextlib
import ctypes
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

from ray import _raylet
from ray._private import node as ray_node
from ray._private import parameter, ray_constants, services
from ray._private import utils as ray_utils
from ray._private import worker as ray_worker

from sessiontree.backends.ray.engine_watch import Server

RAYLET: Final[str] = ray_constants.PROCESS_TYPE_RAYLET
WATCHED = (ray_constants.PROCESS_TYPE_GCS_SERVER, RAYLET)
"""A Ray without one of these is gone."""
_SET_CHILD_SUBREAPER = 36
_AGENT = "--dashboard_agent_command="
_AGENT_PORTS = ("METRICS_AGENT_PORT_NAME", "METRICS_EXPORT_PORT_NAME", "DASHBOARD_AGENT_LISTEN_PORT_NAME")
"""Names in ``ray._raylet`` of what the raylet waits to be told of its dashboard agent."""
_SLEEP = f'-c "exec sleep {2**31 - 1}"'
"""For a shell: the raylet adds words of its own to its agent's command, and a shell does not mind them."""


@contextlib.contextmanager
def loopback_only() -> Iterator[None]:
    """Have Ray bind its servers to the loopback interface, as it does by itself where it can't form clusters.

    No other machine reaches them then, and a machine that changes its network goes on. Without it they listen
    on all interfaces: Ray replaces a loopback address it is given.
    """
    with _replaced(ray_constants, "ENABLE_RAY_CLUSTER", False):
        yield


@contextlib.contextmanager
def plain_workers_only() -> Iterator[None]:
    """Keep Ray from configuring its workers from anything but its arguments.

    Under ``uv run`` it would have every worker read the project file of the program's working directory; and
    an interpreter started without a site (``-S``) would have them find no packages.
    """
    with (
        _replaced(ray_constants, "RAY_ENABLE_UV_RUN_RUNTIME_ENV", False),
        _replaced(services, "_site_flags", list),
    ):
        yield


@contextlib.contextmanager
def used_servers_only() -> Iterator[None]:
    """Have Ray start no dashboard, autoscaler, log monitor and dashboard agent: 200 MiB that nobody uses.

    The raylet insists on a dashboard agent, and ends with it. So it gets a program that sleeps, and the word
    that there are no metrics. The agent for runtime environments is used, and stays.
    """
    with contextlib.ExitStack() as stack:
        wanted: dict[str, Any] = {"include_log_monitor": False, "no_monitor": True}
        params = partial(parameter.RayParams, **wanted)
        stack.enter_context(_replaced(parameter, "RayParams", params))
        stack.enter_context(_replaced(ray_node.Node, "start_api_server", _start_nothing))
        shell = shutil.which("sh")
        if (
            shell is not None
            and shutil.which("sleep") is not None
            and all(hasattr(_raylet, name) for name in (*_AGENT_PORTS, "persist_port"))
        ):
            start = partial(_start_without_agent, services.start_ray_process, shell)
            stack.enter_context(_replaced(services, "start_ray_process", start))
        yield


@contextlib.contextmanager
def orphans_stay() -> Iterator[None]:
    """Have Ray's servers adopt what their workers leave behind, so that it is known to be theirs.

    Ray calls a function of its own in each server before that begins; the setting survives the beginning. The
    raylet has the kernel collect its dead children.
    """
    libc, ray_own = ctypes.CDLL(None), ray_utils.set_kill_on_parent_death_linux

    def set_both() -> None:
        ray_own()  # type: ignore[no-untyped-call]  # Ray leaves it untyped
        libc.prctl(_SET_CHILD_SUBREAPER, *map(ctypes.c_ulong, (1, 0, 0, 0)))

    with _replaced(ray_utils, "set_kill_on_parent_death_linux", set_both):
        yield


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Have Ray print nothing of what its servers complain about, the state of a lost raylet among it."""
    with _replaced(ray_worker, "listen_error_messages", _hear_nothing):
        yield


def watched_servers() -> list[Server]:
    """Return those servers that this process started, of the Ray it is connected to."""
    node: Any = ray_worker._global_node  # noqa: SLF001 - Ray tells its processes nowhere else
    started = {} if node is None else node.all_processes
    return [Server(kind, each.process.pid) for kind in WATCHED for each in started.get(kind, ())]


def _start_nothing(node: Any, **settings: Any) -> None:
    """Stand for what starts the dashboard."""


def _hear_nothing(worker: Any, stopped: Any) -> None:
    """Stand for the thread that prints errors."""


def _start_without_agent(
    start: Any, shell: str, command: Sequence[str], process_type: str, *given: Any, **settings: Any
) -> Any:
    """Start one of Ray's processes; a raylet with a sleeping program in its dashboard agent's place."""
    words = list(command)
    if process_type == ray_constants.PROCESS_TYPE_RAYLET:
        told = dict(word.removeprefix("--").split("=", 1) for word in words[1:] if "=" in word)
        raylet: Any = _raylet
        for name in _AGENT_PORTS:
            raylet.persist_port(told["session_dir"], told["node_id"], getattr(raylet, name), 0)
        words = [f"{_AGENT}{shell} {_SLEEP}" if word.startswith(_AGENT) else word for word in words]
    return start(words, process_type, *given, **settings)


@contextlib.contextmanager
def _replaced(place: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(place, name)
    setattr(place, name, value)
    try:
        yield
    finally:
        setattr(place, name, before)
