"""Short ways to say what tests of the session say often: specs, replies, tools with fixed verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.facts import stimuli
from sessiontree.contracts.facts.tree_config import SessionSpec
from sessiontree.contracts.kinds import PermissionTier, SessionKind
from sessiontree.contracts.recorded.approvals import ApprovalQuestion, CheckedCall, RejectedCall
from sessiontree.contracts.recorded.codec import Outcome
from sessiontree.contracts.recorded.results import Artifact, make_error_message
from sessiontree.contracts.values.jsonable import JsonValue, compute_digest
from sessiontree.contracts.values.messages import (
    AssistantMessage,
    TextContent,
    ToolCall,
    ToolResultMessage,
    Usage,
)
from sessiontree.session.instructions import ToTree

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Card:
    """What a host knows about a tool."""

    tier: PermissionTier
    repeatable: bool = False

    @property
    def needs_approval(self) -> bool:
        """Whether a person is asked first."""
        return self.tier is PermissionTier.ELEVATED


TOOLS: Mapping[str, Card] = {
    "look": Card(PermissionTier.READ_ONLY, repeatable=True),
    "note": Card(PermissionTier.WORKSPACE),
    "mark": Card(PermissionTier.WORKSPACE, repeatable=True),
    "wipe": Card(PermissionTier.ELEVATED),
    "seal": Card(PermissionTier.ELEVATED, repeatable=True),
}
"""Every tool there is; any other name is answered at once with an error."""

RESULT_SCHEMA: Mapping[str, JsonValue] = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
}


def spec(
    kind: SessionKind = SessionKind.BRANCH,
    *,
    task: str = "compare the two",
    result_schema: Mapping[str, JsonValue] | None = None,
) -> SessionSpec:
    """Return a session's spec."""
    is_main = kind is SessionKind.MAIN
    return SessionSpec(
        session_id="main" if is_main else "main/b1",
        kind=kind,
        parent=None if is_main else "main",
        depth=0 if is_main else 1,
        agent="default",
        task=task,
        label=None,
        via="root" if is_main else "model",
        tools=tuple(TOOLS),
        result_schema=result_schema,
        rules=(),
        approver=None,
        owns_channel=is_main,
        budget=None,
        key=None,
    )


def call(tool: str, n: int = 0, *, bad: bool = False, call_id: str = "c1") -> ToolCall:
    """Return a call; equal ``n`` gives equal arguments, ``bad`` ones never fit."""
    arguments: dict[str, JsonValue] = {"n": n}
    if bad:
        arguments["bad"] = True
    return ToolCall(call_id, tool, arguments)


def reply(*calls: ToolCall, text: str = "") -> AssistantMessage:
    """Return a model's reply."""
    blocks = (TextContent(text),) if text else ()
    return AssistantMessage((*blocks, *calls), "toolUse" if calls else "stop", Usage(3, 2, 0.5, 1, 0), 7)


def fits(asked: ToolCall) -> bool:
    """Whether a call's arguments fit."""
    return asked.name in TOOLS and "bad" not in asked.arguments


def digest(asked: ToolCall) -> str:
    """Return what a call's approval is bound to."""
    return compute_digest(asked.name, asked.arguments)


def verdict(at_ms: int, key: str, asked: ToolCall) -> stimuli.Stimulus:
    """Return what a host's check of a call says; the same call always gets the same verdict."""
    card = TOOLS.get(asked.name)
    if card is None:
        error = ExecutionError(f"no tool is named {asked.name}")
        return stimuli.CallFinished(
            at_ms, key, "error", make_error_message(asked.id, asked.name, error, at_ms)
        )
    if not fits(asked):
        schema: dict[str, JsonValue] = {"type": "object"}
        bad = RejectedCall(key, asked.name, "bad: unknown", "/bad", digest(asked), schema)
        return stimuli.CallRejected(at_ms, bad)
    named = digest(asked) if card.tier else ""
    checked = CheckedCall(key, asked.name, asked.arguments, named, int(card.tier), card.repeatable)
    return stimuli.CallPrepared(at_ms, checked, card.needs_approval)


def question(request_id: str, session: str = "main/b1/w1", **arguments: JsonValue) -> ApprovalQuestion:
    """Return a question for an approver function: a session below wants to wipe."""
    checked = CheckedCall("1.0", "wipe", arguments, "d", int(PermissionTier.ELEVATED), False)
    return ApprovalQuestion(request_id, session, checked)


def sent(told: Iterable[object], kind: type[T]) -> list[T]:
    """Return the events of a type among what a session wants brought to its tree."""
    events = (each.event for each in told if isinstance(each, ToTree))
    return [event for event in events if isinstance(event, kind)]


def finished(at_ms: int, key: str, asked: ToolCall, outcome: Outcome) -> stimuli.CallFinished:
    """Return a call's result; one that went well leaves an artifact."""
    text = TextContent(f"{asked.name} {key}: {outcome}")
    message = ToolResultMessage(asked.id, asked.name, (text,), {"key": key}, outcome != "ok", at_ms)
    artifacts = (Artifact("file", f"made by {key}", path=f"{key}.txt"),) if outcome == "ok" else ()
    return stimuli.CallFinished(at_ms, key, outcome, message, artifacts)


def is_n(value: Any) -> bool:
    """Whether a value fits ``RESULT_SCHEMA``, said a second time."""
    return isinstance(value, dict) and isinstance(value.get("n"), int) and not isinstance(value["n"], bool)
