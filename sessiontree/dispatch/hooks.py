"""The hooks of a tree: their order, and how the answers of those around a call are merged.

Order: plain hooks by priority, then guards by priority; the same priority in the order given. So what a guard
let pass, or a redactor cleaned, is changed by nobody but other guards. Source of the merge rules: seed 001,
section 9, and where it is silent the system it describes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeAlias, TypeVar

from sessiontree.contracts.errors import ExecutionError, ValidationError
from sessiontree.contracts.hooks import (
    HOST_POINTS,
    Block,
    CalledTool,
    Change,
    EndedCall,
    Hook,
    HookContext,
    KeptResult,
    Result,
    takes,
)
from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.messages import ToolResultMessage
from sessiontree.contracts.results import Artifact, ToolResult
from sessiontree.dispatch.hook_answers import (
    MOST_CHARS,
    MOST_REASON,
    json_of,
    reason_of,
    rewritten,
    withheld,
)
from sessiontree.dispatch.hook_run import HookError, HookFault, look_all, runs_at
from sessiontree.dispatch.session_hooks import SessionHooks
from sessiontree.dispatch.word_hooks import WordHooks

Validate: TypeAlias = Callable[[Mapping[str, JsonValue]], tuple[Any, Mapping[str, JsonValue]]]
R = TypeVar("R", KeptResult, ToolResultMessage)
Form: TypeAlias = Callable[[ToolResult], ToolResultMessage]


@dataclass(slots=True)
class Ruling:
    """What the hooks before a call came to."""

    arguments: Mapping[str, JsonValue]
    """What the call runs with."""
    params: Any = None
    """The same, validated; only where a hook changed something."""
    changed: bool = False
    block: str | None = None
    """Why it does not run."""
    message: ToolResultMessage | None = None
    """A hook's own result."""
    artifacts: tuple[Artifact, ...] = ()
    untrusted: bool = False
    """Whether that result is text from outside."""
    faults: list[HookFault] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Kept:
    """What the hooks made of a result."""

    result: KeptResult
    is_withheld: bool
    """Whether a guard failed, so that nothing of the result is left."""
    faults: tuple[HookFault, ...]


class HookChain:
    """The hooks of one tree, for one session at a time."""

    def __init__(self, hooks: Iterable[Hook]) -> None:
        ordered = sorted(hooks, key=lambda hook: (hook.on_error == "block", -hook.priority))
        self._before = runs_at(ordered, "before_tool_call")
        self._after = runs_at(ordered, "after_tool_call")
        self._persist = runs_at(ordered, "tool_result_persist")
        self.words = WordHooks(ordered)
        """Those around messages."""
        self.sessions = SessionHooks(ordered)
        """Those around spawns and sessions."""

    @classmethod
    def for_hosts(cls, hooks: Iterable[Hook]) -> Self | None:
        """Return the hooks of a tree as its hosts need them; None where none has to do with what they do."""
        given = tuple(hooks)
        return cls(given) if any(takes(hook, point) for hook in given for point in HOST_POINTS) else None

    @property
    def hanging(self) -> int:
        """How many runs took too long and have not come back."""
        runs = (*self._before, *self._after, *self._persist, *self.words.runs, *self.sessions.runs)
        return sum(run.hanging for run in runs)

    @property
    def rewrites(self) -> bool:
        """Whether anything rewrites results."""
        return bool(self._persist)

    async def before(self, call: CalledTool, ctx: HookContext, validate: Validate, form: Form) -> Ruling:
        """Ask whether and how a call may run.

        Args:
            call: The call, its arguments validated.
            ctx: Whose call it is.
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
        """Show a call that is over."""

        def own() -> tuple[object, ...]:
            return replace(ended, params=copy.deepcopy(ended.params), result=_own(ended.result)), ctx

        return await look_all(self._after, own)

    async def persist(self, kept: KeptResult) -> Kept:
        """Return what is kept of a result, or shown of a call that runs."""
        faults: list[HookFault] = []
        for run in self._persist:
            artifacts = tuple(replace(artifact) for artifact in kept.artifacts)
            try:
                kept = rewritten(kept, await run.run(replace(_own(kept), artifacts=artifacts)))
            except HookError as error:
                faults.append(run.fault(error))
                if run.guards:
                    return Kept(withheld(kept, run.name, str(error)), is_withheld=True, faults=tuple(faults))
        return Kept(kept, is_withheld=False, faults=tuple(faults))


def _own(result: R) -> R:
    """Return a copy of a result that shares nothing with it that can be changed."""
    content = tuple(replace(block) for block in result.content)
    return replace(result, content=content, details=copy.deepcopy(result.details))


def _take(ruling: Ruling, answer: object, validate: Validate, form: Form) -> None:
    """Merge one answer in.

    Raises:
        HookError: it is none, or does not fit.
    """
    if answer is None:
        return
    if isinstance(answer, Block):
        ruling.block = reason_of(answer)
    elif isinstance(answer, Change):
        if not isinstance(answer.params, Mapping):
            raise HookError(f"its params are {type(answer.params).__name__} instead of a mapping")
        changes, _ = json_of(answer.params, MOST_CHARS)
        assert isinstance(changes, dict)  # noqa: S101 - what a mapping becomes
        try:
            ruling.params, ruling.arguments = validate({**ruling.arguments, **changes})
        except ValidationError as error:
            raise HookError(f"what it changed does not fit: {error.message[:MOST_REASON]}") from error
        ruling.changed = True
    elif isinstance(answer, Result):
        _take_result(ruling, answer.result, form)
    else:
        raise HookError(f"it returned {type(answer).__name__} instead of None, Block, Change or Result")


def _take_result(ruling: Ruling, result: object, form: Form) -> None:
    if not isinstance(result, ToolResult):
        raise HookError(f"its result is {type(result).__name__} instead of a ToolResult")
    left = MOST_CHARS
    for part in (result.output, result.details, result.display):
        left -= json_of(part, left)[1]
    try:
        json_of([image.data for image in result.images], left)
        json_of([artifact.data for artifact in result.artifacts], left)
        ruling.message = form(result)
    except (ExecutionError, AttributeError, TypeError) as error:
        raise HookError(f"its result can't be kept: {str(error)[:MOST_REASON]}") from error
    ruling.artifacts = result.artifacts
    ruling.untrusted = bool(result.untrusted)
