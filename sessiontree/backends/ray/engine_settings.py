"""How a private Ray is started: its arguments, its patience and the environment it starts in.

Not here: starting it; what can be reached of it (``engine_security.py``).
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sessiontree.contracts.errors import ConfigError
from sessiontree.interpreter.import_guard import HARMLESS
from sessiontree.sandbox import RAY_SITE

OLDEST = (2, 59)
"""The first release of Ray that authenticates a local Ray by token of its own accord."""
OBJECT_STORE_BYTES = 128 * 2**20
"""Shared memory for results over 100 kB. Big ones travel as files, so little is needed; Ray wants 75 MiB."""
SYSTEM_CONFIG: Mapping[str, Any] = {
    # A raylet that does not answer for failures * (period + time-out) is declared dead, and every actor with
    # it. Ray's 65 s are about as long as somebody suspends a program for. Nobody waits for the verdict here:
    # the raylet of a private Ray is a child of the program.
    "health_check_failure_threshold": 60,
    "health_check_period_ms": 3_000,
    "health_check_timeout_ms": 10_000,
    # Ray ends a program that has not reached its GCS for 60 s. This one lets go long before; should that take
    # longer once, it is not to be ended for it.
    "gcs_rpc_server_reconnect_timeout_s": 86_400,
    # A record of every call of an actor, kept in the GCS for a dashboard that is not there: 9 kB a message.
    "task_events_report_interval_ms": 0,
    "enable_metrics_collection": False,
    # One worker per CPU ahead of need: on a large machine more than ever run, and no host is ready sooner.
    "prestart_worker_first_driver": False,
    # A process that died before Ray knew it counts as starting until its time to register is over. No other
    # is to wait for that: as many may start at once as anybody ever wants to.
    "worker_maximum_startup_concurrency": 1_000,
    # Ray's 15 is for workers that compute. Ours answer: beside two busy programs on two CPUs a turn took
    # 1 s with it, and takes 0.1 s without.
    "worker_niceness": 0,
}
_FOREIGN = (
    "RAY_ADDRESS",
    "RAY_AUTH_TOKEN",
    "RAY_REDIS_ADDRESS",
    "RAY_NAMESPACE",
    "RAY_JOB_CONFIG_JSON_ENV_VAR",
    "RAY_gcs_server_port",
    "RAY_OVERRIDE_NODE_ID_FOR_TESTING",
    "RAY_RUNTIME_ENV_HOOK",
)
"""What leads to a Ray of somebody else, or lets two private ones meet."""
_SET_BY_RAY = ("PYTHONBREAKPOINT", "RAY_AUTH_MODE")
"""What Ray itself sets when it starts, and leaves set."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What an engine was asked for.

    Attributes:
        address: Cluster to connect to, as ``host:port`` or ``auto``; None for a Ray of this process.
        num_cpus: CPUs of a private Ray; None counts the machine's.
        insecure: Whether a private Ray may go without token authentication.
    """

    address: str | None = None
    num_cpus: int | None = None
    insecure: bool = False

    def check(self) -> None:
        """Refuse what can never be fulfilled.

        Raises:
            ConfigError: what is wrong, and what would be accepted.
        """
        if self.address is not None:
            if "://" in self.address:
                raise ConfigError(
                    f"address {self.address!r} is one of Ray Client; start the program on a node of the "
                    "cluster and give host:port or 'auto'"
                )
            if self.address != "auto" and not self.address.rpartition(":")[2].isdecimal():
                raise ConfigError(
                    f"address {self.address!r} is neither host:port nor 'auto'; leave it out for a "
                    "private Ray"
                )
            if self.num_cpus is not None:
                raise ConfigError("num_cpus is for a private Ray; leave it out, a cluster has its own")
        if self.num_cpus is not None and self.num_cpus < 0:
            raise ConfigError(f"num_cpus is {self.num_cpus}; give 0 or more")

    def for_private_ray(self) -> Wishes:
        """Return the wishes by which a private Ray starts in this environment.

        Raises:
            ConfigError: the environment turns authentication off, and nobody said that this is meant.
        """
        disabled = os.environ.get("RAY_AUTH_MODE", "token").strip().lower() != "token"
        if disabled and not self.insecure:
            raise ConfigError(
                "RAY_AUTH_MODE=disabled lets everybody who reaches this machine run code in the private "
                "Ray; unset it, or say insecure=True"
            )
        return replace(self, insecure=disabled)

    def check_joins(self, running: Wishes) -> None:
        """Refuse to share a Ray that was started by other wishes.

        Raises:
            ConfigError: the wish it does not fulfil.
        """
        if self.address not in (None, running.address):
            raise ConfigError(
                f"address {self.address!r}: this process is connected to "
                f"{running.address or 'a private Ray'}, and can be in one Ray only; close that runtime first"
            )
        if self.num_cpus not in (None, running.num_cpus):
            raise ConfigError(
                f"num_cpus={self.num_cpus}: the Ray this process shares was started with {running.num_cpus}; "
                "close the other runtimes first, or leave it out"
            )
        if running.address is None and running.insecure and not self.insecure:
            raise ConfigError(
                "the private Ray of this process runs without authentication; close the runtime that "
                "started it, or say insecure=True"
            )


def check_version(version: str) -> None:
    """Refuse a Ray that is too old.

    Raises:
        ConfigError: it is.
    """
    numbers = tuple(int(word) for word in version.split(".")[:2] if word.isdecimal())
    if numbers < OLDEST:
        raise ConfigError(
            f"Ray {version} is installed; sessiontree needs {'.'.join(map(str, OLDEST))} or later: upgrade it"
        )


def environment(mark: Path, insecure: bool) -> dict[str, str | None]:
    """Return the variables a private Ray is started with; None takes one away.

    The token is fresh and lies in no file: a file would have to be hidden from Workers, and whatever appears
    beside a hidden place later is hidden with it. Its path is set all the same: by it Ray's processes are
    recognised. Of Python's own variables there is one: Ray's processes begin with what it leads to.
    """
    of_python = [name for name in os.environ if name.startswith("PYTHON") and name not in HARMLESS]
    return {
        **dict.fromkeys((*_FOREIGN, *of_python)),
        "PYTHONPATH": str(RAY_SITE),
        "RAY_AUTH_MODE": "disabled" if insecure else "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_AUTH_TOKEN_PATH": str(mark),
        "RAY_USAGE_STATS_ENABLED": "0",
    }


def init_arguments(ray_folder: Path, num_cpus: int | None) -> dict[str, Any]:
    """Return the arguments of ``ray.init`` for a private Ray."""
    return {
        "address": "local",
        "num_cpus": num_cpus,
        "include_dashboard": False,
        **QUIET,
        "object_store_memory": OBJECT_STORE_BYTES,
        "_temp_dir": str(ray_folder),
        "_system_config": dict(SYSTEM_CONFIG),
    }


QUIET: Mapping[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
"""Arguments of ``ray.init`` that keep it silent."""
_changing = threading.Lock()


@contextlib.contextmanager
def variables(changes: Mapping[str, str | None]) -> Iterator[None]:
    """Set environment variables for a while; what they were comes back, and what Ray set beside them goes."""
    with _changing:
        before = {name: os.environ.get(name) for name in (*_SET_BY_RAY, *changes)}
        _apply(changes)
        try:
            yield
        finally:
            _apply(before)


def _apply(changes: Mapping[str, str | None]) -> None:
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
