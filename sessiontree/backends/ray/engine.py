"""The Ray that sessions run on: the program's own when it has one, else a private one of this process.

Several engines of one process share one private Ray; the last one closed ends it and removes its directory.
A Ray that the program initialised itself is used as it is and never ended here.

Not here: actors, pools, anything about sessions; starting Ray (``engine_run.py``, ``engine_settings.py``).
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import ray
from ray._private.authentication.authentication_utils import is_token_auth_enabled
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sessiontree.backends.ray.engine_run import ClusterInfo, ClusterLease, enter, find_place
from sessiontree.backends.ray.engine_security import listening, mode_of
from sessiontree.backends.ray.engine_servers import RAYLET, watched_servers
from sessiontree.backends.ray.engine_settings import Wishes, check_version
from sessiontree.backends.ray.engine_watch import JoinedWatch
from sessiontree.contracts.errors import ConfigError, EngineLost, SessionTreeError
from sessiontree.contracts.jsonable import JsonValue


class Engine:
    """Joins the program's Ray, or shares the private one of this process.

    Args:
        address: Cluster to connect to, as ``host:port`` or ``auto``; None for the program's own Ray or a
            private one, whatever ``RAY_ADDRESS`` says.
        num_cpus: CPUs of a private Ray; None counts the machine's.
        insecure: Allow a private Ray without authentication where ``RAY_AUTH_MODE=disabled`` asks for it.

    Raises:
        ConfigError: these can't be fulfilled together.
    """

    def __init__(
        self, address: str | None = None, num_cpus: int | None = None, insecure: bool = False
    ) -> None:
        self._wishes = Wishes(address, num_cpus, insecure)
        self._wishes.check()
        self._place: ClusterInfo | None = None
        self._run: ClusterLease | None = None
        self._watch: JoinedWatch | None = None

    @property
    def node_id(self) -> str:
        """Ray's id of the node this process runs on, in hex."""
        return self._there().node_id

    @property
    def logs_dir(self) -> Path:
        """Where this node's Ray writes its logs; a worker can't start without writing there."""
        return self._there().logs_dir

    @property
    def token_path(self) -> Path | None:
        """File of the token that opens this Ray; None when it asks for none, or has it from elsewhere.

        A private Ray's token lies in no file: its processes hand it down.
        """
        is_private = self._there().home is not None
        if is_private or not is_token_auth_enabled() or os.environ.get("RAY_AUTH_TOKEN"):
            return None
        return Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")

    @property
    def raylet(self) -> int | None:
        """Id of the process that starts actors' processes on this node; None where it can't be seen."""
        joined = self._there().raylet
        servers = watched_servers() if joined is None else [joined]
        return next((server.pid for server in servers if server.name == RAYLET), None)

    @property
    def home(self) -> Path | None:
        """Directory of a private Ray, mode 0700, gone with it; None when this Ray is somebody else's."""
        return self._there().home

    @property
    def lost(self) -> Future[EngineLost]:
        """Done, from another thread, once this Ray has died; cancelled when it is let go before."""
        self._there()
        watcher = self._run or self._watch
        assert watcher is not None, "one of both is there as soon as the place is"  # noqa: S101
        return watcher.lost

    async def start(self) -> None:
        """Join or start, without holding up the event loop. Engines that start at once share one start.

        Cancelled, it lets go of what was begun.

        Raises:
            ConfigError: the wishes don't fit the Ray that is there, the environment or the disk.
            SessionTreeError: Ray could not be started; what it said is part of the text.
        """
        if self._place is not None:
            return
        check_version(ray.__version__)
        entered = enter(self._wishes)
        while not isinstance(entered, ClusterLease):
            if entered is None:
                place = self._joined()
                self._watch = JoinedWatch([] if place.raylet is None else [place.raylet], place.gcs_address)
                self._place = place
                return
            await asyncio.shield(asyncio.wrap_future(entered))
            entered = enter(self._wishes)
        try:
            self._place = await asyncio.shield(asyncio.wrap_future(entered.ready))
        except BaseException:
            entered.give_back()
            raise
        self._run = entered

    async def close(self) -> None:
        """Let go. The last engine of a private Ray waits until its processes and its directory are gone."""
        run, self._run, self._place = self._run, None, None
        watch, self._watch = self._watch, None
        if watch is not None:
            await asyncio.to_thread(watch.stop)
        if run is not None and run.give_back():
            await asyncio.shield(asyncio.wrap_future(run.gone))

    def pinned(self, node_id: str | None = None) -> NodeAffinitySchedulingStrategy:
        """Return the strategy that places an actor on a node and nowhere else; by default on this one."""
        return NodeAffinitySchedulingStrategy(node_id or self.node_id, soft=False)

    def security_settings(self) -> dict[str, JsonValue]:
        """Return what protects this Ray, as JSON can hold it, for ``sessiontree doctor``.

        ``listening`` names every TCP socket of its processes on this machine, and of this program, that other
        machines may reach. A private Ray has none: it binds to the loopback interface. One that can form
        clusters binds to all.
        """
        return {**self.protection(), "listening": listening(self.logs_dir)}

    def protection(self) -> dict[str, JsonValue]:
        """Return of :meth:`security_settings` what stays while this Ray runs; quicker."""
        place = self._there()
        token = self.token_path
        return {
            "ray_version": ray.__version__,
            "private": place.home is not None,
            "auth_mode": "token" if is_token_auth_enabled() else "disabled",
            "token_path": None if token is None else str(token),
            "token_mode": mode_of(token),
            "directory": str(place.home or place.session_dir),
            "directory_mode": mode_of(place.home or place.session_dir),
            "dashboard": place.webui_url or "off",
            "nodes": sum(bool(node["Alive"]) for node in _nodes()),
        }

    def _there(self) -> ClusterInfo:
        if self._place is None:
            raise SessionTreeError("the engine is not started; await engine.start() first")
        return self._place

    def _joined(self) -> ClusterInfo:
        """Return where the program's own Ray stands; it was not started here."""
        if self._wishes.num_cpus is not None:
            raise ConfigError(
                f"num_cpus={self._wishes.num_cpus} is for a private Ray, and the program has initialised "
                "its own; give it to ray.init, or leave it out"
            )
        place = find_place(None)
        own = ray.get_runtime_context().gcs_address
        if self._wishes.address not in (None, "auto", own):
            raise ConfigError(
                f"address {self._wishes.address!r}: the program has initialised the Ray at {own}, and a "
                "process can be in one only; leave the address out to use that one"
            )
        return place


def _nodes() -> list[dict[str, Any]]:
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]  # Ray leaves it untyped
    return nodes
