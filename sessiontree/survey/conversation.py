"""Conversation: a session's messages, read as what it was asked, did, and was told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from sessiontree.contracts.messages import AssistantMessage, Message, ToolCall, ToolResultMessage, UserMessage


@dataclass(frozen=True, slots=True)
class ScriptStep:
    """One tool call and its result."""

    call: ToolCall
    result: ToolResultMessage

    @property
    def status(self) -> str:
        """``ok``, or the envelope's word: ``error``, ``blocked``, ``unknown``, ``pending``."""
        text = self.result.text
        if not self.result.is_error and not text.startswith('{"status":"pending"'):
            return "ok"
        return str(json.loads(text)["status"])

    @property
    def is_denied(self) -> bool:
        """Whether it was refused, not tried."""
        return self.result.is_error and "tier" in json.loads(self.result.text)

    @property
    def reason(self) -> str:
        """Why it failed."""
        envelope = json.loads(self.result.text)
        return str(envelope.get("error") or envelope.get("reason") or envelope)


@dataclass(frozen=True, slots=True)
class ScriptedConversation:
    """What a session of a survey knows."""

    order: str = ""
    """Its first message."""
    steps: list[ScriptStep] = field(default_factory=list)
    """All calls that have a result, in order."""
    told: list[str] = field(default_factory=list)
    """What children said, in order."""
    has_news: bool = False
    """Whether the runtime said something after the last call."""

    def named(self, tool: str) -> list[ScriptStep]:
        """Return the calls of one tool."""
        return [step for step in self.steps if step.call.name == tool]

    def since(self, tool: str) -> list[ScriptStep]:
        """Return the steps after the last call of a tool; all where it was never called."""
        for index in range(len(self.steps) - 1, -1, -1):
            if self.steps[index].call.name == tool:
                return self.steps[index + 1 :]
        return self.steps


def read(messages: Sequence[Message]) -> ScriptedConversation:
    """Return what messages hold; linear in their number, and no text is looked into."""
    order = ""
    steps: list[ScriptStep] = []
    told: list[str] = []
    open_calls: list[ToolCall] = []
    has_news = False
    for message in messages:
        if isinstance(message, AssistantMessage):
            open_calls = list(message.tool_calls)
        elif isinstance(message, ToolResultMessage):
            # results stand in call order
            steps.append(ScriptStep(open_calls.pop(0), message))
            has_news = False
        elif isinstance(message, UserMessage):
            if message.origin == "child":
                told.append(message.text)
            elif message.origin == "notice":
                has_news = True
            elif not order:
                order = message.text
    return ScriptedConversation(order, steps, told, has_news)
