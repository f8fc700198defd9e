"""The Ray that sessions run on: the program's own when it has one, else a private one of this process.

Several engines of one process share one private Ray; the last one closed ends it and removes its directory. A Ray
that the program initialised itself is used as it is and never ended here.

Not here: actors, pools, anything about sessions.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
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
from ray._private import worker as ray_worker
from ray._raylet import AuthenticationTokenLoader, Config

from sessiontree.actors import engine_home
from sessiontree.actors.engine_settings import environment, init_arguments, variables
from sessiontree.contracts.errors import ConfigError, SessionTreeError

WATCHER_STOP_S = 5.0
EXIT_S = 20.0
"""How long the end of the interpreter waits for a private Ray to be gone."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where this process stands in a Ray.

    Attributes:
        node_id: Ray's id of the node this process runs on, in hex.
        token_path: File of the token; None when it lies elsewhere or nobody is asked for one.
        logs_dir: Where this node's Ray writes its logs; a worker can't start without writing there.
        home: The private directory; None when the Ray is somebody else's.
    """

    node_id: str
    token_path: Path | None
    logs_dir: Path
    home: Path | None


class Engine:
    """Joins the program's Ray, or shares the private one of this process.

    Args:
        address: Cluster to connect to, as ``host:port``; None for the program's own Ray or a private one.
        num_cpus: CPUs of a private Ray; None counts the machine's.
        insecure: Allow a private Ray without token authentication where ``RAY_AUTH_MODE=disabled`` asks for it.
    """

    def __init__(
        self, address: str | None = None, num_cpus: int | None = None, insecure: bool = False
    ) -> None:
        """Keep the wishes; nothing starts yet."""
        self._address = address
        self._num_cpus = num_cpus
        self._insecure = insecure
        self._place: Place | None = None
        self._run: _Run | None = None

    @property
    def node_id(self) -> str:
        """Ray's id of the node this process runs on, in hex."""
        return self._there().node_id

    @property
    def token_path(self) -> Path | None:
        """File of the token that opens this Ray, if it lies in a file this process knows."""
        return self._there().token_path

    @property
    def logs_dir(self) -> Path:
        """Where this node's Ray writes its logs."""
        return self._there().logs_dir

    @property
    def is_private(self) -> bool:
        """Whether this Ray was started here and ends with the last engine."""
        return self._there().home is not None

    async def start(self) -> None:
        """Join or start. Engines that start at once share one start.

        Raises:
            ConfigError: the wishes don't fit each other, or the Ray that is there.
            SessionTreeError: Ray could not be started.
        """
        if self._place is not None:
            return
        if os.environ.get("RAY_AUTH_MODE") == "disabled" and not self._insecure:
            raise ConfigError(
                "RAY_AUTH_MODE=disabled would let everybody who reaches this machine run code in it; "
                "unset it, or say insecure=True"
            )
        while True:
            with _lock:
                run = _current()
                if run is None and ray.is_initialized():
                    self._place = _place(None)
                    return
                if run is None:
                    run = _begin(self._address, self._num_cpus, self._insecure)
                taken = run.take()
            if taken:
                break
            await asyncio.shield(asyncio.wrap_future(run.gone))
        self._run = run
        try:
            self._place = await asyncio.shield(asyncio.wrap_future(run.ready))
        except BaseException:
            self._run = None
            run.give_back()
            raise

    async def close(self) -> None:
        """Let go. The last engine of a private Ray waits until all its processes have ended."""
        run, self._run, self._place = self._run, None, None
        if run is not None and run.give_back():
            await asyncio.shield(asyncio.wrap_future(run.gone))

    def _there(self) -> Place:
        if self._place is None:
            raise SessionTreeError("the engine is not started; await engine.start() first")
        return self._place


class _Run:
    """One Ray begun by this process, in a thread that lives as long as it does.

    The kernel kills Ray's servers when the *thread* that started them ends, so that thread stays until they ended.
    """

    def __init__(self, address: str | None, num_cpus: int | None, insecure: bool) -> None:
        self.ready: Future[Place] = Future()
        self.gone: Future[None] = Future()
        self._wishes = (address, num_cpus, insecure)
        self._users = 0
        self._over = threading.Event()
        self.thread = threading.Thread(target=self._live, name="sessiontree-engine", daemon=True)

    def take(self) -> bool:
        """Count one user more; False when it is ending already. Under the lock."""
        if self._over.is_set():
            return False
        self._users += 1
        return True

    def give_back(self) -> bool:
        """Count one user less; whether it was the last."""
        with _lock:
            self._users -= 1
            if self._users == 0:
                self._over.set()
            return self._users == 0

    def end(self) -> None:
        """End at once, whoever uses it."""
        self._over.set()

    def _live(self) -> None:
        try:
            if self._wishes[0] is None:
                self._live_privately()
            else:
                self._live_connected()
        finally:
            with _lock:
                _runs.clear()
            self.gone.set_result(None)

    def _live_privately(self) -> None:
        address, num_cpus, insecure = self._wishes
        del address
        watcher: subprocess.Popen[bytes] | None = None
        try:
            engine_home.sweep()
            home, lock = engine_home.make_home()
        except OSError as error:
            self.ready.set_exception(SessionTreeError(f"no private directory for Ray: {error}"))
            return
        try:
            watcher = _watcher(home)
            place = _start_private(home, num_cpus, insecure)
        except BaseException as error:  # noqa: BLE001 - whoever waits gets it, whatever it is
            _end_private(home, lock, watcher)
            self.ready.set_exception(_told(error))
            return
        self.ready.set_result(place)
        self._over.wait()
        _end_private(home, lock, watcher)

    def _live_connected(self) -> None:
        address = self._wishes[0]
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
            place = _place(None)
        except BaseException as error:  # noqa: BLE001 - whoever waits gets it, whatever it is
            ray.shutdown()
            self.ready.set_exception(_told(error))
            return
        self.ready.set_result(place)
        self._over.wait()
        ray.shutdown()


def _begin(address: str | None, num_cpus: int | None, insecure: bool) -> _Run:
    """Begin a run; under the lock."""
    run = _Run(address, num_cpus, insecure)
    _runs.append(run)
    run.thread.start()
    return run


def _current() -> _Run | None:
    return _runs[0] if _runs else None


def _start_private(home: Path, num_cpus: int | None, insecure: bool) -> Place:
    token = home / engine_home.TOKEN
    descriptor = os.open(token, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(os.urandom(32).hex().encode())
    with variables(environment(token, insecure)):
        _forget_authentication()
        ray.init(**init_arguments(home / engine_home.RAY_FOLDER, num_cpus))
        return _place(home)


def _end_private(home: Path, lock: int, watcher: subprocess.Popen[bytes] | None) -> None:
    with contextlib.suppress(Exception):
        ray.shutdown(wait_for_processes=True)
    engine_home.end_processes(home, grace_s=1.0)
    _forget_authentication()
    if watcher is not None:
        watcher.terminate()
        watcher.wait(WATCHER_STOP_S)
    shutil.rmtree(home, ignore_errors=True)
    os.close(lock)


def _watcher(home: Path) -> subprocess.Popen[bytes] | None:
    """Start the process that outlives this one by a moment."""
    me = engine_home.process_of(os.getpid())
    if me is None:
        return None
    return subprocess.Popen(  # noqa: S603 - this interpreter, this package's own file
        [sys.executable, "-I", "-S", engine_home.__file__, str(home), str(me.pid), str(me.started)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,  # what the terminal sends to the program is not for it
    )


def _forget_authentication() -> None:
    """Have Ray read mode and token anew: it keeps both for the life of the process otherwise."""
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


def _place(home: Path | None) -> Place:
    node: Any = ray_worker._global_node  # noqa: SLF001 - Ray tells a driver's directories nowhere else
    if node is None:
        raise ConfigError(
            "the program is connected through Ray Client (ray://); run it on a node of the cluster and "
            "connect with host:port"
        )
    return Place(
        node_id=ray.get_runtime_context().get_node_id(),
        token_path=None if home is None else home / engine_home.TOKEN,
        logs_dir=Path(node.get_logs_dir_path()),
        home=home,
    )


def _told(error: BaseException) -> SessionTreeError:
    if isinstance(error, SessionTreeError):
        return error
    return SessionTreeError(f"Ray could not be started: {type(error).__name__}: {error}")


def _at_exit() -> None:
    """A program that ends without closing leaves nothing behind either."""
    with _lock:
        run = _current()
    if run is not None:
        run.end()
        run.thread.join(EXIT_S)


_lock = threading.Lock()
_runs: list[_Run] = []
atexit.register(_at_exit)
