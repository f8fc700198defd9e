"""Plans of small trees: what every session of one does, and the model that has them do it.

What comes of a plan depends on no order between sessions: texts name their session and step, children are
spawned when nothing of their parent waits for anybody any more, and only sessions without children fail or
are cancelled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sessiontree import AsyncFunctionModel, FunctionModel, ModelRequest, SessionKind, script_call
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.messages import AssistantMessage, ToolCall, UserMessage
from sessiontree.models.answers import Answer
from sessiontree.models.port import Model

CALLS = ("look", "append", "allowed", "refused", "asked", "forbidden", "unknown", "say", "stumble")
"""What a session may call, by what is to come of it; some need what not every kind has."""
End: TypeAlias = Literal["word", "number", "hopeless", "cancelled"]
ENDS: tuple[End, ...] = ("word", "number", "hopeless", "cancelled")
ATTEMPTS = 3
SPAWNS = {SessionKind.BRANCH: "b", SessionKind.WORKER: "w"}
Steps: TypeAlias = tuple[tuple[str, ...], ...]
"""Replies, each of one or more calls by their names."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What one session does: first calls, then children, then its end."""

    kind: SessionKind
    steps: Steps
    children: tuple[Plan, ...] = ()
    end: End = "word"
    typed: bool = False
    """Whether its result must be a number."""


@dataclass(frozen=True, slots=True)
class Play:
    """What Main and its program do."""

    main: Plan
    errands: tuple[tuple[Plan, bool], ...]
    """Children of the program's own, and whether they refuse what Main would allow."""
    calls: tuple[str, ...]
    """Calls of the program in Main, by their names."""
    waits: bool
    """Whether the model answers in the gateway."""


@dataclass(frozen=True, slots=True)
class Part:
    """The replies of one session, and its final message."""

    replies: tuple[tuple[ToolCall, ...], ...]
    last: str


def asked_for(name: str, text: str) -> ToolCall:
    """Return the call of a name, about a text."""
    if name in {"allowed", "refused", "asked", "forbidden", "cancelled"}:
        return script_call("launch", text=f"{name} {text}")
    if name == "wrong":
        return script_call("append", words=text)
    return script_call({"say": "message"}.get(name, name), text=text)


def children_of(session: str, plans: tuple[Plan, ...]) -> Iterator[tuple[str, Plan]]:
    """Yield the ids that a session's children get, and their plans."""
    counts = dict.fromkeys(SPAWNS, 0)
    for plan in plans:
        counts[plan.kind] += 1
        yield f"{session}/{SPAWNS[plan.kind]}{counts[plan.kind]}", plan


def parts_of(play: Play) -> dict[str, Part]:
    """Return every session's part."""
    parts: dict[str, Part] = {"main": _part("main", play.main)}
    ahead = list(children_of("main", own_children(play)))
    while ahead:
        session, plan = ahead.pop()
        parts[session] = _part(session, plan)
        ahead += children_of(session, plan.children)
    return parts


def own_children(play: Play) -> tuple[Plan, ...]:
    """Return the plans of Main's children in the order of their spawning."""
    return (*play.main.children, *(plan for plan, _ in play.errands))


def _part(session: str, plan: Plan) -> Part:
    replies = [
        tuple(asked_for(name, f"{session} {step}.{index}") for index, name in enumerate(names))
        for step, names in enumerate(plan.steps)
    ]
    replies += [(_spawn(child),) for child in plan.children]
    if plan.end == "hopeless":
        replies += [(asked_for("wrong", session),)] * ATTEMPTS
    if plan.end == "cancelled":
        replies.append((asked_for("cancelled", session),))
    return Part(tuple(replies), "7" if plan.end == "number" else f"{session} is done")


def _spawn(child: Plan) -> ToolCall:
    schema: dict[str, JsonValue] = {"result_schema": {"type": "integer"}} if child.typed else {}
    return script_call("sessions_spawn", kind=str(child.kind), task="go", **schema)


class Script:
    """Has every session do its part, whenever and wherever it is asked."""

    def __init__(self, parts: Mapping[str, Part]) -> None:
        self._parts = parts

    def __call__(self, request: ModelRequest) -> Answer:
        """Return what a session says next; a Branch also says what it heard of its children."""
        part = self._parts[request.session_id]
        step = sum(isinstance(each, AssistantMessage) and bool(each.tool_calls) for each in request.messages)
        if step < len(part.replies):
            return list(part.replies[step])
        if request.kind is SessionKind.MAIN or part.last == "7":
            return part.last
        heard = [each.text for each in request.messages if isinstance(each, UserMessage)]
        return " | ".join([part.last, *sorted(heard)])


def model_of(play: Play) -> Model:
    """Return the model of a play."""
    script = Script(parts_of(play))

    async def later(request: ModelRequest) -> Answer:
        return script(request)

    return AsyncFunctionModel(later) if play.waits else FunctionModel(script)
