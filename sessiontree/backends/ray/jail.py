"""How the processes of a runtime are started: by its launcher, a Worker's host read-only by the kernel."""

from __future__ import annotations

import secrets
import tempfile
from pathlib import Path
from typing import Any

from sessiontree.backends.ray.start_watch import NOTE, FailedStarts
from sessiontree.runtime.settings import Settings, hidden_places
from sessiontree.sandbox import Jail, Level, prepare_victims, probe, py_executable


def started_as(
    role: str, settings: Settings, note: Path, *, confined: bool = False, reaped: bool = False
) -> dict[str, Any]:
    """Return the runtime environment of a process.

    Args:
        role: What it is going to be, such as ``gateway``.
        settings: The runtime's.
        note: Where its starts are noted; no other actor's. Ray gives a process that starts to any actor that
            waits for one of the same words, so these must be an actor's own.
        confined: Whether it may write to Ray's logs alone.
        reaped: Whether it runs tools: a reaper above it ends what they leave behind, and of the program's
            environment it gets what is harmless and what the runtime passes on.
    """
    jail = _jail(settings) if confined else None
    reports = settings.reports if reaped else None
    keep = settings.pass_env if reaped else None
    words = py_executable(
        role, settings.scratch, jail, settings.python, reports=reports, note=note, keep=keep
    )
    return {"py_executable": words}


def note_for(name: str, settings: Settings) -> Path:
    """Return where the starts of an actor are noted: a name that no other actor had or will have."""
    return settings.scratch / f"{NOTE}{name}-{secrets.token_hex(8)}"


def failed_starts(settings: Settings) -> FailedStarts:
    """Return what is known of starts that failed."""
    return FailedStarts(settings.scratch / "failed-starts")


def level_of(settings: Settings) -> Level:
    """Start a process confined so, as a trial, and return the level it had. Blocks for some 0.1 s.

    Raises:
        ConfigError: it does not start; a Worker's host would not either, and nobody would say why.
    """
    return probe(_jail(settings), settings.python)


def _jail(settings: Settings) -> Jail:
    hidden = hidden_places(settings.state_dir, settings.memory)
    hidden += () if settings.token_path is None else (settings.token_path,)
    secrets = () if settings.token_path is None else (("RAY_AUTH_TOKEN", settings.token_path),)
    return Jail(
        hidden=hidden,
        readable=(settings.program,),
        writable=(settings.logs_dir,),
        secrets=secrets,
        enforcement=settings.enforcement,
    )


def victims_for(settings: Settings, name: str) -> Path:
    """Prepare what a host must fail to change before it serves; returns where it lies."""
    place = Path(tempfile.mkdtemp(prefix=f"victims-{name}-", dir=settings.scratch))
    prepare_victims(place)
    return place
