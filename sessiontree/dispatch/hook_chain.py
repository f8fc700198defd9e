"""The hooks of a tree: their order, and how their answers are merged.

Plain hooks come first, by priority; guards follow, by priority. Hooks of equal priority keep the order in
which they were given. After a guard or a redactor, only other guards can change its result.
Source of the merge rules: seed 001, section 9; for what it does not define, the system it describes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from typing import Any, Self, TypeAlias, TypeVar

from sessiontree.contracts.errors import ExecutionError, ValidationError
from sessiontree.contracts.recorded.results import Artifact, ToolResult
from sessiontree.contracts.tools.hooks import (
    HOST_POINTS,
    TOLD_POINTS,
    BlockCall,
    CalledTool,
    ChangeArguments,
    EndedCall,
    EndedSession,
    Hook,
    HookContext,
    HookResult,
    HookText,
    KeptResult,
    Rewrite,
    Spawning,
    StartedSession,
    can_handle,
)
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.messages import ToolResultMessage
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.dispatch.hook_run import (
    MAX_CHARS,
    MAX_REASON,
    HookError,
    HookFault,
    HookRun,
    apply_rewrite,
    check_text,
    copy_json,
    explain_block,
    look_all,
    select_runs,
    withhold,
)


@dataclass(frozen=True, slots=True)
class Screened:
    """A message after its hooks."""

    text: str
    """The remaining text; if the message is withheld, a notice that says so."""
    block: str | None
    """Why the message is withheld; None = it is not."""
    faults: tuple[HookFault, ...]


class WordHooks:
    """The hooks for messages, in order."""

    def __init__(self, ordered: Iterable[Hook]) -> None:
        hooks = tuple(ordered)
        self._received = select_runs(hooks, "message_received")
        self._sending = select_runs(hooks, "message_sending")
        self._sent = select_runs(hooks, "message_sent")

    @property
    def runs(self) -> tuple[HookRun, ...]:
        """All runs of these hooks."""
        return (*self._received, *self._sending, *self._sent)

    @property
    def hears(self) -> bool:
        """Whether a hook rewrites incoming messages."""
        return bool(self._received)

    @property
    def screens(self) -> bool:
        """Whether a hook rewrites outgoing messages."""
        return bool(self._sending)

    @property
    def looks(self) -> bool:
        """Whether a hook observes sent messages."""
        return bool(self._sent)

    async def received(self, words: HookText, ctx: HookContext) -> Screened:
        """Return an incoming message as the session receives it; a withheld one becomes a notice."""
        kept = await _screen(self._received, words, ctx, may_block=False)
        if kept.block is None:
            return kept
        return replace(kept, text=f"(A message to you was withheld: {kept.block}.)")

    async def screen_outgoing(self, words: HookText, ctx: HookContext) -> Screened:
        """Return an outgoing message as it is sent; a withheld one becomes a notice."""
        kept = await _screen(self._sending, words, ctx, may_block=True)
        if kept.block is None:
            return kept
        return replace(kept, text=f"(What was said here is withheld: {kept.block}.)")

    async def sent(self, words: HookText, ctx: HookContext) -> tuple[HookFault, ...]:
        """Show the hooks a sent message."""
        return await look_all(self._sent, lambda: (replace(words), ctx))


async def _screen(runs: Iterable[HookRun], words: HookText, ctx: HookContext, *, may_block: bool) -> Screened:
    faults: list[HookFault] = []
    text = words.text
    for run in runs:
        try:
            answer = await run.run(replace(words, text=text), ctx)
            if may_block and isinstance(answer, BlockCall):
                return Screened("", explain_block(answer), tuple(faults))
            if not isinstance(answer, HookText):
                raise HookError(f"it returned {type(answer).__name__} instead of HookText")
            text = check_text(answer.text, "text", len(text))
        except HookError as error:
            faults.append(run.fault(error))
            if run.guards:
                return Screened("", f"hook {run.name!r} failed, {error}", tuple(faults))
    return Screened(text, None, tuple(faults))


MAX_LABEL_CHARS = 200


@dataclass(slots=True)
class SpawnRuling:
    """The decision of the hooks before a spawn."""

    task: str
    label: str | None
    block: str | None = None
    """Why the spawn is blocked; None = it is allowed."""
    faults: list[HookFault] = field(default_factory=list)


class SessionHooks:
    """The hooks for spawns and sessions, in order."""

    def __init__(self, ordered: Iterable[Hook]) -> None:
        hooks = tuple(ordered)
        self._spawning = select_runs(hooks, "subagent_spawning")
        self._told = {point: select_runs(hooks, point) for point in TOLD_POINTS}
        self.runs = (*self._spawning, *(run for runs in self._told.values() for run in runs))
        """All runs of these hooks."""

    @property
    def judges(self) -> bool:
        """Whether a hook decides about spawns."""
        return bool(self._spawning)

    @property
    def looks(self) -> bool:
        """Whether a hook observes sessions that begin and end."""
        return any(self._told.values())

    async def screen_spawn(self, spawning: Spawning, ctx: HookContext) -> SpawnRuling:
        """Ask the hooks whether a child may be spawned, and with what words; ``ctx`` is its parent's."""
        ruling = SpawnRuling(spawning.task, spawning.label)
        for run in self._spawning:
            seen = replace(spawning)
            if run.guards:
                seen = replace(spawning, task=ruling.task, label=ruling.label)
            try:
                _take_spawn(ruling, await run.run(seen, ctx), spawning)
            except HookError as error:
                ruling.faults.append(run.fault(error))
                if run.guards:
                    ruling.block = f"hook {run.name!r} has to let this spawn pass, but failed: {error}"
            if ruling.block is not None:
                break
        return ruling

    async def started(
        self, started: StartedSession, ctx: HookContext, parent: HookContext | None
    ) -> tuple[HookFault, ...]:
        """Show the hooks a new session, then the same session as its parent's child."""
        faults = await look_all(self._told["session_start"], lambda: (replace(started), ctx))
        if parent is None:
            return faults
        told = self._told["subagent_spawned"]
        return faults + await look_all(told, lambda: (replace(started), parent))

    async def ended(
        self, ended: EndedSession, ctx: HookContext, parent: HookContext | None
    ) -> tuple[HookFault, ...]:
        """Show the hooks an ended session, then the same session as its parent's child."""

        def own() -> EndedSession:
            return replace(ended, output=copy.deepcopy(ended.output))

        faults = await look_all(self._told["session_end"], lambda: (own(), ctx))
        if parent is None:
            return faults
        return faults + await look_all(self._told["subagent_ended"], lambda: (own(), parent))


def _take_spawn(ruling: SpawnRuling, answer: object, asked: Spawning) -> None:
    """Merge one answer into the ruling.

    Raises:
        HookError: the answer is not valid at this point.
    """
    if answer is None:
        return
    if isinstance(answer, BlockCall):
        ruling.block = explain_block(answer)
    elif isinstance(answer, Rewrite):
        task, label = ruling.task, ruling.label
        if answer.task is not None:
            task = check_text(answer.task, "task", len(asked.task))
        if answer.label is not None:
            label = check_text(answer.label, "label", 0)
            if len(label) > MAX_LABEL_CHARS:
                raise HookError(f"its label is longer than {MAX_LABEL_CHARS} characters")
        ruling.task, ruling.label = task, label
    else:
        raise HookError(f"it returned {type(answer).__name__} instead of None, BlockCall or Rewrite")


Validate: TypeAlias = Callable[[Mapping[str, JsonValue]], tuple[Any, Mapping[str, JsonValue]]]
R = TypeVar("R", KeptResult, ToolResultMessage)
Form: TypeAlias = Callable[[ToolResult], ToolResultMessage]


@dataclass(slots=True)
class Ruling:
    """The decision of the hooks before a call."""

    arguments: Mapping[str, JsonValue]
    """The arguments that the call runs with."""
    params: Any = None
    """The same, validated; set only if a hook changed something."""
    changed: bool = False
    block: str | None = None
    """Why the call is blocked; None = it runs."""
    message: ToolResultMessage | None = None
    """A result that a hook gave in place of the call's."""
    artifacts: tuple[Artifact, ...] = ()
    untrusted: bool = False
    """Whether that result is text from outside."""
    faults: list[HookFault] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Kept:
    """A result after its hooks."""

    result: KeptResult
    is_withheld: bool
    """Whether a guard failed, so that nothing of the result is kept."""
    faults: tuple[HookFault, ...]


class HookChain:
    """The hooks of one tree, for one session at a time."""

    def __init__(self, hooks: Iterable[Hook]) -> None:
        ordered = sorted(hooks, key=lambda hook: (hook.on_error == "block", -hook.priority))
        self._before = select_runs(ordered, "before_tool_call")
        self._after = select_runs(ordered, "after_tool_call")
        self._persist = select_runs(ordered, "tool_result_persist")
        self.words = WordHooks(ordered)
        """The hooks for messages."""
        self.sessions = SessionHooks(ordered)
        """The hooks for spawns and sessions."""

    @classmethod
    def for_hosts(cls, hooks: Iterable[Hook]) -> Self | None:
        """Return the hooks of a tree for its hosts; None if no hook runs at a point that hosts reach."""
        given = tuple(hooks)
        return cls(given) if any(can_handle(hook, point) for hook in given for point in HOST_POINTS) else None

    @property
    def hanging(self) -> int:
        """How many runs exceeded their time limit and have not returned."""
        runs = (*self._before, *self._after, *self._persist, *self.words.runs, *self.sessions.runs)
        return sum(run.hanging for run in runs)

    @property
    def rewrites(self) -> bool:
        """Whether a hook rewrites results."""
        return bool(self._persist)

    async def before(self, call: CalledTool, ctx: HookContext, validate: Validate, form: Form) -> Ruling:
        """Ask the hooks whether and how a call may run.

        Args:
            call: The call, its arguments validated.
            ctx: The context of the session that calls.
            validate: Checks changed arguments.
            form: Makes a message of a hook's own result.
        """
        ruling = Ruling(call.params)
        for run in self._before:
            params = ruling.arguments if run.guards else call.params
            seen = replace(call, params=copy.deepcopy(params))
            try:
                _take(ruling, await run.run(seen, ctx), validate, form)
            except HookError as error:
                ruling.faults.append(run.fault(error))
                if run.guards:
                    ruling.block = f"hook {run.name!r} has to let this call pass, but failed: {error}"
            if ruling.block is not None:
                break
        return ruling

    async def after(self, ended: EndedCall, ctx: HookContext) -> tuple[HookFault, ...]:
        """Show the hooks an ended call."""

        def own() -> tuple[object, ...]:
            return replace(ended, params=copy.deepcopy(ended.params), result=_own(ended.result)), ctx

        return await look_all(self._after, own)

    async def persist(self, kept: KeptResult) -> Kept:
        """Return a result as it is kept, or the progress of a running call as it is shown."""
        faults: list[HookFault] = []
        for run in self._persist:
            artifacts = tuple(replace(artifact) for artifact in kept.artifacts)
            try:
                kept = apply_rewrite(kept, await run.run(replace(_own(kept), artifacts=artifacts)))
            except HookError as error:
                faults.append(run.fault(error))
                if run.guards:
                    return Kept(withhold(kept, run.name, str(error)), is_withheld=True, faults=tuple(faults))
        return Kept(kept, is_withheld=False, faults=tuple(faults))


def _own(result: R) -> R:
    """Return a copy of a result that shares no mutable part with it."""
    content = tuple(replace(block) for block in result.content)
    return replace(result, content=content, details=copy.deepcopy(result.details))


def _take(ruling: Ruling, answer: object, validate: Validate, form: Form) -> None:
    """Merge one answer into the ruling.

    Raises:
        HookError: the answer is not valid at this point.
    """
    if answer is None:
        return
    if isinstance(answer, BlockCall):
        ruling.block = explain_block(answer)
    elif isinstance(answer, ChangeArguments):
        if not isinstance(answer.params, Mapping):
            raise HookError(f"its params are {type(answer.params).__name__} instead of a mapping")
        changes, _ = copy_json(answer.params, MAX_CHARS)
        assert isinstance(changes, dict)  # noqa: S101 - what a mapping becomes
        try:
            ruling.params, ruling.arguments = validate({**ruling.arguments, **changes})
        except ValidationError as error:
            raise HookError(f"what it changed does not fit: {error.message[:MAX_REASON]}") from error
        ruling.changed = True
    elif isinstance(answer, HookResult):
        _take_result(ruling, answer.result, form)
    else:
        raise HookError(
            f"it returned {type(answer).__name__} instead of None, BlockCall, ChangeArguments or HookResult"
        )


def _take_result(ruling: Ruling, result: object, form: Form) -> None:
    if not isinstance(result, ToolResult):
        raise HookError(f"its result is {type(result).__name__} instead of a ToolResult")
    left = MAX_CHARS
    for part in (result.output, result.details, result.display):
        left -= copy_json(part, left)[1]
    try:
        copy_json([image.data for image in result.images], left)
        copy_json([artifact.data for artifact in result.artifacts], left)
        ruling.message = form(result)
    except (ExecutionError, AttributeError, TypeError) as error:
        raise HookError(f"its result can't be kept: {str(error)[:MAX_REASON]}") from error
    ruling.artifacts = result.artifacts
    ruling.untrusted = bool(result.untrusted)
