"""The settings of a private Ray: its arguments, its time limits and its environment.

Not here: its start (``engine.py``), and what other machines can reach (``engine_security.py``).
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.settings.given_values import Give, check_fields
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.interpreter.import_guard import HARMLESS
from sessiontree.models.api_key import is_key
from sessiontree.sandbox import RAY_SITE
from sessiontree.sandbox.launcher import is_harmless

OLDEST = (2, 59)
"""The first release of Ray that authenticates a local Ray by token by default."""
OBJECT_STORE_BYTES = 128 * 2**20
"""Shared memory for results over 100 kB. Big results are files, so little is needed; Ray's minimum is 75
MiB."""
SYSTEM_CONFIG: Mapping[str, Any] = {
    # A raylet that does not answer for failures * (period + time-out) is declared dead, with all its actors.
    # Ray's default of 65 s is too short: a person may suspend a program for that long. A long limit costs
    # nothing here, because the raylet of a private Ray is a child of the program.
    "health_check_failure_threshold": 60,
    "health_check_period_ms": 3_000,
    "health_check_timeout_ms": 10_000,
    # Ray ends a program that has not reached its GCS for 60 s. This program disconnects long before; it must
    # not be ended if that takes longer.
    "gcs_rpc_server_reconnect_timeout_s": 86_400,
    # The GCS would keep a record of every actor call for the dashboard, which does not run: 9 kB a message.
    "task_events_report_interval_ms": 0,
    "enable_metrics_collection": False,
    # Ray would start one worker per CPU in advance: too many on a large machine, and no host starts sooner.
    "prestart_worker_first_driver": False,
    # A process that died before it registered counts as starting until its time limit. No other process
    # should wait for it, so the number of concurrent starts is practically unlimited.
    "worker_maximum_startup_concurrency": 1_000,
    # Ray's default of 15 is for workers that compute. Ours answer requests: next to two busy programs on two
    # CPUs a turn takes 1 s with niceness 15 and 0.1 s with 0.
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
"""Variables that point to another Ray, or that would connect two private ones."""
_SET_BY_RAY = ("PYTHONBREAKPOINT", "RAY_AUTH_MODE")
"""Variables that Ray sets when it starts, and does not restore."""
_OF_LIBRARIES = ("GRPC_", "LANCE_", "RUST_", "TOKIO_")
"""Prefixes of variables that set up the libraries of Ray and of memory."""
_OWN_WAYS = ("PYTHON", "OTEL_")
"""Prefixes of variables that stay in the program: they choose code, or belong to its exports."""


def _check_address(address: str) -> str:
    if "://" in address or (address != "auto" and not address.rpartition(":")[2].isdecimal()):
        raise ValueError(address)
    return address


@dataclass(frozen=True, slots=True)
class RayOptions:
    """The options of an engine.

    Attributes:
        address: The cluster to connect to, as ``host:port`` or ``auto``; None = a Ray of this process.
        num_cpus: CPUs of a private Ray; None = as many as the machine has.
        insecure: Whether a private Ray may run without token authentication.
    """

    address: Annotated[
        Annotated[str, AfterValidator(_check_address)] | None,
        Give(
            "host:port or 'auto' on a node of the cluster (Ray Client is not supported), or leave it out for "
            "a private Ray"
        ),
    ] = None
    num_cpus: Annotated[Annotated[int, Field(ge=0)] | None, Give("0 or more, or None")] = None
    insecure: bool = False

    def check(self) -> None:
        """Refuse options that are never valid.

        Raises:
            ConfigError: an option is not valid.
        """
        check_fields(self)
        if self.address is not None and self.num_cpus is not None:
            raise ConfigError(
                f"num_cpus={self.num_cpus} is only for a private Ray, and address {self.address!r} names "
                "a cluster; leave one of them out"
            )

    def to_private_ray(self) -> RayOptions:
        """Return the options of a private Ray in this environment.

        Raises:
            ConfigError: the environment disables authentication, and ``insecure`` does not allow it.
        """
        disabled = os.environ.get("RAY_AUTH_MODE", "token").strip().lower() != "token"
        if disabled and not self.insecure:
            raise ConfigError(
                "RAY_AUTH_MODE=disabled lets everybody who reaches this machine run code in the private "
                "Ray; unset it, or give insecure=True"
            )
        return replace(self, insecure=disabled)

    def check_joins(self, running: RayOptions) -> None:
        """Refuse to share a Ray that was started with other options.

        Raises:
            ConfigError: an option differs from that of the running Ray.
        """
        if self.address not in (None, running.address):
            raise ConfigError(
                f"can't connect to address {self.address!r}: this process is connected to "
                f"{running.address or 'a private Ray'}, and can use only one Ray; close that runtime first"
            )
        if self.num_cpus not in (None, running.num_cpus):
            raise ConfigError(
                f"can't use num_cpus={self.num_cpus}: the Ray of this process was started with "
                f"{running.num_cpus}; close the other runtimes first, or leave num_cpus out"
            )
        if running.address is None and running.insecure and not self.insecure:
            raise ConfigError(
                "the private Ray of this process runs without authentication; close the runtime that "
                "started it, or give insecure=True"
            )


def check_version(version: str) -> None:
    """Refuse a Ray that is too old.

    Raises:
        ConfigError: the release is older than ``OLDEST``.
    """
    numbers = tuple(int(word) for word in version.split(".")[:2] if word.isdecimal())
    if numbers < OLDEST:
        raise ConfigError(
            f"Ray {version} is installed; sessiontree needs {'.'.join(map(str, OLDEST))} or later; upgrade it"
        )


def build_environment(mark: Path, insecure: bool) -> dict[str, str | None]:
    """Return the environment variables for the start of a private Ray; None removes a variable.

    The token is new and is not in a file: a file would have to be hidden from Workers, together with whatever
    appears next to it later. The path of the token is set anyway, because it identifies Ray's processes. Of
    Python's own variables only ``PYTHONPATH`` is set; Ray's processes load their site from it.
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


def select_for_servers(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a private Ray's processes get: harmless ones, by name and by value.

    A program keeps keys in its environment, and an environment is handed on to every process below and is
    shown in ``/proc``. So what is not known to be harmless stays in the program.
    """
    return {name: value for name, value in variables.items() if _is_for_servers(name, value)}


def select_for_gateway(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a private Ray's processes do not get; models may need them."""
    return {
        name: value
        for name, value in variables.items()
        if not (_is_for_servers(name, value) or name in _FOREIGN or name.startswith(_OWN_WAYS))
    }


def _is_for_servers(name: str, value: str) -> bool:
    if name == "PYTHONPATH":  # any other would name code of the program's
        return value == str(RAY_SITE)
    is_known = name == "LD_PRELOAD" or is_harmless(name) or name.startswith(_OF_LIBRARIES)
    return is_known and not is_key(value)


def build_init_arguments(ray_folder: Path, num_cpus: int | None) -> dict[str, Any]:
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
"""Arguments of ``ray.init`` that keep Ray silent."""
_changing = threading.Lock()


@contextlib.contextmanager
def set_variables(changes: Mapping[str, str | None]) -> Iterator[None]:
    """Set environment variables for a while; then restore them, and also those that Ray set."""
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
