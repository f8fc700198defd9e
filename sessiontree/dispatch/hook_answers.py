"""What a hook answered, checked before anything is made of it: its types, its size, its depth."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import get_args

from sessiontree.contracts.error_results import error_message
from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.hooks import Block, KeptResult
from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.messages import ImageContent, TextContent
from sessiontree.contracts.results import Artifact, ArtifactKind
from sessiontree.dispatch.hook_run import HookError

MOST_CHARS = 1_000_000
"""Most characters of parameters or of a result a hook gives, and most it may add to what is kept."""
MOST_REASON = 2_000
MOST_DEPTH = 100
MOST_BLOCKS = 1_000
MOST_INT_BITS = 4_096
"""Longer numbers can't be written as JSON."""
_NODE = 8
_KINDS = get_args(ArtifactKind)


def json_of(value: object, most: int) -> tuple[JsonValue, int]:
    """Return a JSON value as a copy of its own, and its size in characters, give or take its punctuation.

    Raises:
        HookError: it is larger than ``most``, nested too deeply, or no JSON.
    """
    left = most

    def taken(value: object, depth: int) -> JsonValue:
        nonlocal left
        left -= len(value) if isinstance(value, str) else _NODE
        if left < 0 or depth > MOST_DEPTH:
            what = "larger than a hook may give" if left < 0 else "nested too deeply"
            raise HookError(f"what it returned is {what}")
        if value is None or isinstance(value, str | bool):
            return value
        if isinstance(value, float) and math.isfinite(value):
            return value
        if isinstance(value, int) and value.bit_length() <= MOST_INT_BITS:
            left -= value.bit_length() // 3
            return value
        if isinstance(value, list | tuple):
            return [taken(item, depth + 1) for item in value]
        if isinstance(value, Mapping):
            return {_key(taken(key, depth + 1)): taken(item, depth + 1) for key, item in value.items()}
        raise HookError(f"what it returned holds a {type(value).__name__} without a JSON form")

    return taken(value, 0), most - left


def _key(key: JsonValue) -> str:
    if not isinstance(key, str):
        raise HookError(f"what it returned has {key!r} as a key; keys are text")
    return key


def size_of(kept: KeptResult) -> int:
    """Return about how many characters a result holds."""
    return _size(_texts(kept)) + _json_size(kept.details)


def _json_size(value: JsonValue) -> int:
    """Return about how many characters a value holds that was kept already."""
    total, waiting = 0, [value]
    while waiting:
        item = waiting.pop()
        total += len(item) if isinstance(item, str) else _NODE
        if isinstance(item, Mapping):
            waiting.extend(item.values())
            total += _size(item)
        elif isinstance(item, list):
            waiting.extend(item)
    return total


def _size(texts: Iterable[str]) -> int:
    return sum(_NODE + len(text) for text in texts)


def _texts(kept: KeptResult) -> Iterable[str]:
    for block in kept.content:
        yield from (block.text,) if isinstance(block, TextContent) else (block.data, block.mime_type)
    for artifact in kept.artifacts:
        for text in (artifact.description, artifact.path, artifact.uri, artifact.data):
            if text is not None:
                yield text


def rewritten(kept: KeptResult, answer: object) -> KeptResult:
    """Return what is kept after a hook rewrote it.

    Raises:
        HookError: the hook returned no KeptResult, or one with parts that can't be kept, or are too much.
    """
    if not isinstance(answer, KeptResult):
        raise HookError(f"it returned {type(answer).__name__} instead of a KeptResult")
    parts: tuple[tuple[object, Callable[[object], bool]], ...] = (
        (answer.content, _is_block),
        (answer.artifacts, _is_artifact),
    )
    for part, is_whole in parts:
        if not isinstance(part, tuple) or len(part) > MOST_BLOCKS or not all(map(is_whole, part)):
            raise HookError("it returned content or artifacts that are not what they should be")
    if any(isinstance(block, ImageContent) and block not in kept.content for block in answer.content):
        raise HookError("it returned an image the result did not have; images are made fit before")
    most = size_of(kept) + MOST_CHARS
    size = _size(_texts(answer))
    details, _ = json_of(answer.details, most - size)
    return replace(kept, content=answer.content, artifacts=answer.artifacts, details=details)


def _is_block(block: object) -> bool:
    if isinstance(block, TextContent):
        return isinstance(block.text, str)
    return (
        isinstance(block, ImageContent) and isinstance(block.data, str) and isinstance(block.mime_type, str)
    )


def _is_artifact(artifact: object) -> bool:
    if not isinstance(artifact, Artifact) or artifact.kind not in _KINDS:
        return False
    optional = (artifact.path, artifact.uri, artifact.data)
    return isinstance(artifact.description, str) and all(
        each is None or isinstance(each, str) for each in optional
    )


def text_of(answer: object, what: str, before: int) -> str:
    """Return a text that stands in the place of one with so many characters.

    Raises:
        HookError: it is none, blank, or too long.
    """
    if type(answer) is not str:  # a text of a class of its own could be another one each time it is read
        raise HookError(f"its {what} is {type(answer).__name__} instead of text")
    if len(answer) > before + MOST_CHARS:
        raise HookError(f"its {what} is larger than a hook may give")
    if not answer.strip():
        raise HookError(f"its {what} is blank")
    return answer


def reason_of(block: Block) -> str:
    """Return why a hook forbids something; where it does not say, that it does.

    Raises:
        HookError: it is no text.
    """
    if not isinstance(block.reason, str):
        raise HookError(f"its reason is {type(block.reason).__name__} instead of text")
    return block.reason[:MOST_REASON] if block.reason.strip() else Block().reason


def withheld(kept: KeptResult, hook: str, reason: str) -> KeptResult:
    """Return what is kept in the place of a result that its guard could not look at."""
    words = f"the call is over, but its result is withheld: hook {hook!r} failed, {reason}"
    message = error_message(kept.call_id, kept.tool, ExecutionError(words), 0)
    return KeptResult(kept.call_id, kept.tool, message.content, message.details, is_error=True)
