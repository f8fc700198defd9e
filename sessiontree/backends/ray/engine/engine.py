"""The Ray that sessions run on: the program's own if it has one, otherwise a private one of this process.

Several engines of one process share one private Ray; the last engine that closes ends it and removes its
directory. A Ray that the program initialised itself is never changed or ended here.

Not here: actors, pools and sessions; the settings of a private Ray (``engine_settings.py``).
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import math
import os
import shutil
import subprocess
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import ray
from ray._private import services
from ray._private import worker as ray_worker
from ray._private.authentication.authentication_utils import is_token_auth_enabled
from ray._raylet import (  # type: ignore[attr-defined]  # compiled: its stub leaves them out
    AuthenticationTokenLoader,
    Config,
)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sessiontree.backends.ray.engine import engine_home, engine_servers
from sessiontree.backends.ray.engine.engine_security import (
    describe_listeners,
    find_key_variables,
    read_permissions,
)
from sessiontree.backends.ray.engine.engine_servers import (
    RAYLET,
    EngineWatch,
    JoinedWatch,
    Server,
    can_connect,
    find_listener,
    list_watched_servers,
)
from sessiontree.backends.ray.engine.engine_settings import (
    QUIET,
    RayOptions,
    build_environment,
    build_init_arguments,
    check_version,
    select_for_servers,
    set_variables,
)
from sessiontree.contracts.errors import ConfigError, EngineLost, SessionTreeError
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.interpreter.import_guard import is_closed

WATCHER_STOP_S = 5.0
EXIT_S = 20.0
"""How long the exit of the interpreter waits for the end of a Ray."""
REACH_S = 5.0
"""How long a cluster's address may take to answer; Ray would try for minutes."""


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """The Ray of this process, and its node in it.

    Attributes:
        node_id: Ray's id of the node on which this process runs, in hex.
        session_dir: The directory of this node's sockets and logs.
        logs_dir: The directory of this node's logs; a worker must be able to write there.
        home: The directory of a private Ray; None if the Ray is not private.
        webui_url: The address of Ray's dashboard; empty if it is off.
        raylet: The raylet of this node, if the Ray is not private and the process can be seen.
        gcs_address: Host and port of the GCS.
        core_count: The CPUs that Ray counts for this node, or the machine's cores if Ray counts none.
    """

    node_id: str
    session_dir: Path
    logs_dir: Path
    home: Path | None
    webui_url: str
    raylet: Server | None
    gcs_address: str
    core_count: int


class ClusterLease:
    """A Ray from its start to its end.

    The kernel kills a private Ray's servers as soon as the *thread* that started them ends. So a separate
    thread starts the Ray, stays, and ends it. It is a daemon, because the interpreter's exit ends a Ray that
    nobody closed.

    Attributes:
        ready: The Ray's data, or the error of its start.
        lost: Done if the Ray died while it was used; cancelled when its users end it.
        gone: Done when the Ray has ended completely.
    """

    def __init__(self, options: RayOptions) -> None:
        self.options = options
        self.ready: Future[ClusterInfo] = Future()
        self.lost: Future[EngineLost] = Future()
        self.gone: Future[None] = Future()
        self._users = 0
        self._over = threading.Event()
        self._watch: EngineWatch | None = None
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="sessiontree-engine", daemon=True)
        self._thread.start()

    def take(self, options: RayOptions) -> bool:
        """Add a user; return False if the Ray is already ending. The caller holds the lock.

        Raises:
            ConfigError: the options differ from those of the Ray.
            SessionTreeError: the program ended the Ray itself.
        """
        if self._over.is_set():
            return False
        options.check_joins(self.options)
        if self.ready.done() and not self.ready.exception() and not ray.is_initialized():
            raise SessionTreeError(
                "the program called ray.shutdown() while runtimes were open; close them before opening one"
            )
        self._users += 1
        return True

    def give_back(self) -> bool:
        """Remove a user; return whether it was the last."""
        with _lock:
            self._users -= 1
            if self._users == 0:
                self._end_it()
            return self._users == 0

    def end_at_exit(self) -> None:
        """End the Ray although it is used, and wait up to ``EXIT_S`` for that."""
        if self._pid == os.getpid():  # a forked child inherits this object but not the Ray
            self._end_it()
            self._thread.join(EXIT_S)

    def _end_it(self) -> None:
        self._over.set()
        if self._watch is not None:
            self._watch.stop()

    def _wait(self, watch: EngineWatch) -> EngineLost | None:
        """Wait until the last user leaves or this Ray is lost; in the second case, inform its users."""
        self._watch = watch
        if self._over.is_set():  # the last user left before the watch existed
            watch.stop()
        died = watch.wait()
        if died is None:
            self.lost.cancel()
            return None
        with _lock:
            self._over.set()  # a new user waits for its end, and then starts another Ray
        advice = "close the runtime, or the tree that has its own, and use SessionTree.resume"
        lost = EngineLost(died, advice)
        self.lost.set_result(lost)
        return lost

    def _run(self) -> None:
        try:
            if self.options.address is None:
                self._run_privately()
            else:
                self._run_connected(self.options.address)
        except BaseException as error:  # noqa: BLE001 - those who wait get every error
            if not self.ready.done():
                self.ready.set_exception(_explain_failure(error, ""))
        finally:
            with _lock:
                _runs.clear()
            self.gone.set_result(None)

    def _run_privately(self) -> None:
        engine_home.sweep()
        home, lock = engine_home.make_home()
        watcher = _start_watcher(home)
        try:
            place = _start(home, self.options)
        except BaseException as error:  # noqa: BLE001 - those who wait get every error
            told = _explain_failure(error, _read_last_words(home))
            _end(home, lock, watcher)
            self.ready.set_exception(told)
            return
        watch = EngineWatch(engine_servers.list_watched_servers())
        self.ready.set_result(place)
        if self._wait(watch) is not None:
            # Otherwise ray.shutdown would wait long for lost servers and for processes that wait for them.
            engine_home.end_processes(home, grace_s=0.0)
        _end(home, lock, watcher)

    def _run_connected(self, address: str) -> None:
        try:
            place = _connect(address)
        except BaseException as error:  # noqa: BLE001 - those who wait get every error
            ray.shutdown()
            self.ready.set_exception(_explain_refusal(address, error))
            return
        watch = choose_watch(place)
        self.ready.set_result(place)
        self._wait(watch)
        ray.shutdown()


_lock = threading.Lock()
_runs: list[ClusterLease] = []


def enter(options: RayOptions) -> ClusterLease | Future[None] | None:
    """Return the Ray of this process with the caller as a user; start it if necessary.

    Returns:
        The lease; or a future to wait for before calling again, if a Ray is just ending; or None if the
        program initialised Ray itself.

    Raises:
        ConfigError: the options differ from those of the running Ray.
        SessionTreeError: the program ended the Ray itself.
    """
    with _lock:
        if not _runs:
            if ray.is_initialized():
                return None
            _runs.append(ClusterLease(options if options.address else options.to_private_ray()))
        run = _runs[0]
        return run if run.take(options) else run.gone


def begin_early() -> None:
    """Start a private Ray, if this process has none, for an engine that will soon be started with no options.

    It starts in other processes, while this one loads what the engine's user needs. An error is not raised
    here: the engine's start finds the same fault.
    """
    with _lock, contextlib.suppress(SessionTreeError):
        if not _runs and not ray.is_initialized():
            check_version(ray.__version__)
            _runs.append(ClusterLease(RayOptions().to_private_ray()))


@atexit.register
def _on_exit() -> None:
    """End the Ray of a program that exits without closing its runtimes."""
    with _lock:
        runs = list(_runs)
    for run in runs:
        run.end_at_exit()


def _start(home: Path, options: RayOptions) -> ClusterInfo:
    with (
        set_variables(build_environment(home / engine_home.MARK, options.insecure)),
        engine_servers.bind_to_loopback(),
        engine_servers.force_plain_workers(),
        engine_servers.skip_unused_servers(),
        engine_servers.notice_at_once(),
        engine_servers.adopt_orphans(),
        engine_servers.drop_key_variables(),
        engine_servers.silence(),
    ):
        _forget_authentication()
        ray.init(**build_init_arguments(home / engine_home.RAY_FOLDER, options.num_cpus))
        if is_closed():
            engine_servers.skip_serializers()
    return find_place(home)


def _end(home: Path, lock: int, watcher: subprocess.Popen[bytes]) -> None:
    # Listed first: Ray kills slow workers, and then their children can no longer be found.
    known = engine_home.find_processes(home)
    with contextlib.suppress(Exception):  # the remaining processes are ended below
        ray.shutdown(wait_for_processes=True)
    engine_home.end_processes(home, grace_s=1.0, known=known)
    _forget_authentication()
    watcher.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        watcher.wait(WATCHER_STOP_S)
    shutil.rmtree(home, ignore_errors=True)
    os.close(lock)


def _start_watcher(home: Path) -> subprocess.Popen[bytes]:
    """Start the process that cleans up if this one is killed, because Ray's agents live on for a minute."""
    return subprocess.Popen(  # noqa: S603 - this interpreter, this package's own file
        engine_home.watch_command(home),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=select_for_servers(os.environ),
        start_new_session=True,  # signals of the terminal must not reach it
    )


def _connect(address: str) -> ClusterInfo:
    there, on_loopback = _resolve_address(address)
    as_it_is: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if there is not None and not can_connect(there, REACH_S):
        if on_loopback is not None and can_connect(on_loopback, REACH_S):
            as_it_is = engine_servers.bind_to_loopback()
        elif address != "auto":
            tried = there if on_loopback in (None, there) else f"{there} and {on_loopback}"
            raise ConfigError(
                f"no Ray answers at address {address!r}, tried as {tried}; start a node with `ray start`, "
                "correct the address, or leave it out for a private Ray"
            )
    with engine_servers.silence(), as_it_is:
        ray.init(address=address, **QUIET)
    return find_place(None)


def _resolve_address(address: str) -> tuple[str | None, str | None]:
    """Return where Ray looks for a cluster, and where it would look if nodes were on this machine alone.

    Ray replaces a loopback address by this node's address, where a cluster need not listen. None = Ray finds
    no address, and says so when it is to connect.
    """
    with contextlib.suppress(ConnectionError, ValueError):
        there = services.canonicalize_bootstrap_address(address)
        with engine_servers.bind_to_loopback():
            return there, services.canonicalize_bootstrap_address(address)
    return None, None


def _forget_authentication() -> None:
    """Make Ray read mode and token again; otherwise it keeps both until the process ends."""
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


def find_place(home: Path | None) -> ClusterInfo:
    """Return the Ray to which this process is connected.

    Raises:
        ConfigError: it is connected through Ray Client, so it is on no node.
    """
    node: Any = ray_worker._global_node  # noqa: SLF001 - Ray has no public access to its directories
    if node is None:
        raise ConfigError(
            "the program is connected through Ray Client (ray://); start it on a node of the cluster and "
            "connect with ray.init('auto')"
        )
    raylet = find_listener(Path(node.raylet_socket_name)) if home is None else None
    node_id = ray.get_runtime_context().get_node_id()
    rows = [row for row in _list_nodes() if row["NodeID"] == node_id]
    return ClusterInfo(
        node_id=node_id,
        session_dir=Path(node.get_session_dir_path()),
        logs_dir=Path(node.get_logs_dir_path()),
        home=home,
        webui_url=node.webui_url or "",
        raylet=None if raylet is None else Server(engine_servers.RAYLET, raylet),
        gcs_address=str(node.gcs_address),
        core_count=math.ceil(sum(row["Resources"].get("CPU", 0) for row in rows)) or os.cpu_count() or 1,
    )


def choose_watch(place: ClusterInfo) -> EngineWatch:
    """Return a watch of a Ray that is not private."""
    return EngineWatch([] if place.raylet is None else [place.raylet], place.gcs_address)


def _explain_failure(error: BaseException, last_words: str) -> SessionTreeError:
    """Return the error to raise about a private Ray that could not be started."""
    if isinstance(error, SessionTreeError):
        return error
    if isinstance(error, OSError) and not isinstance(error, ConnectionError):
        return ConfigError(f"can't make the directory of a private Ray: {error}")
    return SessionTreeError(
        f"Ray {ray.__version__} could not be started: {type(error).__name__}: {error}{last_words}; check the "
        f"free room in /dev/shm and the temporary directory, or try backend='local'"
    )


def _explain_refusal(address: str, error: BaseException) -> SessionTreeError:
    """Return the error to raise about a cluster that cannot be used."""
    if isinstance(error, SessionTreeError):
        return error
    text = f"{type(error).__name__}: {error}"
    if "ersion mismatch" in text:
        return ConfigError(
            f"the cluster at {address} runs another Python or Ray than this program: {text}; use the same"
        )
    return ConfigError(
        f"can't use the cluster at {address}: {text}; if it requires a token, set RAY_AUTH_MODE=token and "
        "RAY_AUTH_TOKEN_PATH to the token's file before the program starts"
    )


def _read_last_words(home: Path) -> str:
    """Return the first lines of the error files of Ray's processes, which are about to be removed."""
    found = []
    for path in sorted((home / engine_home.RAY_FOLDER).glob("session_2*/logs/*.err")):
        with contextlib.suppress(OSError):
            lines = path.read_text("utf-8", "replace").strip().splitlines()[:3]
            found += [f"{path.name}: {line[:300]}" for line in lines]
    return "".join(f"\n  {line}" for line in found[:12])


class RayConnection:
    """Joins the program's Ray, or shares the private one of this process.

    Args:
        address: The cluster to connect to, as ``host:port`` or ``auto``; None = the program's own Ray or a
            private one, even if ``RAY_ADDRESS`` is set.
        num_cpus: CPUs of a private Ray; None = as many as the machine has.
        insecure: Allow a private Ray without authentication if ``RAY_AUTH_MODE=disabled`` is set.

    Raises:
        ConfigError: the options contradict each other.
    """

    def __init__(
        self, address: str | None = None, num_cpus: int | None = None, insecure: bool = False
    ) -> None:
        self._options = RayOptions(address, num_cpus, insecure)
        self._options.check()
        self._place: ClusterInfo | None = None
        self._run: ClusterLease | None = None
        self._watch: JoinedWatch | None = None

    @property
    def node_id(self) -> str:
        """Ray's id of the node on which this process runs, in hex."""
        return self._get_place().node_id

    @property
    def core_count(self) -> int:
        """The CPUs that Ray counts for this node; a container may have fewer than the machine."""
        return self._get_place().core_count

    @property
    def logs_dir(self) -> Path:
        """The directory of this node's logs; a worker must be able to write there."""
        return self._get_place().logs_dir

    @property
    def token_path(self) -> Path | None:
        """The file of this Ray's token; None if the Ray needs none or gets it from elsewhere.

        A private Ray's token is not in a file: its processes pass it to their children.
        """
        return None if self._get_place().home is not None else find_token_file()

    @property
    def raylet(self) -> int | None:
        """The id of the process that starts actors on this node; None if it cannot be seen."""
        joined = self._get_place().raylet
        servers = list_watched_servers() if joined is None else [joined]
        return next((server.pid for server in servers if server.name == RAYLET), None)

    @property
    def home(self) -> Path | None:
        """The directory of a private Ray, mode 0700, removed with the Ray; None if the Ray is not private."""
        return self._get_place().home

    @property
    def lost(self) -> Future[EngineLost]:
        """Done, from another thread, when this Ray is lost; cancelled when it is released."""
        self._get_place()
        watcher = self._run or self._watch
        assert watcher is not None, "a started engine has one of both"  # noqa: S101
        return watcher.lost

    async def start(self) -> None:
        """Join or start a Ray without blocking the event loop. Engines that start together share one start.

        A cancelled call releases what it began.

        Raises:
            ConfigError: the options do not fit the running Ray, the environment or the disk.
            SessionTreeError: Ray could not be started; the text includes its output.
        """
        if self._place is not None:
            return
        check_version(ray.__version__)
        entered = enter(self._options)
        while not isinstance(entered, ClusterLease):
            if entered is None:
                place = self._adopt_ray()
                self._watch = JoinedWatch([] if place.raylet is None else [place.raylet], place.gcs_address)
                self._place = place
                return
            await asyncio.shield(asyncio.wrap_future(entered))
            entered = enter(self._options)
        try:
            self._place = await asyncio.shield(asyncio.wrap_future(entered.ready))
        except BaseException:
            entered.give_back()
            raise
        self._run = entered

    async def close(self) -> None:
        """Release the Ray. The last engine of a private Ray waits until processes and directory are gone."""
        run, self._run, self._place = self._run, None, None
        watch, self._watch = self._watch, None
        if watch is not None:
            await asyncio.to_thread(watch.stop)
        if run is not None and run.give_back():
            await asyncio.shield(asyncio.wrap_future(run.gone))

    def pin_to_node(self, node_id: str | None = None) -> NodeAffinitySchedulingStrategy:
        """Return the strategy that places an actor only on one node; by default on this one."""
        return NodeAffinitySchedulingStrategy(node_id or self.node_id, soft=False)

    def describe_security(self) -> dict[str, JsonValue]:
        """Return how this Ray is protected, as a JSON object, for ``sessiontree doctor``.

        ``listening`` lists the TCP sockets of its processes on this machine, and of this program, that other
        machines may reach. A private Ray has none, because it binds to the loopback interface. A Ray that can
        form clusters binds to all interfaces.
        """
        return {**self.describe_protection(), "listening": describe_listeners(self.logs_dir)}

    def describe_protection(self) -> dict[str, JsonValue]:
        """Return the part of :meth:`describe_security` that does not change while the Ray runs; faster."""
        place = self._get_place()
        token = self.token_path
        return {
            "ray_version": ray.__version__,
            "private": place.home is not None,
            "auth_mode": "token" if is_token_auth_enabled() else "disabled",
            "token_path": None if token is None else str(token),
            "token_mode": read_permissions(token),
            "key_variables": find_key_variables(self.raylet),
            "directory": str(place.home or place.session_dir),
            "directory_mode": read_permissions(place.home or place.session_dir),
            "dashboard": place.webui_url or "off",
            "nodes": sum(bool(node["Alive"]) for node in _list_nodes()),
        }

    def _get_place(self) -> ClusterInfo:
        if self._place is None:
            raise SessionTreeError("the engine was not started; await engine.start() first")
        return self._place

    def _adopt_ray(self) -> ClusterInfo:
        """Return the Ray that the program initialised itself."""
        if self._options.num_cpus is not None:
            raise ConfigError(
                f"num_cpus={self._options.num_cpus} is only for a private Ray, and the program initialised "
                "Ray itself; give it to ray.init, or leave it out"
            )
        place = find_place(None)
        own = ray.get_runtime_context().gcs_address
        if self._options.address not in (None, "auto", own):
            raise ConfigError(
                f"can't connect to address {self._options.address!r}: the program initialised the Ray at "
                f"{own}, and a process can use only one Ray; leave the address out to use that one"
            )
        return place


def find_token_file() -> Path | None:
    """Return the file with the token of the Ray that this process joined; None if it needs no file."""
    if not is_token_auth_enabled() or os.environ.get("RAY_AUTH_TOKEN"):
        return None
    return Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")


def _list_nodes() -> list[dict[str, Any]]:
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]  # Ray leaves it untyped
    return nodes
