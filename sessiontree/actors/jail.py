"""How a Worker's host is started: read-only by the kernel, before Ray's worker begins."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import ray

from sessiontree.kernel.settings import Settings, hidden_places
from sessiontree.sandbox import Jail, Level, prepare_victims, probe, py_executable


def confined(settings: Settings) -> dict[str, Any]:
    """Return the runtime environment of a process that may write to Ray's logs alone."""
    return {"py_executable": py_executable(_jail(settings), _own_python())}


def level_of(settings: Settings) -> Level:
    """Start a process confined so, as a trial, and return the level it had. Blocks for some 0.1 s.

    Raises:
        ConfigError: it does not start; a Worker's host would not either, and nobody would say why.
    """
    return probe(_jail(settings), _own_python())


def _own_python() -> str | None:
    """Return what the job itself starts Python with, where it says so."""
    own: str | None = ray.get_runtime_context().runtime_env.get("py_executable")
    return own


def _jail(settings: Settings) -> Jail:
    hidden = hidden_places(settings.state_dir, settings.memory)
    hidden += () if settings.token_path is None else (settings.token_path,)
    secrets = () if settings.token_path is None else (("RAY_AUTH_TOKEN", settings.token_path),)
    return Jail(
        hidden=hidden, writable=(settings.logs_dir,), secrets=secrets, enforcement=settings.enforcement
    )


def victims_for(settings: Settings, name: str) -> Path:
    """Prepare what a host must fail to change before it serves; returns where it lies."""
    place = Path(tempfile.mkdtemp(prefix=f"victims-{name}-", dir=settings.scratch))
    prepare_victims(place)
    return place
