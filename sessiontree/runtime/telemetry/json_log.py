"""Log records as JSON lines: those of the package, and a line for whatever ended in a tree.

The lines of a tree are made from its spans, which are made from its facts. So they cover all its processes,
and hold ids, names and numbers. Their only content is the line that a tool gives to people.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from sessiontree.runtime.telemetry.spans import SpanRecord

LOGGER: Final = "sessiontree"
_FIELDS: Final[Mapping[str, str]] = {
    "gen_ai.conversation.id": "tree",
    "sessiontree.session.id": "session",
    "sessiontree.call.key": "call",
    "sessiontree.turn": "turn",
    "gen_ai.tool.name": "tool",
    "gen_ai.request.model": "model",
    "gen_ai.usage.input_tokens": "input_tokens",
    "gen_ai.usage.output_tokens": "output_tokens",
    "sessiontree.usage.cost_usd": "cost_usd",
    "sessiontree.call.outcome": "outcome",
    "sessiontree.call.display": "display",
    "sessiontree.session.status": "status",
}
"""Members of a line by the attribute of a span."""


class JsonLines(logging.Formatter):
    """Formats a record as one JSON object: time, level, logger, message, and what it says of a tree.

    Of an exception only the type is shown: its text and its traceback may hold content.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        given: Mapping[str, Any] = getattr(record, "sessiontree", {})
        at_s = given.get("at_ms", record.created * 1000) / 1000
        line = {
            "time": datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **{name: value for name, value in given.items() if name != "at_ms"},
        }
        if record.exc_info is not None and record.exc_info[0] is not None:
            line["exception"] = record.exc_info[0].__name__
        return json.dumps(line, ensure_ascii=True, default=str)


def log_as_json() -> None:
    """Write the package's records to standard error from INFO on; a second call does nothing."""
    logger = logging.getLogger(LOGGER)
    if any(isinstance(handler.formatter, JsonLines) for handler in logger.handlers):
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logger.addHandler(handler)
    logger.setLevel(min(logger.level or logging.INFO, logging.INFO))
    logger.propagate = False


class TreeLog:
    """Writes a line for each span of a tree that ends; used in place of a sender of spans."""

    def __init__(self) -> None:
        self._log = logging.getLogger(f"{LOGGER}.tree")

    def samples(self, trace_id: str, name: str) -> bool:
        """Return True: every tree is logged."""
        return True

    def offer(self, records: Sequence[SpanRecord], traced: object) -> None:
        """Write the lines."""
        for record in records:
            level = logging.INFO if record.error is None else logging.WARNING
            self._log.log(level, record.name, extra={"sessiontree": _build_members(record)})

    def call_when_idle(self, action: Callable[[], None]) -> None:
        """Call the action now: nothing waits here."""
        action()


def _build_members(record: SpanRecord) -> dict[str, Any]:
    found: dict[str, Any] = {
        name: record.attributes[key] for key, name in _FIELDS.items() if key in record.attributes
    }
    found |= {"at_ms": record.end_ms, "duration_ms": record.end_ms - record.start_ms}
    if record.error is not None:
        found["error"] = record.error
    if record.events:
        found["events"] = [event.name.removeprefix("sessiontree.") for event in record.events]
    return found
