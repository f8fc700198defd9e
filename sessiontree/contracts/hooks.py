"""Hooks: what the owner of a tree may put around every tool call, and what a hook may answer.

A hook given to a tree runs in the session's host. It may forbid a call, change what it asks for, answer in
the tool's place, look at what came of it, and rewrite what is kept of it. It can't widen a right: changed
parameters are validated and judged again. Source: seed 001, section 9; seed 000, section 1.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias, get_args

from sessiontree.contracts.codec import Outcome
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.messages import ImageContent, TextContent, ToolResultMessage
from sessiontree.contracts.results import Artifact, ToolResult

HookPoint: TypeAlias = Literal["before_tool_call", "after_tool_call", "tool_result_persist"]
OnError: TypeAlias = Literal["run", "block"]
POINTS: tuple[HookPoint, ...] = get_args(HookPoint)
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
    """The call does not run; the model reads why."""

    reason: str = "a hook forbids this call"


@dataclass(frozen=True, slots=True)
class Change:
    """The call runs with these parameters laid over its own; they are validated and judged again."""

    params: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Result:
    """The call does not run; this is its result."""

    result: ToolResult


HookAnswer: TypeAlias = Block | Change | Result | None


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
    """``run``: when it fails, the call goes on without it. ``block``: it is a guard: when it fails, the call
    does not run, the result is not kept. Guards come after all other hooks."""
    timeout_s: float = 5.0
    """Longest run at one point."""

    def before_tool_call(self, call: CalledTool, ctx: HookContext) -> HookAnswer | Awaitable[HookAnswer]:
        """Answer None to let the call run as it is.

        Plain hooks all see the call as it was asked for; changes are laid over each other, the later one wins
        where both name a parameter. Guards see what came of that. The first Block ends it; a Block outdoes a
        Result, a Result outdoes a Change, and of two Results the later one wins.
        """
        raise NotImplementedError

    def after_tool_call(self, ended: EndedCall, ctx: HookContext) -> Awaitable[None] | None:
        """See a call that is over; comes once for each, the blocked, denied and cancelled ones among them."""
        raise NotImplementedError

    def tool_result_persist(self, result: KeptResult) -> KeptResult | Awaitable[KeptResult]:
        """Return what is to be kept instead; each hook sees what the ones before it returned.

        Results, errors, words about arguments that do not fit, and progress all come by here.
        """
        raise NotImplementedError


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
