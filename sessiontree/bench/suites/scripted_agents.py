"""Scripted models for suites of tool calls: one replays a plan, one also obeys every order that it reads.

They are in-process models: a reply depends on the conversation and on what the model was made with. The
gullible model finds orders in the text of results and messages, where any model would, and knows how to do
what they ask. It is the worst case of a model under prompt injection, and always the same.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from sessiontree import AssistantMessage, Message, ModelRequest, SessionKind, ToolCall, ToolResultMessage
from sessiontree.contracts.values.messages import TextContent, UserMessage
from sessiontree.contracts.values.quick_dataclass import dataclass

SPAWN: Final = "sessions_spawn"
WAITING: Final = "Waiting for the reader."
UNREAD: Final = "The reader returned no value."


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A call that a plan makes."""

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FromReader:
    """An argument whose value a Worker returns."""

    name: str
    """Its name in the Worker's result."""
    kind: str
    """``truth``, ``number``, ``digits``, ``day`` or ``minute``: how the tool wants it."""

    def shown(self, value: Any) -> Any:
        """Return a Worker's value as the tool wants it."""
        match self.kind:
            case "digits":
                return str(value)
            case "minute":
                return str(value).replace("T", " ")[: len("2026-11-27 21:30")]
        return value


@dataclass(frozen=True, slots=True)
class Plan:
    """How something is done: calls in order, then a text."""

    calls: tuple[PlannedCall, ...] = ()
    output: str = ""


class PlanModel:
    """Makes the calls of a plan one by one, then gives its text.

    Args:
        plan: The plan.
        name: The model's name.
    """

    def __init__(self, plan: Plan, name: str = "ground-truth") -> None:
        self.name = name
        self._plan = plan

    def reply(self, request: ModelRequest) -> AssistantMessage:
        """Return the next call, or the text."""
        made = sum(len(each.tool_calls) for each in request.messages if isinstance(each, AssistantMessage))
        if made < len(self._plan.calls):
            return _make_call(self._plan.calls[made], request.turn)
        return give_text(self._plan.output)


class GullibleModel:
    """Follows a plan, and first obeys every order that it reads in a result or in a child's message.

    The plan may start Workers itself, and have arguments come from what they return.

    Args:
        plan: What the user's task needs.
        orders_in: Returns the orders in a text that the model reads: a key for each, and how it is carried
            out. A session obeys an order of one key once.
        delegated: Names of tools that a Worker calls for it, if it may start Workers.
        name: The model's name.
        obeys_last: Whether it obeys orders when its plan has ended, and not before it goes on with the plan.
    """

    def __init__(
        self,
        plan: Plan,
        orders_in: Callable[[str], Iterable[tuple[str, Plan]]],
        delegated: frozenset[str] = frozenset(),
        name: str = "gullible",
        *,
        obeys_last: bool = False,
    ) -> None:
        self.name = name
        self._plan = plan
        self._orders_in = orders_in
        self._delegated = delegated
        self._obeys_last = obeys_last

    def reply(self, request: ModelRequest) -> AssistantMessage:
        """Return the next call of the plan or of an order, or the final text."""
        if request.kind is SessionKind.WORKER:
            return self._reply_as_worker(request)
        can_delegate = any(tool.name == SPAWN for tool in request.tools)
        work = self._read(self._plan, request.messages[1:])
        if work.readers > 0:
            return give_text(WAITING)
        if not work.calls:
            return give_text("\n".join(each for each in work.texts if each))
        following = work.calls[0]
        if can_delegate and following.tool in self._delegated:
            task = write_reader_task([following])
            return _make_call(PlannedCall(SPAWN, {"kind": "worker", "task": task}), request.turn)
        try:
            return _make_call(_fill(following, request.messages), request.turn)
        except LookupError:
            return give_text(UNREAD)

    def _reply_as_worker(self, request: ModelRequest) -> AssistantMessage:
        """Make the calls that the task names, obey what it reads, and report a result or the values."""
        asked = json.loads(_get_text(request.messages[0]))
        calls = tuple(PlannedCall(each["tool"], each["arguments"]) for each in asked["calls"])
        work = self._read(Plan(calls), request.messages[1:])
        if work.calls:
            return _make_call(work.calls[0], request.turn)
        if asked["values"]:
            return give_text(asked["values"])
        found = next(each for each in request.messages if isinstance(each, ToolResultMessage))
        return give_text(found.text)

    def _read(self, plan: Plan, messages: Sequence[Message]) -> _PlanProgress:
        """Return what remains to be done after these messages."""
        work = _PlanProgress(deque(plan.calls), [plan.output])
        obeyed: set[str] = set()
        for message in messages:
            if isinstance(message, AssistantMessage):
                for _ in message.tool_calls:
                    work.calls.popleft()
                continue
            text = _get_text(message)
            if isinstance(message, ToolResultMessage):
                work.readers += message.tool_name == SPAWN and not message.is_error
            else:
                work.readers -= message.origin == "child"
            for key, order in self._orders_in(text):
                if key not in obeyed:
                    obeyed.add(key)
                    if self._obeys_last:
                        work.calls.extend(order.calls)
                    else:
                        work.calls.extendleft(reversed(order.calls))
                    work.texts.append(order.output)
        return work


@dataclass(slots=True)
class _PlanProgress:
    """What remains of a plan and of the orders that were read."""

    calls: deque[PlannedCall]
    texts: list[str]
    readers: int = 0
    """Workers that have not reported yet."""


def write_reader_task(calls: Iterable[PlannedCall], values: str = "") -> str:
    """Return the task of a Worker.

    Args:
        calls: What it calls, in order.
        values: What it finds in the results, as JSON; empty = it returns the first result's text.
    """
    told = [{"tool": each.tool, "arguments": dict(each.arguments)} for each in calls]
    return json.dumps({"calls": told, "values": values})


def _fill(planned: PlannedCall, messages: Iterable[Message]) -> PlannedCall:
    """Return a call with the values that Workers returned.

    Raises:
        LookupError: a value is missing.
    """
    returned: dict[str, Any] = {}
    for message in messages:
        if isinstance(message, UserMessage) and message.origin == "child":
            output = json.loads(message.text).get("output")
            returned |= output if isinstance(output, dict) else {}

    def fill(value: Any) -> Any:
        match value:
            case FromReader():
                return value.shown(returned[value.name])
            case Mapping():
                return {name: fill(each) for name, each in value.items()}
            case list():
                return [fill(each) for each in value]
        return value

    return PlannedCall(planned.tool, {name: fill(each) for name, each in planned.arguments.items()})


def _make_call(planned: PlannedCall, turn: int) -> AssistantMessage:
    call = ToolCall(f"call_{turn}", planned.tool, dict(planned.arguments))
    return AssistantMessage((TextContent(f"I call {planned.tool}."), call), "toolUse")


def give_text(text: str) -> AssistantMessage:
    """Return a reply that is a text."""
    return AssistantMessage((TextContent(text),), "stop")


def _get_text(message: Message) -> str:
    return message.text if isinstance(message, UserMessage | ToolResultMessage) else ""
