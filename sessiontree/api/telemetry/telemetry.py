"""Which traces a runtime exports, and whether the program or its environment asks for any.

Nothing of OpenTelemetry is loaded here. ``runtime/telemetry/tree_tracer.py`` follows a tree; it is loaded
with the first tree that is traced.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.settings.given_values import Toggle, check_fields
from sessiontree.contracts.values.quick_dataclass import dataclass

_TRUE: Final = frozenset({"true", "1"})
_CONTENT: Final = frozenset({"true", "1", "span_only", "span_and_event"})
CONTENT_VARIABLE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


@dataclass(frozen=True, slots=True)
class Telemetry:
    """How a runtime's trees are traced.

    Every tree is one trace. The spans are made from the tree's facts and exported by the program's process.
    """

    provider: Any = None
    """A ``TracerProvider`` of ``opentelemetry-sdk``. None = the one that the program has set; without one,
    spans go to an OTLP collector over HTTP, configured by the standard ``OTEL_*`` variables."""
    content: Toggle = False
    """Whether spans hold what sessions read and wrote: messages, system prompts, arguments and results of
    calls, texts of errors. Secrets are removed as :class:`Redact` does, also by the tree's own hooks of that
    class."""


TelemetryLike: TypeAlias = Telemetry | bool | None
"""Settings of the export of traces, True for the defaults, or None or False for no export."""


def check_telemetry(telemetry: TelemetryLike) -> TelemetryLike:
    """Return the setting as given.

    Raises:
        ConfigError: its provider is not one of the SDK, or its content is not a truth value.
    """
    if not isinstance(telemetry, Telemetry):
        return telemetry
    check_fields(telemetry, "telemetry: ")
    if telemetry.provider is not None and not _is_sdk(telemetry.provider):
        kind = type(telemetry.provider).__name__
        raise ConfigError(
            f"telemetry: a {kind} is not a TracerProvider of opentelemetry-sdk; give one, or None"
        )
    return telemetry


@dataclass(frozen=True, slots=True)
class TracePlan:
    """How one tree is traced."""

    provider: Any
    """None = export by the standard variables."""
    content: bool
    required: bool
    """Whether the program asked for traces itself; otherwise the environment did."""


def choose_plan(telemetry: TelemetryLike, environ: Mapping[str, str] = os.environ) -> TracePlan | None:
    """Return how trees are traced now; None = nobody asks for traces.

    Without a setting, trees are traced if the program has set a tracer provider, or if the variables name a
    collector.
    """
    if telemetry is False or environ.get("OTEL_SDK_DISABLED", "").strip().lower() in _TRUE:
        return None
    content = environ.get(CONTENT_VARIABLE, "").strip().lower() in _CONTENT
    required = telemetry is not None
    provider = None
    if isinstance(telemetry, Telemetry):
        content, provider = telemetry.content or content, telemetry.provider
    provider = provider or _get_program_provider()
    if provider is None and not required and not _has_collector(environ):
        return None
    return TracePlan(provider, content, required)


def explain_unusable_exporter(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return why the exporter that the standard variables ask for is not supported; None = it is."""
    exporter = environ.get("OTEL_TRACES_EXPORTER", "").strip()
    if exporter not in {"", "otlp"}:
        return f"OTEL_TRACES_EXPORTER is {exporter!r}; only 'otlp' and 'none' are supported"
    for name in _PROTOCOLS:
        if (protocol := environ.get(name, "").strip()) not in {"", "http/protobuf"}:
            return f"{name} is {protocol!r}; only 'http/protobuf' is supported"
    return None


def _has_collector(environ: Mapping[str, str]) -> bool:
    exporter = environ.get("OTEL_TRACES_EXPORTER", "").strip()
    if exporter == "none":
        return False
    return bool(exporter) or any(environ.get(name, "").strip() for name in _ENDPOINTS)


def _get_program_provider() -> Any:
    """Return the tracer provider that the program has set, or None if it has set none of the SDK."""
    trace = sys.modules.get("opentelemetry.trace")
    provider = None if trace is None else trace.get_tracer_provider()
    return provider if _is_sdk(provider) else None


def _is_sdk(provider: object) -> bool:
    sdk = sys.modules.get("opentelemetry.sdk.trace")
    return sdk is not None and isinstance(provider, sdk.TracerProvider)
