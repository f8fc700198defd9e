"""Noticing that a Ray is gone: its GCS or its raylet ended, or can't be reached any more.

Not here: what is done about it (``engine_run.py``), and who is told (``engine.py``).
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from sessiontree.contracts.errors import EngineLost

PROBE_EVERY_S = 2.0
PROBE_S = 1.0
"""How long an address may take to accept a connection."""
MAX_REFUSALS = 3
"""After so many failed connections in a row a GCS is lost: at most 9 s, and a short restart is forgiven."""
STOP_S = 5.0


@dataclass(frozen=True, slots=True)
class Server:
    """One process of a Ray on this machine.

    Attributes:
        name: What Ray calls it: ``gcs_server`` or ``raylet``.
        pid: Its process id.
    """

    name: str
    pid: int


class EngineWatch:
    """Waits until a Ray is gone, in the thread that calls :meth:`wait`.

    Args:
        servers: Processes without which this Ray is gone; they are watched from now on.
        gcs_address: Host and port of a GCS that is not among them; None when it is.
    """

    def __init__(self, servers: Iterable[Server], gcs_address: str | None = None) -> None:
        """Open a descriptor of each process: it stays its own, whatever becomes of the number."""
        self._gcs_address = gcs_address
        self._refusals = 0
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._closing = threading.Lock()
        self._died: str | None = None
        self._watched: dict[int, Server] = {}
        for server in servers:
            try:
                self._watched[os.pidfd_open(server.pid)] = server
            except ProcessLookupError:
                self._died = _name(server)

    def wait(self) -> str | None:
        """Return what died, once something did, or None when :meth:`stop` was called. Once only."""
        try:
            return self._died or self._wait()
        finally:
            with self._closing:
                for descriptor in (self._bell, *self._watched):
                    os.close(descriptor)
                self._bell = -1

    def stop(self) -> None:
        """End the waiting; from any thread, also before it began."""
        with self._closing:
            if self._bell >= 0:
                os.eventfd_write(self._bell, 1)

    def _wait(self) -> str | None:
        poll = select.poll()
        for descriptor in (self._bell, *self._watched):
            poll.register(descriptor, select.POLLIN)
        probe_at = time.monotonic() + PROBE_EVERY_S
        while True:
            left_s = None if self._gcs_address is None else max(0.0, probe_at - time.monotonic())
            ready = {descriptor for descriptor, _ in poll.poll(None if left_s is None else left_s * 1000)}
            if self._bell in ready:
                return None
            if ready:
                return _name(self._watched[ready.pop()])
            if self._gcs_address is not None:
                if self._is_refused(self._gcs_address):
                    return f"the GCS at {self._gcs_address} can't be reached"
                probe_at = time.monotonic() + PROBE_EVERY_S

    def _is_refused(self, address: str) -> bool:
        """Connect, and return whether that failed as often as it may."""
        self._refusals = 0 if accepts(address, PROBE_S) else self._refusals + 1
        return self._refusals >= MAX_REFUSALS


class JoinedWatch:
    """Watches a Ray that the program itself initialised, in a thread of its own.

    Args:
        servers: As of :class:`EngineWatch`.
        gcs_address: As of :class:`EngineWatch`.

    Attributes:
        lost: Done when this Ray is gone; cancelled when nobody watches any more.
    """

    def __init__(self, servers: Iterable[Server], gcs_address: str) -> None:
        self.lost: Future[EngineLost] = Future()
        self._watch = EngineWatch(servers, gcs_address)
        self._thread = threading.Thread(target=self._live, name="sessiontree-engine-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; when this returns it is gone."""
        self._watch.stop()
        self._thread.join(STOP_S)

    def _live(self) -> None:
        died = self._watch.wait()
        if died is None:
            self.lost.cancel()
        else:
            self.lost.set_result(
                EngineLost(
                    died,
                    "call ray.shutdown() within a minute, or Ray ends the program; then close the runtime "
                    "and go on with SessionTree.resume",
                )
            )


def accepts(address: str, within_s: float) -> bool:
    """Whether somebody takes connections at an address, such as ``127.0.0.1:6379`` or ``[::1]:6379``."""
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError, ValueError):
        socket.create_connection((host.strip("[]"), int(port)), within_s).close()
        return True
    return False


def listener_of(path: Path) -> int | None:
    """Return the id of the process that listens at a socket of a path; None when it can't be seen."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PROBE_S)
        connection.connect(str(path))
        size = struct.calcsize("3i")
        pid, _, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
        return int(pid) or None  # 0: it lives in another world of process ids
    return None


def _name(server: Server) -> str:
    return f"its {server.name} (process {server.pid}) ended"
