"""How a private Ray is started: its environment, its switches and its patience."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

OBJECT_STORE_BYTES = 128 * 2**20
"""Room for objects over 100 kB; big results are blobs in files, so it only has to be enough for Ray itself."""
SYSTEM_CONFIG: Mapping[str, Any] = {}

_FOREIGN = (
    "RAY_ADDRESS",
    "RAY_AUTH_TOKEN",
    "RAY_REDIS_ADDRESS",
    "RAY_JOB_CONFIG_JSON_ENV_VAR",
    "RAY_NAMESPACE",
)
"""What would lead a private Ray to somebody else's."""


def environment(token: Path, insecure: bool) -> dict[str, str | None]:
    """Return the variables a private Ray is started with; None takes one away."""
    mode = "disabled" if insecure and os.environ.get("RAY_AUTH_MODE") == "disabled" else "token"
    return {
        **dict.fromkeys(_FOREIGN),
        "RAY_AUTH_MODE": mode,
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_USAGE_STATS_ENABLED": "0",
    }


def init_arguments(ray_folder: Path, num_cpus: int | None) -> dict[str, Any]:
    """Return the arguments of ``ray.init`` for a private Ray."""
    return {
        "address": "local",
        "num_cpus": num_cpus,
        "include_dashboard": False,
        "log_to_driver": False,
        "object_store_memory": OBJECT_STORE_BYTES,
        "_temp_dir": str(ray_folder),
        "_system_config": dict(SYSTEM_CONFIG),
        "configure_logging": True,
        "logging_level": "ERROR",
    }


_changing = threading.Lock()


@contextlib.contextmanager
def variables(changes: Mapping[str, str | None]) -> Iterator[None]:
    """Set environment variables for a while; what they were comes back."""
    with _changing:
        before = {name: os.environ.get(name) for name in changes}
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
