"""What a model sees of a request, as a JSON value; how two of them differ.

Ids of calls, times, usages and signatures are left out: they differ from run to run, and mean nothing to a
model. A call has its number in the conversation instead of its id.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sessiontree.contracts.values.messages import (
    AssistantMessage,
    ImageContent,
    Message,
    TextContent,
    ToolCall,
    ToolResultMessage,
)
from sessiontree.models.port import ModelRequest

_UNSEEN_SETTINGS: Final = frozenset({"deadline_s", "on_length"})
"""Settings that are the runtime's own."""
_COMPARED_CHARS: Final = 2_000
_BEFORE_CHARS: Final = 24
_AFTER_CHARS: Final = 56


def build_seen_request(request: ModelRequest) -> dict[str, Any]:
    """Return ``{system, tools, resultSchema, settings, messages}``, without what is empty."""
    settings = request.settings.model_dump(mode="json", exclude_none=True, exclude=set(_UNSEEN_SETTINGS))
    seen = {
        "system": request.system_prompt,
        "tools": [
            {"name": tool.name, "description": tool.description, "parameters": _to_plain(tool.parameters)}
            for tool in request.tools
        ],
        "resultSchema": _to_plain(request.result_schema),
        "settings": settings,
        "messages": list(_describe_messages(request.messages)),
    }
    return {name: value for name, value in seen.items() if value}


def _to_plain(value: Any) -> Any:
    """Return a JSON value that consists of dicts and lists."""
    if isinstance(value, Mapping):
        return {str(key): _to_plain(item) for key, item in value.items()}
    return [_to_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _describe_messages(messages: Sequence[Message]) -> Iterator[dict[str, Any]]:
    numbers: dict[str, str] = {}
    calls = 0
    for message in messages:
        content: list[dict[str, Any]] = []
        if isinstance(message, AssistantMessage):
            for block in message.content:
                if isinstance(block, ToolCall):
                    calls += 1
                    numbers[block.id] = f"call {calls}"
                    content.append(_call(block, numbers[block.id]))
                elif isinstance(block, TextContent):
                    content.append({"text": block.text})
                else:
                    content.append({"thinking": block.thinking})
            yield {"role": "assistant", "content": content}
            continue
        content = [_block(block) for block in message.content]
        if isinstance(message, ToolResultMessage):
            number = numbers.get(message.tool_call_id, message.tool_call_id)
            error = {"isError": True} if message.is_error else {}
            yield {"role": "tool", "call": number, "tool": message.tool_name, **error, "content": content}
        else:
            yield {"role": "user", "content": content}


def _call(call: ToolCall, number: str) -> dict[str, Any]:
    if call.unread is not None:
        return {"call": number, "tool": call.name, "unread": call.unread}
    return {"call": number, "tool": call.name, "arguments": _to_plain(call.arguments)}


def _block(block: TextContent | ImageContent) -> dict[str, Any]:
    if isinstance(block, TextContent):
        return {"text": block.text}
    return {"image": block.mime_type, "sha256": hashlib.sha256(block.data.encode()).hexdigest()}


def find_nearest(asked: Mapping[str, Any], recorded: Sequence[Mapping[str, Any]]) -> int:
    """Return the place of the recorded request that differs least; there is at least one."""
    wanted = dict(_walk_leaves(asked))
    likeness = []
    for seen in recorded:
        leaves = dict(_walk_leaves(seen))
        same = sum(1 for place, value in leaves.items() if place in wanted and wanted[place] == value)
        likeness.append(2 * same / (len(leaves) + len(wanted)) if leaves or wanted else 1.0)
    best = max(likeness)
    equal = [place for place, each in enumerate(likeness) if each == best]
    return max(equal, key=lambda place: _compare_texts(asked, recorded[place]))


def find_first_difference(asked: Mapping[str, Any], recorded: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return where two requests first differ, the recorded text from there on, and the asked text."""
    place, was, now = _find_difference(asked, recorded)
    at = next((at for at, (one, other) in enumerate(zip(was, now, strict=False)) if one != other), None)
    if at is None:
        at = min(len(was), len(now))
    return (place, _cut_excerpt(was, at), _cut_excerpt(now, at))


def _find_difference(asked: Mapping[str, Any], recorded: Mapping[str, Any]) -> tuple[str, str, str]:
    now, was = dict(_walk_leaves(asked)), dict(_walk_leaves(recorded))
    for place in [*now, *(place for place in was if place not in now)]:
        if now.get(place, _MISSING) != was.get(place, _MISSING):
            return place, _format_value(was.get(place, _MISSING)), _format_value(now.get(place, _MISSING))
    return "", "", ""


_MISSING: Final = object()


def _format_value(value: object) -> str:
    return "(nothing)" if value is _MISSING else value if isinstance(value, str) else repr(value)


def _cut_excerpt(text: str, at: int) -> str:
    begin, end = max(0, at - _BEFORE_CHARS), at + _AFTER_CHARS
    return f"{'…' if begin else ''}{text[begin:end]}{'…' if end < len(text) else ''}"


def _compare_texts(asked: Mapping[str, Any], recorded: Mapping[str, Any]) -> float:
    _, was, now = _find_difference(asked, recorded)
    return difflib.SequenceMatcher(None, was[:_COMPARED_CHARS], now[:_COMPARED_CHARS]).quick_ratio()


def _walk_leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and value of each text, number and empty container."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _walk_leaves(item, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list) and value:
        for number, item in enumerate(value):
            yield from _walk_leaves(item, f"{place}[{number}]")
    else:
        yield place, value
