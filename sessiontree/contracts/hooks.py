"""Hooks: what the owner of a tree may put around calls, messages, spawns and sessions, and what they answer.

Around a call a hook may forbid it, change what it asks for, answer in the tool's place, look at what came of
it, and rewrite what is kept of it. It may rewrite messages and withhold those that go out, refuse a spawn or
reword it, and look at sessions that begin and end. It can't widen a right: whatever it changed is judged
again. Source: seed 001, section 9; seed 000, section 1.

Where they run: what happens in a session, in that session's host; what the creating program asks for, and
what it reads in the journal (sessions that begin and end), in the program. Never in the supervisor.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias, get_args

from sessiontree.contracts.codec import Outcome
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.hook_sessions import EndedSession, Reword, Spawning, StartedSession, Words
from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.messages import ImageContent, TextContent, ToolResultMessage
from sessiontree.contracts.results import Artifact, ToolResult

CallPoint: TypeAlias = Literal["before_tool_call", "after_tool_call", "tool_result_persist"]
HookPoint: TypeAlias = Literal[
    "before_tool_call",
    "after_tool_call",
    "tool_result_persist",
    "message_received",
    "message_sending",
    "message_sent",
    "subagent_spawning",
    "subagent_spawned",
    "subagent_ended",
    "session_start",
    "session_end",
]
OnError: TypeAlias = Literal["run", "block"]
POINTS: tuple[HookPoint, ...] = get_args(HookPoint)
CALL_POINTS: tuple[CallPoint, ...] = get_args(CallPoint)
TOLD_POINTS: tuple[HookPoint, ...] = ("subagent_spawned", "subagent_ended", "session_start", "session_end")
"""Told to the program from the journal."""
HOST_POINTS: tuple[HookPoint, ...] = tuple(point for point in POINTS if point not in TOLD_POINTS)
"""What hosts have to do with."""
LONGEST_S = 600.0


@dataclass(frozen=True, slots=True)
class HookContext:
    """The session a hook runs for."""

    session_id: str
    agent_id: str
    kind: SessionKind


@dataclass(frozen=True, slots=True)
class CalledTool:
    """A call that is about to run: its arguments fit, and the session may make it."""

    call_id: str
    """The id the model gave the call."""
    tool: str
    params: Mapping[str, JsonValue]
    """A copy of its own, under the tool's own names."""


@dataclass(frozen=True, slots=True)
class EndedCall:
    """A call that is over, whatever became of it."""

    tool: str
    params: Mapping[str, JsonValue]
    """What it ran with; what was asked for, where it did not run."""
    result: ToolResultMessage
    """Before ``tool_result_persist``: not redacted yet."""
    is_error: bool
    outcome: Outcome
    duration_ms: float
    """How long the tool ran; 0 where it did not."""


@dataclass(frozen=True, slots=True)
class KeptResult:
    """What is to be kept of a call, or shown of one that runs; rewrite it with ``dataclasses.replace``.

    Of what a hook returns, ``content``, ``details`` and ``artifacts`` are taken; the rest is the call's own.
    Images may be left out, not added.
    """

    call_id: str
    tool: str
    content: tuple[TextContent | ImageContent, ...]
    """For the model; of a call that failed, one text holding the JSON envelope. Empty for progress."""
    details: JsonValue
    """For journal and screen: ``{display, details}`` of a result, or one value of progress."""
    is_error: bool
    artifacts: tuple[Artifact, ...] = ()


@dataclass(frozen=True, slots=True)
class Block:
    """The call does not run, the message does not go out, the child is not spawned; the model reads why."""

    reason: str = "a hook forbids this"


@dataclass(frozen=True, slots=True)
class Change:
    """The call runs with these parameters laid over its own; they are validated and judged again."""

    params: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Result:
    """The call does not run; this is its result."""

    result: ToolResult


HookAnswer: TypeAlias = Block | Change | Result | None
SpawnAnswer: TypeAlias = Block | Reword | None


class Hook:
    """Base of every hook: a subclass sets what it is and defines the points it takes part in.

    Each point may be ``async def`` or a plain function; plain ones run in a thread of their own. An async one
    must not block the event loop. A hook that raises, takes longer than ``timeout_s``, answers with something
    else or with too much has failed: the session goes on, and the fact ``hook_failed`` says so.
    """

    name: ClassVar[str] = ""
    """For facts and messages; empty = the name of the class."""
    priority: int = 0
    """Higher ones come first."""
    on_error: OnError = "run"
    """``run``: when it fails, what it stands around goes on without it. ``block``: it is a guard: when it
    fails, the call does not run, the result or message is withheld, the child is not spawned. Guards come
    after all other hooks."""
    timeout_s: float = 5.0
    """Longest run at one point."""

    def before_tool_call(self, call: CalledTool, ctx: HookContext) -> HookAnswer | Awaitable[HookAnswer]:
        """Answer None to let the call run as it is.

        Plain hooks all see the call as it was asked for; changes are laid over each other, the later one wins
        where both name a parameter. Guards see what came of that. The first Block ends it; a Block outdoes a
        Result, a Result outdoes a Change, and of two Results the later one wins.
        """
        return None

    def after_tool_call(self, ended: EndedCall, ctx: HookContext) -> Awaitable[None] | None:
        """See a call that is over; comes once for each, the blocked, denied and cancelled ones among them."""
        return None

    def tool_result_persist(self, result: KeptResult) -> KeptResult | Awaitable[KeptResult]:
        """Return what is to be kept instead; each hook sees what the ones before it returned.

        Results, errors, words about arguments that do not fit, and progress all come by here.
        """
        return result

    def message_received(self, words: Words, ctx: HookContext) -> Words | Awaitable[Words]:
        """Return what the session hears instead; each hook sees what the ones before it returned.

        Every message to a session comes by here before anything is kept of it: of the creating program, of
        people, of children. A child's task passes ``subagent_spawning`` instead.
        """
        return words

    def message_sending(self, words: Words, ctx: HookContext) -> Words | Block | Awaitable[Words | Block]:
        """Return what is said instead, or a Block; each hook sees what the ones before it returned.

        The text and the thoughts of each reply of the session's model come by here before anything is kept of
        them (its calls have hooks of their own), and what a tool says on a channel. A result is read from the
        text that is left. Of a blocked reply the reason stands in its place, a blocked thought is gone, and a
        tool is told that it may not say it.
        """
        return words

    def message_sent(self, words: Words, ctx: HookContext) -> Awaitable[None] | None:
        """See what was said, as it was said."""
        return None

    def subagent_spawning(self, spawning: Spawning, ctx: HookContext) -> SpawnAnswer | Awaitable[SpawnAnswer]:
        """Answer None to let a child be asked for as it is; ``ctx`` is its parent's.

        Merged as before a call; the first Block ends it. Rules and limits judge what came of it. A tool's
        spawn is decided on in its session's host, the program's in the program.
        """
        return None

    def subagent_spawned(self, child: StartedSession, ctx: HookContext) -> Awaitable[None] | None:
        """See a child that exists; ``ctx`` is its parent's. Told to the program that has the tree open."""
        return None

    def subagent_ended(self, child: EndedSession, ctx: HookContext) -> Awaitable[None] | None:
        """See a child that has ended; ``ctx`` is its parent's. Told to the program, as above."""
        return None

    def session_start(self, started: StartedSession, ctx: HookContext) -> Awaitable[None] | None:
        """See a session that exists, Main among them. Told to the program, as above."""
        return None

    def session_end(self, ended: EndedSession, ctx: HookContext) -> Awaitable[None] | None:
        """See a session that has ended, Main among them. Told to the program, as above."""
        return None


def name_of(hook: Hook) -> str:
    """Return what a hook is called."""
    return hook.name or type(hook).__name__


def takes(hook: Hook, point: HookPoint) -> bool:
    """Return whether a hook takes part in a point."""
    return getattr(type(hook), point) is not getattr(Hook, point)


def check_hook(hook: Hook) -> None:
    """Refuse a hook that is not well declared, before any session exists.

    Raises:
        ConfigError: says what is wrong and how to mend it.
    """
    if not isinstance(hook, Hook):
        raise ConfigError(f"hooks: give objects of a subclass of Hook, not {hook!r}")
    name = name_of(hook)
    if not isinstance(name, str) or len(name) > 64:
        raise ConfigError(f"hook {type(hook).__name__}: name {name!r} must be text of at most 64 characters")
    if not any(takes(hook, point) for point in POINTS):
        raise ConfigError(f"hook {name!r}: takes part in nothing; define one of {', '.join(POINTS)}")
    if hook.on_error not in get_args(OnError):
        raise ConfigError(
            f"hook {name!r}: on_error {hook.on_error!r} is none of {', '.join(get_args(OnError))}"
        )
    if not isinstance(hook.priority, int):
        raise ConfigError(f"hook {name!r}: priority {hook.priority!r} must be a whole number")
    if not isinstance(hook.timeout_s, int | float) or not 0 < hook.timeout_s <= LONGEST_S:
        raise ConfigError(f"hook {name!r}: timeout_s {hook.timeout_s!r} must be above 0, at most {LONGEST_S}")
