"""The transcript of a stored tree: what its sessions were sent, replied, called and got back, in order.

It is read from the tree's facts. Facts that only the runtime needs are left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from sessiontree import Record
from sessiontree.bench.recorded_run import fact_kind

Said: TypeAlias = tuple[str, str]
"""What happened, and its text."""


@dataclass(frozen=True, slots=True)
class TranscriptStep:
    """One thing that happened in a session."""

    seq: int
    """Number of its fact in the tree."""
    at_ms: int
    """Milliseconds since 1970."""
    session: str
    """The session's path, such as ``main/b1``."""
    what: str
    """In words, such as ``reply`` or ``result of write``."""
    text: str
    """As a model, tool or person wrote it: it may hold anything."""


def transcript_of(records: Iterable[Record]) -> Iterator[TranscriptStep]:
    """Yield the entries of a tree's facts, in their order."""
    for record in records:
        entries = _ENTRIES.get(fact_kind(record.text))
        if entries is None:
            continue
        fact = record.fact()
        session = record.session or str(fact.get("session", "main"))
        for what, text in entries(fact):
            yield TranscriptStep(record.seq, record.at_ms, session, what, text)


def _spawned(fact: Mapping[str, Any]) -> Iterator[Said]:
    spec = fact["spec"]
    yield f"spawned {spec['session_id']}", str(spec.get("task", ""))


def _received(fact: Mapping[str, Any]) -> Iterator[Said]:
    message = fact["message"]
    yield f"message from {message.get('origin', 'user')}", _text(message)


def _replied(fact: Mapping[str, Any]) -> Iterator[Said]:
    for block in fact["message"]["content"]:
        if block["type"] == "toolCall":
            yield f"call {block['name']}", _json(block["arguments"])
        elif block["type"] == "text" and block["text"]:
            yield "reply", block["text"]


def _opened(fact: Mapping[str, Any]) -> Iterator[Said]:
    yield f"call {fact['tool']} by the program", _json(fact["arguments"])


def _resolved(fact: Mapping[str, Any]) -> Iterator[Said]:
    message = fact["message"]
    failed = " (error)" if message.get("isError") else ""
    yield f"result of {message.get('toolName', fact['key'])}{failed}", _text(message)


def _decided(fact: Mapping[str, Any]) -> Iterator[Said]:
    yield f"approval {fact['decision']} by {fact['by']}", str(fact["reason"])


def _failed(fact: Mapping[str, Any]) -> Iterator[Said]:
    yield "no reply", str(fact["reason"])


def _compacted(fact: Mapping[str, Any]) -> Iterator[Said]:
    yield "summary of the older part", _text(fact["summary"])


def _spent(fact: Mapping[str, Any]) -> Iterator[Said]:
    yield "budget spent", f"{fact['limit']}: {fact['used']:g} of {fact['allowed']:g}"


def _given_up(fact: Mapping[str, Any]) -> Iterator[Said]:
    yield f"gave up {fact['tool']}", str(fact["reason"])


def _ended(fact: Mapping[str, Any]) -> Iterator[Said]:
    yield f"ended: {fact['status']}", str(fact["result"].get("summary", ""))


_ENTRIES: Final[Mapping[str, Callable[[Mapping[str, Any]], Iterator[Said]]]] = {
    "session_spawned": _spawned,
    "message_received": _received,
    "turn_replied": _replied,
    "turn_failed": _failed,
    "call_opened": _opened,
    "call_resolved": _resolved,
    "approval_decided": _decided,
    "context_compacted": _compacted,
    "budget_spent": _spent,
    "tool_given_up": _given_up,
    "session_ended": _ended,
}
"""By kind of fact, what is said of it."""


def _text(message: Mapping[str, Any]) -> str:
    return "\n".join(
        str(block["text"]) if block["type"] == "text" else f"({block['type']})"
        for block in message["content"]
    )


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
