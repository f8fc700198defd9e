"""The exports of one runtime's traces: which there are, and what traces a tree that opens.

What exports is loaded with the first tree that is traced.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from sessiontree.api.telemetry.telemetry import TelemetryLike, TracePlan, check_telemetry, choose_plan
from sessiontree.contracts.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from sessiontree.api.telemetry.trace_export import TraceExport
    from sessiontree.contracts.facts.tree_config import TreeConfig
    from sessiontree.contracts.tools.hooks import Hook
    from sessiontree.runtime.telemetry.tree_tracer import TreeTracer
    from sessiontree.runtime.transport.supervisor_api import SupervisorApi

_LOG = logging.getLogger("sessiontree")
LOG_VARIABLE: Final = "SESSIONTREE_LOG"


class Traces:
    """The exports of one runtime's traces.

    Args:
        telemetry: The runtime's setting.
        log: ``json``, or None for the setting of the variable ``SESSIONTREE_LOG``.

    Raises:
        ConfigError: the setting is wrong, or it asks for traces that can't be exported.
    """

    def __init__(self, telemetry: TelemetryLike, log: str | None) -> None:
        self._telemetry = check_telemetry(telemetry)
        self._logs = _should_log_lines(log)
        self._exports: dict[Any, TraceExport | None] = {}
        if (plan := choose_plan(self._telemetry)) is not None and plan.required:
            self._export_by(plan)
        if self._logs:
            from sessiontree.runtime.telemetry.json_log import log_as_json

            log_as_json()

    def make_tracers(
        self, supervisor: SupervisorApi, config: TreeConfig, journal_dir: Path | None, hooks: Iterable[Hook]
    ) -> list[TreeTracer]:
        """Return what traces and logs a tree that opens now; empty = nobody asks for it."""
        found: list[TreeTracer] = []
        if self._logs:
            from sessiontree.hooks.redact import redact_with
            from sessiontree.runtime.telemetry.json_log import TreeLog
            from sessiontree.runtime.telemetry.tree_tracer import TreeTracer

            found.append(TreeTracer(supervisor, config, TreeLog(), None, display=redact_with(hooks)))
        plan = choose_plan(self._telemetry)
        export = None if plan is None else self._export_by(plan)
        if plan is not None and export is not None:
            from sessiontree.api.telemetry.trace_export import make_content_filter

            content = make_content_filter(plan, hooks)
            found.append(export.make_tracer(supervisor, config, journal_dir, content))
        return found

    def _export_by(self, plan: TracePlan) -> TraceExport | None:
        if plan.provider not in self._exports:
            from sessiontree.api.telemetry.trace_export import TraceExport

            try:
                self._exports[plan.provider] = TraceExport(plan)
            except ConfigError as error:
                if plan.required:
                    raise
                self._exports[plan.provider] = None
                _LOG.warning("trees are not traced: %s", error)
        return self._exports[plan.provider]

    async def close(self) -> None:
        """Deliver what waits, each export within its limit."""
        exports, self._exports = [each for each in self._exports.values() if each is not None], {}
        for export in exports:
            await export.close()


def _should_log_lines(log: str | None) -> bool:
    """Return whether log records are written as JSON lines.

    Raises:
        ConfigError: the setting or the variable has another value.
    """
    name, value = ("log", log) if log is not None else (LOG_VARIABLE, os.environ.get(LOG_VARIABLE, ""))
    if value not in {"", "json"}:
        raise ConfigError(f"{name} is {value!r}; the only form is 'json'")
    return value == "json"
