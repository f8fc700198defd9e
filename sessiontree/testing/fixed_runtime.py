"""A runtime for tests of the tool that looks at it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sessiontree.contracts.runtime_control import OwnerConfiguration, RestartReport, RuntimeStatus
from sessiontree.version import VERSION


@dataclass(slots=True)
class FixedRuntime:
    """A runtime that does nothing, with the given configuration."""

    configuration: OwnerConfiguration | None = None
    backend: Literal["local", "ray"] = "local"
    restarts: int = 0
    """How often its hosts were to be replaced."""

    async def status(self) -> RuntimeStatus:
        """Return that one tree with one session is open."""
        return RuntimeStatus(VERSION, 1, 1, 0, 0, 0, ())

    async def restart(self) -> RestartReport:
        """Count the request."""
        self.restarts += 1
        return RestartReport(0, 1, 0)
