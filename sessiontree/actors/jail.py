"""How a Worker's host is started: read-only by the kernel, before Ray's worker begins."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import ray

from sessiontree.kernel.settings import Settings
from sessiontree.sandbox import Jail, prepare_victims, py_executable


def confined(settings: Settings) -> dict[str, Any]:
    """Return the runtime environment of a process that may write to Ray's logs alone."""
    own = ray.get_runtime_context().runtime_env.get("py_executable")
    hidden = (settings.state_dir, *(() if settings.token_path is None else (settings.token_path,)))
    secrets = () if settings.token_path is None else (("RAY_AUTH_TOKEN", settings.token_path),)
    jail = Jail(
        hidden=hidden, writable=(settings.logs_dir,), secrets=secrets, enforcement=settings.enforcement
    )
    return {"py_executable": py_executable(jail, own)}


def victims_for(settings: Settings, name: str) -> Path:
    """Prepare what a host must fail to change before it serves; returns where it lies."""
    place = Path(tempfile.mkdtemp(prefix=f"victims-{name}-", dir=settings.scratch))
    prepare_victims(place)
    return place
