"""Hooks: code that the owner of a tree runs around calls, messages, spawns and sessions, and its answers.

A hook may block a call, change its arguments, answer in place of the tool, observe the result, and rewrite
the result before it is kept. It may rewrite messages, withhold outgoing ones, refuse or reword a spawn, and
observe sessions that begin and end. It can't widen a right: everything that it changes is checked again.
Source: seed 001, section 9; seed 000, section 1.

Hooks on what happens in a session run in that session's host. Hooks on the creating program's requests, and
on sessions that begin and end (read from the journal), run in the program. No hook runs in the supervisor.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Annotated, ClassVar, Literal, TypeAlias, TypedDict, get_args

from pydantic import Field

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.facts.tree_config import Via
from sessiontree.contracts.kinds import SessionKind, SessionStatus
from sessiontree.contracts.recorded.codec import Outcome
from sessiontree.contracts.recorded.results import Artifact, ToolResult
from sessiontree.contracts.settings.given_values import Choice, Give, take_members
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.messages import ImageContent, TextContent, ToolResultMessage
from sessiontree.contracts.values.quick_dataclass import dataclass

Speaker: TypeAlias = Literal[
    "user", "parent", "child", "notice", "canvas", "cron", "model", "thought", "channel"
]
"""Origin of a text: the sender of a message; the session's model, which says or thinks it; or a tool that
sends it on a channel."""


@dataclass(frozen=True, slots=True)
class HookText:
    """A message in transit; rewrite it with ``dataclasses.replace(words, text=…)``.

    Only the text of the returned value is used.
    """

    text: str
    """Never blank."""
    speaker: Speaker
    message_id: str = ""
    """Id of a message to the session; empty for outgoing text."""


@dataclass(frozen=True, slots=True)
class Spawning:
    """A child that a session, or the creating program on its behalf, is about to request."""

    kind: SessionKind
    task: str
    label: str | None
    agent: str | None
    """None = the parent's."""
    via: Via


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The child is requested with this task or label; None keeps the original."""

    task: str | None = None
    label: str | None = None


@dataclass(frozen=True, slots=True)
class StartedSession:
    """A session that was created."""

    session_id: str
    kind: SessionKind
    agent_id: str
    task: str
    """Empty for Main."""
    label: str | None
    via: Via


@dataclass(frozen=True, slots=True)
class EndedSession:
    """A session that has reached its final state."""

    session_id: str
    status: SessionStatus
    summary: str
    """Its final message, or why it ended."""
    output: JsonValue
    forced: bool
    """Whether it was ended without its own wrap-up."""


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
"""What happens if a hook fails: work continues without it, or what it guards is blocked."""
POINTS: tuple[HookPoint, ...] = get_args(HookPoint)
CALL_POINTS: tuple[CallPoint, ...] = get_args(CallPoint)
TOLD_POINTS: tuple[HookPoint, ...] = ("subagent_spawned", "subagent_ended", "session_start", "session_end")
"""Points that are reported to the program from the journal."""
HOST_POINTS: tuple[HookPoint, ...] = tuple(point for point in POINTS if point not in TOLD_POINTS)
"""Points that hosts handle."""
MAX_S = 600.0


@dataclass(frozen=True, slots=True)
class HookContext:
    """The session that a hook runs for."""

    session_id: str
    agent_id: str
    kind: SessionKind


@dataclass(frozen=True, slots=True)
class CalledTool:
    """A call that is about to run: its arguments are valid, and the session may make it."""

    call_id: str
    """The id that the model gave the call."""
    tool: str
    params: Mapping[str, JsonValue]
    """A copy of the arguments, under the tool's own parameter names."""


@dataclass(frozen=True, slots=True)
class EndedCall:
    """A call that has ended, with any outcome."""

    tool: str
    params: Mapping[str, JsonValue]
    """The arguments it ran with; the requested arguments if it did not run."""
    result: ToolResultMessage
    """The result before ``tool_result_persist``, not redacted yet."""
    is_error: bool
    outcome: Outcome
    duration_ms: float
    """How long the tool ran, in milliseconds; 0 if it did not run."""


@dataclass(frozen=True, slots=True)
class KeptResult:
    """The result of a call, or the progress of a running one; rewrite it with ``dataclasses.replace``.

    Only ``content``, ``details`` and ``artifacts`` of the returned value are used. A hook may remove images,
    but not add any.
    """

    call_id: str
    tool: str
    content: tuple[TextContent | ImageContent, ...]
    """Content for the model; for a failed call, one text with the JSON envelope. Empty for progress."""
    details: JsonValue
    """Data for journal and screen: ``{display, details}`` of a result, or one progress value."""
    is_error: bool
    artifacts: tuple[Artifact, ...] = ()


@dataclass(frozen=True, slots=True)
class BlockCall:
    """The call does not run, the message does not go out, the child is not spawned; the model reads why."""

    reason: str = "a hook forbids this"


@dataclass(frozen=True, slots=True)
class ChangeArguments:
    """The call runs with these parameters merged over its own; the result is validated and checked again."""

    params: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class HookResult:
    """The call does not run; this is its result."""

    result: ToolResult


HookAnswer: TypeAlias = BlockCall | ChangeArguments | HookResult | None
"""What a hook answers before a call; None = the call runs unchanged."""
SpawnAnswer: TypeAlias = BlockCall | Rewrite | None
"""What a hook answers before a spawn; None = the request stays as it is."""


class Hook:
    """Base of every hook: a subclass sets the class variables and defines methods for its points.

    Each method may be ``async def`` or a plain function; a plain one runs in its own thread. An async one
    must not block the event loop. A hook fails if it raises, exceeds ``timeout_s``, or returns an invalid or
    too large answer. The session then continues, and the fact ``hook_failed`` records the failure.

    In each method ``ctx`` names the session, and the first argument is what happens there: ``call`` or
    ``ended``, a call before and after it runs; ``words``, a message; ``spawning``, a request for a child;
    ``started``, ``ended`` or ``child``, a session that begins or ends.
    """

    name: ClassVar[str] = ""
    """Name in facts and messages; empty = the name of the class."""
    priority: int = 0
    """Hooks with a higher priority run first."""
    on_error: OnError = "run"
    """``run``: if it fails, work continues without it. ``block``: it is a guard; if it fails, the call does
    not run, the result or message is withheld, or the child is not spawned. Guards run after all other
    hooks."""
    timeout_s: float = 5.0
    """Time limit at one point, in seconds."""

    def before_tool_call(self, call: CalledTool, ctx: HookContext) -> HookAnswer | Awaitable[HookAnswer]:
        """Return None to let the call run unchanged.

        Hooks that are not guards all see the original call. Their changes are merged; if two change the same
        parameter, the later one wins. Guards see the merged call. The first BlockCall ends the sequence.
        A BlockCall overrides a HookResult, a HookResult overrides a ChangeArguments, and the later of two
        HookResults wins.
        """
        return None

    def after_tool_call(self, ended: EndedCall, ctx: HookContext) -> Awaitable[None] | None:
        """Observe a call that has ended; runs once per call, also if it was blocked, denied or cancelled."""
        return None

    def tool_result_persist(self, result: KeptResult) -> KeptResult | Awaitable[KeptResult]:
        """Return the result to keep; each hook sees the value that the previous one returned.

        This point handles results, errors, messages about invalid arguments, and progress.
        """
        return result

    def message_received(self, words: HookText, ctx: HookContext) -> HookText | Awaitable[HookText]:
        """Return the message that the session receives; each hook sees what the previous one returned.

        Every message to a session passes this point before it is stored, whether it is from the creating
        program, a person or a child. A child's task passes ``subagent_spawning`` instead.
        """
        return words

    def message_sending(
        self, words: HookText, ctx: HookContext
    ) -> HookText | BlockCall | Awaitable[HookText | BlockCall]:
        """Return the text to send, or a BlockCall; each hook sees the value that the previous one returned.

        The text and the thoughts of each reply of the session's model pass this point before they are stored
        (its calls have their own hooks), and so do messages that a tool sends on a channel. The session's
        result is read from the remaining text. The reason replaces a blocked reply, a blocked thought is
        removed, and a tool whose message is blocked gets an error.
        """
        return words

    def message_sent(self, words: HookText, ctx: HookContext) -> Awaitable[None] | None:
        """Observe the text that was sent."""
        return None

    def subagent_spawning(self, spawning: Spawning, ctx: HookContext) -> SpawnAnswer | Awaitable[SpawnAnswer]:
        """Return None to leave the request for a child unchanged; ``ctx`` is its parent's.

        Answers are merged as in :meth:`before_tool_call`; the first BlockCall ends the sequence. Rules and
        limits apply to the merged request. Hooks on a tool's spawn run in its session's host; hooks on the
        program's spawn run in the program.
        """
        return None

    def subagent_spawned(self, child: StartedSession, ctx: HookContext) -> Awaitable[None] | None:
        """Observe a new child; ``ctx`` is its parent's. Runs in the program that opened the tree."""
        return None

    def subagent_ended(self, child: EndedSession, ctx: HookContext) -> Awaitable[None] | None:
        """Observe a child that has ended; ``ctx`` is its parent's. Runs in that program."""
        return None

    def session_start(self, started: StartedSession, ctx: HookContext) -> Awaitable[None] | None:
        """Observe a new session, including Main. Runs in that program."""
        return None

    def session_end(self, ended: EndedSession, ctx: HookContext) -> Awaitable[None] | None:
        """Observe a session that has ended, including Main. Runs in that program."""
        return None


def get_hook_name(hook: Hook) -> str:
    """Return the name of a hook."""
    return hook.name or type(hook).__name__


def can_handle(hook: Hook, point: HookPoint) -> bool:
    """Return whether a hook handles a point."""
    return getattr(type(hook), point) is not getattr(Hook, point)


class _HookMembers(TypedDict, total=False):
    name: Annotated[str, Field(max_length=64), Give("text of at most 64 characters")]
    on_error: Annotated[OnError, Choice()]
    priority: Annotated[int, Give("a whole number")]
    timeout_s: Annotated[float, Field(gt=0, le=MAX_S), Give(f"seconds above 0, at most {MAX_S}")]


def check_hook(hook: Hook) -> None:
    """Refuse an invalid hook before any session exists.

    Raises:
        ConfigError: says what is wrong and how to fix it.
    """
    if not isinstance(hook, Hook):
        raise ConfigError(f"hooks: give objects of a subclass of Hook, not {hook!r}")
    name = get_hook_name(hook)
    members = {member: getattr(hook, member) for member in _HookMembers.__optional_keys__}
    take_members(members | {"name": name}, _HookMembers, f"hook {type(hook).__name__}: ")
    if not any(can_handle(hook, point) for point in POINTS):
        raise ConfigError(f"hook {name!r}: takes part in nothing; define one of {', '.join(POINTS)}")
