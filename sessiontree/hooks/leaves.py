"""Rewriting the texts within a JSON value or within a result, wherever they stand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sessiontree.contracts.hooks import KeptResult
from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.messages import TextContent
from sessiontree.contracts.results import Artifact


def map_texts(value: JsonValue, rewrite: Callable[[str], str]) -> JsonValue:
    """Return a JSON value with each text in it rewritten; keys stay as they are."""
    if isinstance(value, str):
        return rewrite(value)
    if isinstance(value, list):
        return [map_texts(item, rewrite) for item in value]
    if isinstance(value, dict):
        return {key: map_texts(item, rewrite) for key, item in value.items()}
    return value


def with_texts(result: KeptResult, rewrite: Callable[[str], str]) -> KeptResult:
    """Return a result with each text for the model rewritten."""
    content = tuple(
        TextContent(rewrite(block.text)) if isinstance(block, TextContent) else block
        for block in result.content
    )
    return replace(result, content=content)


def rewritten_artifact(artifact: Artifact, rewrite: Callable[[str], str]) -> Artifact:
    """Return an artifact with everything it says rewritten."""

    def optional(text: str | None) -> str | None:
        return None if text is None else rewrite(text)

    return Artifact(
        artifact.kind,
        rewrite(artifact.description),
        optional(artifact.path),
        optional(artifact.uri),
        optional(artifact.data),
    )
