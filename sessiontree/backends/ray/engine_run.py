"""One Ray that this process began, and the thread it lives in.

A process has at most one. Engines share it; with the last of them it ends: a private Ray with all its
processes and its directory, a connection to a cluster by letting go. Not here: what engines are asked for.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray._private import services
from ray._private import worker as ray_worker
from ray._raylet import (  # type: ignore[attr-defined]  # compiled: its stub leaves them out
    AuthenticationTokenLoader,
    Config,
)

from sessiontree.backends.ray import engine_home, engine_servers
from sessiontree.backends.ray.engine_settings import (
    QUIET,
    Wishes,
    environment,
    init_arguments,
    variables,
)
from sessiontree.backends.ray.engine_watch import EngineWatch, Server, accepts, listener_of
from sessiontree.contracts.errors import ConfigError, EngineLost, SessionTreeError

WATCHER_STOP_S = 5.0
EXIT_S = 20.0
"""How long the end of the interpreter waits for a Ray to be gone."""
REACH_S = 5.0
"""How long a cluster's address may take to answer at all; Ray would try for minutes."""


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """Where this process stands in a Ray.

    Attributes:
        node_id: Ray's id of the node this process runs on, in hex.
        session_dir: Where this node's Ray keeps its sockets and logs.
        logs_dir: Where it writes its logs; a worker can't start without writing there.
        home: The private directory; None when the Ray is somebody else's.
        webui_url: Address of Ray's dashboard; empty when it is off.
        raylet: The raylet of this node, where it is somebody else's and its process can be seen.
        gcs_address: Host and port of the GCS.
    """

    node_id: str
    session_dir: Path
    logs_dir: Path
    home: Path | None
    webui_url: str
    raylet: Server | None
    gcs_address: str


class ClusterLease:
    """A Ray from its start to its end.

    The kernel kills a private Ray's servers as soon as the *thread* that started them ends. So a thread of
    its own starts it, stays, and ends it; a daemon, for the interpreter's exit ends an engine nobody closed.

    Attributes:
        ready: Where this process stands, or why it could not be started.
        lost: Done when it died under its users; cancelled when they ended it.
        gone: Done when nothing of it is left.
    """

    def __init__(self, wishes: Wishes) -> None:
        self.wishes = wishes
        self.ready: Future[ClusterInfo] = Future()
        self.lost: Future[EngineLost] = Future()
        self.gone: Future[None] = Future()
        self._users = 0
        self._over = threading.Event()
        self._watch: EngineWatch | None = None
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._live, name="sessiontree-engine", daemon=True)
        self._thread.start()

    def take(self, wishes: Wishes) -> bool:
        """Count one user more; False when it is ending already. The caller holds the lock.

        Raises:
            ConfigError: it does not fulfil the wishes.
            SessionTreeError: the program ended it behind our back.
        """
        if self._over.is_set():
            return False
        wishes.check_joins(self.wishes)
        if self.ready.done() and not self.ready.exception() and not ray.is_initialized():
            raise SessionTreeError(
                "the program called ray.shutdown() while runtimes were open; close them before opening one"
            )
        self._users += 1
        return True

    def give_back(self) -> bool:
        """Count one user less; whether it was the last."""
        with _lock:
            self._users -= 1
            if self._users == 0:
                self._end_it()
            return self._users == 0

    def end_at_exit(self) -> None:
        """End it whoever uses it, and wait for that, but not for ever."""
        if self._pid == os.getpid():  # a forked child inherits the record, not the Ray
            self._end_it()
            self._thread.join(EXIT_S)

    def _end_it(self) -> None:
        self._over.set()
        if self._watch is not None:
            self._watch.stop()

    def _wait(self, watch: EngineWatch) -> EngineLost | None:
        """Wait until the last user leaves or this Ray ends; in the second case, tell its users."""
        self._watch = watch
        if self._over.is_set():  # before there was a watch to stop
            watch.stop()
        died = watch.wait()
        if died is None:
            self.lost.cancel()
            return None
        with _lock:
            self._over.set()  # whoever comes now waits until it is gone, and begins another
        advice = "close the runtime, or the tree that has its own, and go on with SessionTree.resume"
        lost = EngineLost(died, advice)
        self.lost.set_result(lost)
        return lost

    def _live(self) -> None:
        try:
            if self.wishes.address is None:
                self._live_privately()
            else:
                self._live_connected(self.wishes.address)
        except BaseException as error:  # noqa: BLE001 - whoever waits gets it, whatever it is
            if not self.ready.done():
                self.ready.set_exception(_told(error, ""))
        finally:
            with _lock:
                _runs.clear()
            self.gone.set_result(None)

    def _live_privately(self) -> None:
        engine_home.sweep()
        home, lock = engine_home.make_home()
        watcher = _start_watcher(home)
        try:
            place = _start(home, self.wishes)
        except BaseException as error:  # noqa: BLE001 - whoever waits gets it, whatever it is
            told = _told(error, _last_words(home))
            _end(home, lock, watcher)
            self.ready.set_exception(told)
            return
        watch = EngineWatch(engine_servers.watched_servers())
        self.ready.set_result(place)
        if self._wait(watch) is not None:
            # Ray's own end waits long for servers that are gone, and for processes that wait for those.
            engine_home.end_processes(home, grace_s=0.0)
        _end(home, lock, watcher)

    def _live_connected(self, address: str) -> None:
        try:
            place = _connect(address)
        except BaseException as error:  # noqa: BLE001 - whoever waits gets it, whatever it is
            ray.shutdown()
            self.ready.set_exception(_told_of(address, error))
            return
        watch = watch_of(place)
        self.ready.set_result(place)
        self._wait(watch)
        ray.shutdown()


_lock = threading.Lock()
_runs: list[ClusterLease] = []


def enter(wishes: Wishes) -> ClusterLease | Future[None] | None:
    """Return the Ray of this process, counted for the caller; begun if there is none.

    Returns:
        The run; or what to wait for before asking again, because one is just ending; or None when the program
        initialised Ray itself.

    Raises:
        ConfigError: what there is does not fulfil the wishes.
        SessionTreeError: the program ended it behind our back.
    """
    with _lock:
        if not _runs:
            if ray.is_initialized():
                return None
            _runs.append(ClusterLease(wishes if wishes.address else wishes.for_private_ray()))
        run = _runs[0]
        return run if run.take(wishes) else run.gone


@atexit.register
def _at_exit() -> None:
    """A program that ends without closing leaves nothing behind either."""
    with _lock:
        runs = list(_runs)
    for run in runs:
        run.end_at_exit()


def _start(home: Path, wishes: Wishes) -> ClusterInfo:
    with (
        variables(environment(home / engine_home.MARK, wishes.insecure)),
        engine_servers.loopback_only(),
        engine_servers.plain_workers_only(),
        engine_servers.used_servers_only(),
        engine_servers.orphans_stay(),
        engine_servers.silence(),
    ):
        _forget_authentication()
        ray.init(**init_arguments(home / engine_home.RAY_FOLDER, wishes.num_cpus))
    return find_place(home)


def _end(home: Path, lock: int, watcher: subprocess.Popen[bytes]) -> None:
    # Noted before: Ray kills workers that take long, and what such a one had started is nobody's child then.
    known = engine_home.processes_of(home)
    with contextlib.suppress(Exception):  # what is left is ended below, whatever Ray says
        ray.shutdown(wait_for_processes=True)
    engine_home.end_processes(home, grace_s=1.0, known=known)
    _forget_authentication()
    watcher.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        watcher.wait(WATCHER_STOP_S)
    shutil.rmtree(home, ignore_errors=True)
    os.close(lock)


def _start_watcher(home: Path) -> subprocess.Popen[bytes]:
    """Start the process that clears up should this one be killed: Ray's agents outlive that by a minute."""
    me = engine_home.process_of(os.getpid())
    assert me is not None, "a running process is in /proc"  # noqa: S101 - make_home has just seen it
    return subprocess.Popen(  # noqa: S603 - this interpreter, this package's own file
        [sys.executable, "-I", "-S", engine_home.__file__, str(home), str(me.pid), str(me.started)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,  # what the terminal sends to the program is not for it
    )


def _connect(address: str) -> ClusterInfo:
    if address != "auto":
        # Instead of the loopback address Ray takes the node's own.
        there = str(services.canonicalize_bootstrap_address(address))
        if not accepts(there, REACH_S):
            raise ConfigError(
                f"nobody answers at address {address!r}, tried as {there}; start a node with `ray start`, "
                "correct the address, or leave it out for a private Ray"
            )
    with engine_servers.silence():
        ray.init(address=address, **QUIET)
    return find_place(None)


def _forget_authentication() -> None:
    """Have Ray read mode and token anew: it keeps both for the life of the process otherwise."""
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


def find_place(home: Path | None) -> ClusterInfo:
    """Return where this process stands in the Ray it is connected to.

    Raises:
        ConfigError: it is connected through Ray Client, which stands nowhere.
    """
    node: Any = ray_worker._global_node  # noqa: SLF001 - Ray tells a driver's directories nowhere else
    if node is None:
        raise ConfigError(
            "the program is connected through Ray Client (ray://); start it on a node of the cluster and "
            "connect with ray.init('auto')"
        )
    raylet = listener_of(Path(node.raylet_socket_name)) if home is None else None
    return ClusterInfo(
        node_id=ray.get_runtime_context().get_node_id(),
        session_dir=Path(node.get_session_dir_path()),
        logs_dir=Path(node.get_logs_dir_path()),
        home=home,
        webui_url=node.webui_url or "",
        raylet=None if raylet is None else Server(engine_servers.RAYLET, raylet),
        gcs_address=str(node.gcs_address),
    )


def watch_of(place: ClusterInfo) -> EngineWatch:
    """Return what notices that somebody else's Ray is gone."""
    return EngineWatch([] if place.raylet is None else [place.raylet], place.gcs_address)


def _told(error: BaseException, last_words: str) -> SessionTreeError:
    """Return an error of ours that says what was tried and what to do next."""
    if isinstance(error, SessionTreeError):
        return error
    if isinstance(error, OSError) and not isinstance(error, ConnectionError):
        return ConfigError(f"a private Ray needs a directory of its own, and that failed: {error}")
    return SessionTreeError(
        f"Ray {ray.__version__} could not be started: {type(error).__name__}: {error}{last_words}; check the "
        f"free room in /dev/shm and the temporary directory, or try backend='local'"
    )


def _told_of(address: str, error: BaseException) -> SessionTreeError:
    """Return why a cluster can't be used, and what to do next."""
    if isinstance(error, SessionTreeError):
        return error
    text = f"{type(error).__name__}: {error}"
    if "ersion mismatch" in text:
        return ConfigError(f"the cluster at {address} runs another Python or Ray than this program: {text}")
    return ConfigError(
        f"the cluster at {address} can't be used: {text}; if it asks for a token, set RAY_AUTH_MODE=token "
        "and RAY_AUTH_TOKEN_PATH to the file that holds it, before the program starts"
    )


def _last_words(home: Path) -> str:
    """Return the beginnings of what Ray's processes wrote to their error files, before these are removed."""
    found = []
    for path in sorted((home / engine_home.RAY_FOLDER).glob("session_2*/logs/*.err")):
        with contextlib.suppress(OSError):
            lines = path.read_text("utf-8", "replace").strip().splitlines()[:3]
            found += [f"{path.name}: {line[:300]}" for line in lines]
    return "".join(f"\n  {line}" for line in found[:12])
