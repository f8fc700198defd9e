"""Hooks that cut a result before it is kept or add to its details, and the rewriting of texts in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.recorded.results import Artifact
from sessiontree.contracts.tools.hooks import Hook, KeptResult
from sessiontree.contracts.values.jsonable import JsonValue, dump_readable, parse_json
from sessiontree.contracts.values.messages import TextContent
from sessiontree.contracts.values.truncation import cut_text


def map_texts(value: JsonValue, rewrite: Callable[[str], str]) -> JsonValue:
    """Return a JSON value with each text in it rewritten; keys stay as they are."""
    if isinstance(value, str):
        return rewrite(value)
    if isinstance(value, list):
        return [map_texts(item, rewrite) for item in value]
    if isinstance(value, dict):
        return {key: map_texts(item, rewrite) for key, item in value.items()}
    return value


def rewrite_texts(result: KeptResult, rewrite: Callable[[str], str]) -> KeptResult:
    """Return a result with each text for the model rewritten."""
    content = tuple(
        TextContent(rewrite(block.text)) if isinstance(block, TextContent) else block
        for block in result.content
    )
    return replace(result, content=content)


def rewrite_artifact(artifact: Artifact, rewrite: Callable[[str], str]) -> Artifact:
    """Return an artifact with each of its texts rewritten."""

    def rewrite_optional(text: str | None) -> str | None:
        return None if text is None else rewrite(text)

    return Artifact(
        artifact.kind,
        rewrite(artifact.description),
        rewrite_optional(artifact.path),
        rewrite_optional(artifact.uri),
        rewrite_optional(artifact.data),
    )


LEAST_CHARS = 200


class TrimResults(Hook):
    """Cuts every text of a result and of its details to a length; never within a character.

    If the call failed, each text inside the error envelope is cut, so that the envelope stays valid.

    Args:
        max_chars: Longest text, including the notice of the cut; at least 200.
    """

    name = "trim"

    def __init__(self, max_chars: int = 8_000) -> None:
        """Set the length.

        Raises:
            ConfigError: it is too short for the notice of the cut.
        """
        if max_chars < LEAST_CHARS:
            raise ConfigError(f"TrimResults: max_chars is {max_chars}; give at least {LEAST_CHARS}")
        self._cut = partial(cut_text, max_chars=max_chars)

    def tool_result_persist(self, result: KeptResult) -> KeptResult:
        """Return the result with its long texts cut."""
        trimmed = rewrite_texts(result, self._trim_envelope if result.is_error else self._cut)
        return replace(trimmed, details=map_texts(result.details, self._cut))

    def _trim_envelope(self, text: str) -> str:
        try:
            # Cut inside the JSON: a cut through its text would leave an envelope that nobody can read.
            return dump_readable(map_texts(parse_json(text), self._cut))
        except ValueError:
            return self._cut(text)


def format_utc_now() -> str:
    """Return the time as ISO 8601 in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class AddMetadata(Hook):
    """Adds ``metadata`` to a result's details: for journal and screen, never for the model.

    Args:
        tags: What to add to every result.
        clock: Returns the time to add as ``keptAt``; None = add no time.
    """

    name = "metadata"

    def __init__(
        self, tags: Mapping[str, JsonValue] | None = None, *, clock: Callable[[], str] | None = format_utc_now
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
