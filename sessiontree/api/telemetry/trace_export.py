"""The export of traces: to a tracer provider of the program, or to an OTLP collector.

Loaded with the first tree that is traced.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from sessiontree.api.telemetry.telemetry import TracePlan, explain_unusable_exporter
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.tools.hooks import Hook
from sessiontree.hooks.redact import redact_with
from sessiontree.runtime.telemetry.span_sender import SpanSender
from sessiontree.runtime.telemetry.span_writer import Content
from sessiontree.runtime.telemetry.tree_tracer import TreeTracer

if TYPE_CHECKING:
    from pathlib import Path

    from sessiontree.contracts.facts.tree_config import TreeConfig
    from sessiontree.runtime.telemetry.otlp_export import OtlpExport
    from sessiontree.runtime.transport.supervisor_api import SupervisorApi

FLUSH_S: Final = 5.0
"""Longest time that closing a runtime waits for the collector."""
_LOG = logging.getLogger("sessiontree")


class TraceExport:
    """Exports the traces of a runtime's trees to one provider, or by the standard variables.

    Args:
        plan: How trees are traced.

    Raises:
        ConfigError: the variables can't be used, or the extra ``otel`` is missing.
    """

    def __init__(self, plan: TracePlan) -> None:
        self._otlp: OtlpExport | None = None
        provider = plan.provider
        if provider is None:
            self._otlp = _make_otlp_export()
            provider = self._otlp.provider
        self._finished = False
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._sender = SpanSender(provider, self._finish)

    @property
    def lost(self) -> int:
        """How many spans were dropped or not delivered so far."""
        return self._sender.dropped + (0 if self._otlp is None else self._otlp.lost)

    def make_tracer(
        self,
        supervisor: SupervisorApi,
        config: TreeConfig,
        journal_dir: Path | None,
        content: Content | None,
    ) -> TreeTracer:
        """Return what traces a tree."""
        return TreeTracer(supervisor, config, self._sender, journal_dir, content)

    async def close(self) -> None:
        """Deliver what waits, within a limit; say how many spans were lost."""
        done = asyncio.Event()
        self._waiting.append((asyncio.get_running_loop(), done))
        self._sender.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_S):
                await done.wait()
        if not self._finished:
            self._sender.abandon()
            if self._otlp is not None:
                self._otlp.give_up()
        if self.lost:
            _LOG.warning("%d spans were not delivered; check the collector's address and state", self.lost)

    def _finish(self) -> None:
        """End the export; called in the sender's thread."""
        if self._otlp is not None:
            self._otlp.finish()
        self._finished = True
        for loop, done in self._waiting:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(done.set)


def make_content_filter(plan: TracePlan, hooks: Iterable[Hook]) -> Content | None:
    """Return what passes contents on without secrets; None = contents are left out."""
    return redact_with(hooks) if plan.content else None


def _make_otlp_export() -> OtlpExport:
    if (problem := explain_unusable_exporter()) is not None:
        raise ConfigError(f"telemetry: {problem}")
    try:
        from sessiontree.runtime.telemetry.otlp_export import OtlpExport
    except ModuleNotFoundError as error:
        raise ConfigError(f"telemetry: {error.name} is not installed; install sessiontree[otel]") from error
    try:
        return OtlpExport()
    except (ValueError, OSError) as error:
        # The text may quote a variable; the type alone can't hold a header.
        raise ConfigError(
            f"telemetry: the OTEL_* variables can't be used ({type(error).__name__}); check them"
        ) from None
