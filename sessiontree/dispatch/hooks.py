"""The hooks of a tree around the calls of one session: their order, and how their answers are merged.

Order: plain hooks by priority, then guards by priority; the same priority in the order given. So what a guard
let pass, or a redactor cleaned, is changed by nobody but other guards. Source of the merge rules: seed 001,
section 9, and where it is silent the system it describes.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from sessiontree.contracts.errors import ExecutionError, ValidationError
from sessiontree.contracts.hooks import (
    Block,
    CalledTool,
    Change,
    EndedCall,
    Hook,
    HookContext,
    HookPoint,
    KeptResult,
    Result,
    takes,
)
from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.messages import ToolResultMessage
from sessiontree.contracts.results import Artifact, ToolResult
from sessiontree.dispatch.hook_answers import MOST_CHARS, json_of, rewritten, withheld
from sessiontree.dispatch.hook_run import HookError, HookFault, HookRun

MOST_REASON = 2_000

Validate: TypeAlias = Callable[[Mapping[str, JsonValue]], tuple[Any, Mapping[str, JsonValue]]]
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
        """Put them in order."""
        self._hooks = sorted(hooks, key=lambda hook: (hook.on_error == "block", -hook.priority))
        self._before = self._at("before_tool_call")
        self._after = self._at("after_tool_call")
        self._persist = self._at("tool_result_persist")

    def _at(self, point: HookPoint) -> list[HookRun]:
        return [HookRun(hook, point) for hook in self._hooks if takes(hook, point)]

    @property
    def hanging(self) -> int:
        """How many runs took too long and have not come back."""
        return sum(run.hanging for run in (*self._before, *self._after, *self._persist))

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
                ruling.faults.append(HookFault(run.name, "before_tool_call", str(error)))
                if run.guards:
                    ruling.block = f"hook {run.name!r} has to let this call pass, but failed: {error}"
            if ruling.block is not None:
                break
        return ruling

    async def after(self, ended: EndedCall, ctx: HookContext) -> tuple[HookFault, ...]:
        """Show a call that is over; all at once, as nothing depends on them."""
        async with asyncio.TaskGroup() as group:
            looks = [group.create_task(_look(run, ended, ctx)) for run in self._after]
        faults = [look.result() for look in looks]
        return tuple(fault for fault in faults if fault is not None)

    async def persist(self, kept: KeptResult) -> Kept:
        """Return what is kept of a result, or shown of a call that runs."""
        faults: list[HookFault] = []
        for run in self._persist:
            seen = replace(kept, details=copy.deepcopy(kept.details))
            try:
                answer = await run.run(seen)
                kept = kept if answer is seen and seen.details == kept.details else rewritten(kept, answer)
            except HookError as error:
                faults.append(HookFault(run.name, "tool_result_persist", str(error)))
                if run.guards:
                    return Kept(withheld(kept, run.name, str(error)), is_withheld=True, faults=tuple(faults))
        return Kept(kept, is_withheld=False, faults=tuple(faults))


async def _look(run: HookRun, ended: EndedCall, ctx: HookContext) -> HookFault | None:
    result = replace(ended.result, details=copy.deepcopy(ended.result.details))
    own = replace(ended, params=copy.deepcopy(ended.params), result=result)
    try:
        answer = await run.run(own, ctx)
        if answer is not None:
            raise HookError(f"it returned {type(answer).__name__}; it may only look")
    except HookError as error:
        return HookFault(run.name, "after_tool_call", str(error))
    return None


def _take(ruling: Ruling, answer: object, validate: Validate, form: Form) -> None:
    """Merge one answer in.

    Raises:
        HookError: it is none, or does not fit.
    """
    if answer is None:
        return
    if isinstance(answer, Block):
        if not isinstance(answer.reason, str):
            raise HookError(f"its reason is {type(answer.reason).__name__} instead of text")
        ruling.block = answer.reason[:MOST_REASON]
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
