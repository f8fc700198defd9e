"""Confinement: how far this machine can confine a Worker's process, tried once, and that in words."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sessiontree.contracts.errors import ConfigError
from sessiontree.sandbox import Jail, Level, available_level, probe
from sessiontree.sandbox.py_executable import Enforcement

_TRUNCATES = 3
_SCOPES = 6
"""Landlock's first ABIs under which no file can be shortened; under which signals and abstract sockets of
processes outside are out of reach."""


@dataclass(frozen=True, slots=True)
class Confinement:
    """What the kernel offers, and what came of a trial."""

    offered: Level
    tried: Level | None
    """The level of a process that was started as a Worker's would be; None: it did not start."""
    failure: ConfigError | None
    """Why not."""
    trial_ms: int

    def holds(self) -> list[str]:
        """Return what the process of a Worker on Ray can't do, whatever runs in it."""
        level = self.tried or self.offered
        held = []
        if level.landlock:
            held += ["make, change, rename or delete a file outside Ray's logs", "read the state directory"]
        if level.landlock >= _TRUNCATES:
            held.append("shorten a file")
        if level.landlock >= _SCOPES:
            held.append("signal a process outside")
        if level.seccomp:
            held.append("change modes, owners, times or attributes of files, mount, or trace a process")
        return held

    def leaves(self) -> list[str]:
        """Return what the kernel does not keep it from."""
        level = self.tried or self.offered
        if not level.landlock:
            return ["anything its user may do: only what its context leaves out protects files"]
        left = ["connect by TCP and by socket files", "read other files its user may read"]
        if level.landlock < _TRUNCATES:
            left.append("shorten files")
        if level.landlock < _SCOPES:
            left.append("signal its user's processes")
        if not level.seccomp:
            left.append("change modes, owners and times of files")
        return left

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "offered": str(self.offered),
            "full": self.offered.is_full,
            "tried": None if self.tried is None else str(self.tried),
            "trial_ms": self.trial_ms,
            "failure": None if self.failure is None else str(self.failure),
            "holds": self.holds(),
            "leaves": self.leaves(),
        }


def try_confinement(state_dir: Path) -> Confinement:
    """Start one short process confined as a Worker's is, with the state directory hidden from it.

    Nothing is written, and the state directory need not exist. Blocks for some 0.1 s.
    """
    offered = available_level()
    began = time.monotonic()
    tried, failure = None, None
    try:
        enforcement: Enforcement = "required" if offered.is_full else "best_effort"
        tried = probe(Jail(hidden=(state_dir,), enforcement=enforcement))
    except ConfigError as error:
        failure = error
    return Confinement(offered, tried, failure, round((time.monotonic() - began) * 1000))
