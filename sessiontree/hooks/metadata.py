"""Adding to what is kept of a result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from sessiontree.contracts.hooks import Hook, KeptResult
from sessiontree.contracts.jsonable import JsonValue


def utc_now() -> str:
    """Return the time as ISO 8601 in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class AddMetadata(Hook):
    """Adds ``metadata`` to a result's details: for journal and screen, never for the model.

    Args:
        tags: What to add to every result.
        clock: Gives the time to add as ``keptAt``; None = none.
    """

    name = "metadata"

    def __init__(
        self, tags: Mapping[str, JsonValue] | None = None, *, clock: Callable[[], str] | None = utc_now
    ) -> None:
        self._tags = dict(tags or {})
        self._clock = clock

    def tool_result_persist(self, result: KeptResult) -> KeptResult:
        """Return the result with its metadata; progress stays as it is."""
        if not result.content:
            return result
        metadata: dict[str, JsonValue] = dict(self._tags)
        if self._clock is not None:
            metadata["keptAt"] = self._clock()
        details = result.details
        if not isinstance(details, dict):
            details = {} if details is None else {"details": details}
        return replace(result, details={**details, "metadata": metadata})
