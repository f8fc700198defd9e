"""A runtime for tests of the tool that looks at it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.handles.runtime_control import (
    NO_CONFIGURATION,
    ConfigurationChange,
    OwnerConfiguration,
    RestartReport,
    RuntimeStatus,
    StoredConfiguration,
)
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.quick_dataclass import dataclass
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

    async def read_configuration(self) -> StoredConfiguration:
        """Return the configuration that was given."""
        return await self._require_configuration().read()

    async def configuration_schema(self) -> Mapping[str, JsonValue]:
        """Return its schema."""
        return await self._require_configuration().schema()

    async def patch_configuration(
        self, base_sha256: str, patch: Mapping[str, JsonValue]
    ) -> ConfigurationChange:
        """Change it."""
        return await self._require_configuration().patch(base_sha256, patch)

    def _require_configuration(self) -> OwnerConfiguration:
        if self.configuration is None:
            raise ExecutionError(NO_CONFIGURATION)
        return self.configuration
