"""Values of a trace: spans, their events, and their attributes under the names of OpenTelemetry.

The names are those of the semantic conventions for generative AI (1.44), and ``sessiontree.*`` where these
have none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.messages import AssistantMessage, Usage
from sessiontree.contracts.values.quick_dataclass import dataclass

Attribute: TypeAlias = str | int | float | bool | tuple[str, ...]

MAX_NAME_CHARS: Final = 200
_FINISH: Final = {"toolUse": "tool_call", "refusal": "content_filter"}
"""Finish reasons that the conventions call differently."""
_PROVIDERS: Final = {
    "anthropic": "anthropic",
    "google": "gcp.gemini",
    "mistral": "mistral_ai",
    "openai": "openai",
    "openai-chat": "openai",
    "openai-responses": "openai",
}
"""Names of providers in the conventions, by the prefix of a model's name."""
_DECIDERS: Final = frozenset(
    {"rule", "function", "mode", "denial", "always", "approver error", "nobody", "time", "stop"}
)
"""Who may settle an approval, apart from people, whose names are not shown."""


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """Something that happened at one time within a span."""

    name: str
    at_ms: int
    attributes: Mapping[str, Attribute]


@dataclass(frozen=True, slots=True)
class SpanRecord:
    """One ended span."""

    name: str
    span_id: str
    """16 hexadecimal digits, unique in the trace."""
    parent_id: str | None
    """None = the tree's own span, which has no parent."""
    kind: Literal["internal", "client"]
    start_ms: int
    """Milliseconds since the epoch."""
    end_ms: int
    """Not before ``start_ms``."""
    attributes: Mapping[str, Attribute]
    events: tuple[SpanEvent, ...]
    error: str | None
    """Short name of the error that ended it; None = no error did."""
    reason: str
    """Text of the error, if content is asked for; else empty."""
    continues: str | None
    """Id of the span that this one continues, because the tree was closed in between."""


def name_decider(by: str) -> str:
    """Return who settled an approval: a word for rules and functions, ``person`` instead of a name."""
    return by if by in _DECIDERS else "person"


def build_model_attributes(model: str) -> dict[str, Attribute]:
    """Return provider and model of a session's model, such as ``anthropic:claude-sonnet-5``."""
    prefix, colon, rest = model.partition(":")
    provider = _PROVIDERS.get(prefix, prefix) if colon else "sessiontree"
    return {
        "gen_ai.provider.name": provider[:MAX_NAME_CHARS],
        "gen_ai.request.model": (rest if colon else model)[:MAX_NAME_CHARS],
    }


def build_usage_attributes(usage: Usage) -> dict[str, Attribute]:
    """Return tokens and cost; cached, reasoning and unpriced tokens only if there are any."""
    found: dict[str, Attribute] = {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "sessiontree.usage.cost_usd": float(usage.cost_usd),
    }
    more = {
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
        "sessiontree.usage.unpriced_tokens": usage.unpriced_tokens,
    }
    return found | {name: count for name, count in more.items() if count}


def reply_attributes(message: AssistantMessage) -> dict[str, Attribute]:
    """Return a reply's finish reason, usage and model."""
    reason = _FINISH.get(message.stop_reason, message.stop_reason)
    found = {"gen_ai.response.finish_reasons": (reason,), **build_usage_attributes(message.usage)}
    if message.model:
        found["gen_ai.response.model"] = message.model[:MAX_NAME_CHARS]
    return found


def build_text_parts(texts: list[str]) -> list[JsonValue]:
    """Return texts as parts of a message in the form of the conventions."""
    return [{"type": "text", "content": text} for text in texts]


def reply_content(message: AssistantMessage) -> JsonValue:
    """Return a reply's text and calls as a message in the form of the conventions."""
    parts = build_text_parts([message.text] if message.text else [])
    for call in message.tool_calls:
        arguments = dict(call.arguments)
        parts.append({"type": "tool_call", "id": call.id, "name": call.name, "arguments": arguments})
    reason = _FINISH.get(message.stop_reason, message.stop_reason)
    return {"role": "assistant", "parts": parts, "finish_reason": reason}
