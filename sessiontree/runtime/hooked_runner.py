"""An adopted session whose tree has hooks: the same runner, with every call taken past them.

Before-hooks are asked for one call after another, in the order the model gave them. A result that arises here
is shown to the after-hooks, then rewritten, then told to the machine; one the machine itself decided on
(skipped, denied by an approver, given up) holds nothing but the runtime's words and is shown alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sessiontree.contracts.hooks import EndedCall, KeptResult
from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.messages import AssistantMessage, TextContent, ToolResultMessage
from sessiontree.contracts.session_facts import CallResolved
from sessiontree.dispatch.dispatcher import Dispatcher
from sessiontree.dispatch.hook_run import HookFault
from sessiontree.dispatch.hooks import HookChain, Kept
from sessiontree.dispatch.phases import ImmediateOutcome, PreparedCall, RejectedCall
from sessiontree.runtime.frames import Adopt, Outcome
from sessiontree.runtime.hooked_watch import HookedWatch
from sessiontree.runtime.hooked_words import ScreenedRunner
from sessiontree.runtime.preparing import stimulus_of
from sessiontree.runtime.questions import Questioner
from sessiontree.session import instructions as todo

_NO_WORDS = "they do not fit; in what is withheld, as a hook failed"


@dataclass(slots=True)
class _Call:
    """What hooks are told of a call that has no result yet."""

    arguments: Mapping[str, JsonValue]
    started: float | None = None
    observed: bool = False
    """Whether the after-hooks were told."""


class HookedRunner(ScreenedRunner):
    """Runs one session, its messages and calls past the hooks of its tree."""

    def __init__(
        self,
        adopt: Adopt,
        dispatcher: Dispatcher,
        questioner: Questioner,
        watch: HookedWatch,
        report: Callable[[Outcome], None],
        now_ms: Callable[[], int],
        chain: HookChain,
    ) -> None:
        """Rebuild the session from its facts and say that it is adopted."""
        super().__init__(adopt, dispatcher, questioner, watch, report, now_ms, chain)
        self._chain = chain
        self._calls = {
            key: _Call(call.arguments or call.call.arguments) for key, call in self.state.calls.items()
        }
        self._ahead: dict[str, asyncio.Task[Any] | None] = {}
        """Calls the before-hooks are asked about, or will be."""
        self._order = asyncio.Lock()
        self._settling: set[str] = set()
        """Calls that are over and whose result is on its way past the hooks."""
        watch.on_resolved = self._resolved

    @property
    def lingers(self) -> bool:
        """Whether anything runs: what was let go may not heed it."""
        return bool(super().lingers or self._observing or self._chain.hanging)

    def _prepare(self, instruction: todo.PrepareCall) -> None:
        key = instruction.key
        if key in self._ahead:
            return
        prepared = self._prepared.get(key)
        if prepared is not None:  # it was held back after the hooks had let it pass
            self._due.append((f"call:{key}", stimulus_of(prepared, self._now_ms())))
            return
        self._watch.began(key, instruction.call)
        self._calls[key] = _Call(instruction.call.arguments)
        self._ahead[key] = None
        self._do_beside(self._pass(instruction))

    async def _pass(self, instruction: todo.PrepareCall) -> None:
        key, call = instruction.key, instruction.call
        if key not in self._ahead:
            return
        self._ahead[key] = asyncio.current_task()
        try:
            async with self._order:
                prepared, faults = await self._dispatcher.prepare_hooked(
                    key, call, self._chain, self._context, instruction.asked_by, self.state.taint
                )
                if isinstance(prepared, RejectedCall):
                    prepared, more = await self._reworded(prepared, call.id)
                    faults.extend(more)
        except Exception as error:  # noqa: BLE001 - whatever fails here ends this session alone, as a typed outcome
            self._crashed(error)
            return
        if self._ahead.pop(key, None) is None or self._over:
            return
        for fault in faults:
            self._failed(key, fault)
        if isinstance(prepared, ImmediateOutcome):
            self._finished(prepared)
            return
        if isinstance(prepared, PreparedCall):
            self._prepared[key] = prepared
            self._calls[key].arguments = prepared.arguments
        self._due.append((f"call:{key}", stimulus_of(prepared, self._now_ms())))
        self.start()

    async def _reworded(
        self, rejected: RejectedCall, call_id: str
    ) -> tuple[RejectedCall, tuple[HookFault, ...]]:
        """Take the words about arguments that do not fit past the hooks: they and the field may quote."""
        content = (TextContent(rejected.message),)
        words = KeptResult(call_id, rejected.tool, content, rejected.field, is_error=True)
        kept = await self._chain.persist(words)
        if kept.is_withheld:
            return replace(rejected, message=_NO_WORDS, field=None), kept.faults
        texts = [block.text for block in kept.result.content if isinstance(block, TextContent)]
        details = kept.result.details
        field = details if isinstance(details, str) else None
        return replace(rejected, message="\n".join(texts), field=field), kept.faults

    def _abort(self, instruction: todo.AbortCalls) -> None:
        for key in instruction.keys:
            task = self._ahead.pop(key, None)
            if task is not None:
                task.cancel()
        keys = tuple(key for key in instruction.keys if key not in self._settling)
        super()._abort(replace(instruction, keys=keys))

    def _take_answer(self, take: todo.TakeAnswer) -> None:
        call = self._calls.setdefault(take.key, _Call({}))
        waited_s = (self._now_ms() - self.state.calls[take.key].asked_at_ms) / 1e3
        call.started = time.monotonic() - waited_s
        super()._take_answer(take)

    async def _run(
        self, execute: todo.ExecuteCall, task: asyncio.Task[Any] | None = None
    ) -> ImmediateOutcome | None:
        call = self._calls.setdefault(execute.key, _Call(execute.arguments))
        call.arguments, call.started = execute.arguments, time.monotonic()
        self._lines.open_line(execute.key, self.state.calls[execute.key].call.id, execute.tool)
        return await super()._run(execute, task)

    def _finished(self, outcome: ImmediateOutcome) -> None:
        """Take an outcome past the hooks; the machine hears of it afterwards."""
        call = self._calls.setdefault(outcome.key, _Call({}))
        duration_s = 0.0 if call.started is None else time.monotonic() - call.started
        call.observed = True
        self._settling.add(outcome.key)
        self._lines.close_line(outcome.message.tool_call_id)
        ended = _ended(outcome, outcome.message, call.arguments, duration_s * 1e3)
        self._do_beside(self._settle(outcome, ended))

    async def _settle(self, outcome: ImmediateOutcome, ended: EndedCall) -> None:
        key = outcome.key
        try:
            faults = await self._chain.after(ended, self._context)
            kept = await self._chain.persist(_kept(outcome))
        except Exception as error:  # noqa: BLE001 - whatever fails here ends this session alone, as a typed outcome
            self._crashed(error)
            return
        if self._over:
            return
        self._settling.discard(key)
        for fault in (*faults, *kept.faults):
            self._failed(key, fault)
        super()._finished(_rewritten(outcome, kept))
        self.start()

    def _resolved(self, fact: CallResolved) -> None:
        """Show the after-hooks a call that had its result from the machine."""
        call = self._calls.pop(fact.key, None)
        if call is not None and call.observed:
            return
        arguments = self._asked(fact.message.tool_call_id) if call is None else call.arguments
        self._look(self._observe(fact.key, _ended(fact, fact.message, arguments, 0.0)))

    def _asked(self, call_id: str) -> Mapping[str, JsonValue]:
        """Return what the newest reply asked for under an id."""
        for message in reversed(self.state.transcript):
            if isinstance(message, AssistantMessage):
                return {each.id: each.arguments for each in message.tool_calls}.get(call_id, {})
        return {}

    async def _observe(self, key: str, ended: EndedCall) -> None:
        self._blame(key, await self._chain.after(ended, self._context))


def _ended(
    made: ImmediateOutcome | CallResolved,
    message: ToolResultMessage,
    arguments: Mapping[str, JsonValue],
    duration_ms: float,
) -> EndedCall:
    return EndedCall(
        message.tool_name, arguments, message, message.is_error, made.outcome, round(duration_ms, 3)
    )


def _kept(outcome: ImmediateOutcome) -> KeptResult:
    message = outcome.message
    return KeptResult(
        message.tool_call_id,
        message.tool_name,
        message.content,
        message.details,
        message.is_error,
        outcome.artifacts,
    )


def _rewritten(outcome: ImmediateOutcome, kept: Kept) -> ImmediateOutcome:
    result = kept.result
    message = replace(
        outcome.message, content=result.content, details=result.details, is_error=result.is_error
    )
    name = "error" if kept.is_withheld and outcome.outcome == "ok" else outcome.outcome
    return ImmediateOutcome(outcome.key, name, message, result.artifacts, untrusted=outcome.untrusted)
