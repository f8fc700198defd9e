"""A session's runner with hooks around its calls, its words and its ends."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sessiontree.contracts import stimuli
from sessiontree.contracts.hook_sessions import Speaker, Words
from sessiontree.contracts.hooks import EndedCall, KeptResult
from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.messages import (
    AssistantMessage,
    ReplyContent,
    TextContent,
    ThinkingContent,
    ToolResultMessage,
)
from sessiontree.contracts.session_facts import CallResolved, TurnReplied
from sessiontree.contracts.stimuli import Stimulus
from sessiontree.dispatch.dispatcher import Dispatcher
from sessiontree.dispatch.hook_run import HookFault
from sessiontree.dispatch.hooks import HookChain, Kept
from sessiontree.dispatch.phases import ImmediateOutcome, PreparedCall, RejectedCall
from sessiontree.dispatch.word_hooks import Screened
from sessiontree.runtime.frames import Adopt, Outcome
from sessiontree.runtime.hook_handles import HookedWatch, context_of
from sessiontree.runtime.model_requests import ModelRequestBuilder
from sessiontree.runtime.session_runner import SessionRunner, stimulus_of
from sessiontree.session import instructions as todo


class ScreenedRunner(SessionRunner):
    """Runs one session, its messages past the hooks of its tree."""

    def __init__(
        self,
        adopt: Adopt,
        dispatcher: Dispatcher,
        questioner: ModelRequestBuilder,
        watch: HookedWatch,
        report: Callable[[Outcome], None],
        now_ms: Callable[[], int],
        chain: HookChain,
    ) -> None:
        """Rebuild the session from its facts and say that it is adopted."""
        super().__init__(adopt, dispatcher, questioner, watch, report, now_ms)
        self._words = chain.words
        questioner.unseen = chain.words.screens
        self._context = context_of(adopt)
        self._lines = watch
        self._held: deque[tuple[str, Stimulus]] = deque()
        """What was fed and waits; the first is with the hooks, if any is."""
        self._screening: asyncio.Task[Any] | None = None
        self._observing: set[asyncio.Task[Any]] = set()
        watch.on_replied = self._spoke
        watch.on_fault = self._failed

    def feed(self, causes: tuple[str, ...], given: tuple[Stimulus, ...]) -> None:
        """Take stimuli in; returns before anything that takes time is done."""
        if self._over:
            return
        for cause, stimulus in zip(causes, given, strict=True):
            if isinstance(stimulus, stimuli.CancelAsked):
                self._inputs.append((cause, stimulus, True))
                self._let_through()
            elif self._held or self._is_words(stimulus):
                self._held.append((cause, stimulus))
            else:
                self._inputs.append((cause, stimulus, True))
        if self._held and self._screening is None:
            self._screening = self._do_beside(self._screen())
        self.start()

    def _is_words(self, stimulus: Stimulus) -> bool:
        if isinstance(stimulus, stimuli.Incoming):
            return self._words.hears
        said = isinstance(stimulus, stimuli.ModelAnswered | stimuli.ModelFailed)
        return said and self._words.screens

    def _let_through(self) -> None:
        if self._screening is not None:
            self._screening.cancel()
            self._screening = None
        self._inputs.extend((cause, stimulus, True) for cause, stimulus in self._held)
        self._held.clear()

    async def _screen(self) -> None:
        try:
            while self._held:
                cause, stimulus = self._held[0]
                screened = await self._screened(stimulus)
                self._held.popleft()
                self._inputs.append((cause, screened, True))
                self.start()
        except Exception as error:  # noqa: BLE001 - whatever fails here ends this session alone, as a typed outcome
            self._crashed(error)
            return
        self._screening = None

    def _ask_instant(self, turn: int) -> None:
        if not self._words.screens:
            super()._ask_instant(turn)
            return
        self._do_beside(self._screen_own(turn, self._questioner.ask(self.state, self._now_ms)))

    async def _screen_own(self, turn: int, answered: Stimulus) -> None:
        try:
            screened = await self._screened(answered)
        except Exception as error:  # noqa: BLE001 - whatever fails here ends this session alone, as a typed outcome
            self._crashed(error)
            return
        if not self._over:
            self._due.append((f"model:{turn}", screened))
            self.start()

    async def _screened(self, stimulus: Stimulus) -> Stimulus:
        """Return a stimulus with what the hooks left of its words."""
        if isinstance(stimulus, stimuli.Incoming) and self._words.hears:
            words = Words(stimulus.text, stimulus.origin, stimulus.message_id)
            kept = await self._words.received(words, self._context)
            self._blame(f"message:{stimulus.message_id}", kept.faults)
            return replace(stimulus, text=kept.text)
        if isinstance(stimulus, stimuli.ModelFailed) and self._words.screens and stimulus.said.strip():
            kept = await self._sending(stimulus.turn, stimulus.said, "model")
            return replace(stimulus, said=kept.text)
        if isinstance(stimulus, stimuli.ModelAnswered) and self._words.screens:
            message = await self._screened_reply(stimulus.turn, stimulus.message)
            if self._questioner.instant is None:
                self._lines.said(message.text)
            return replace(stimulus, message=message)
        return stimulus

    async def _screened_reply(self, turn: int, message: AssistantMessage) -> AssistantMessage:
        """Return a reply as hooks leave it: one text in the place of its first; its calls are its own.

        A thought with other words is the provider's no more, and loses its signature.
        """
        words = said = message.text
        if said.strip():
            words = (await self._sending(turn, said, "model")).text
        content: list[ReplyContent] = []
        is_first = True
        for block in message.content:
            if isinstance(block, TextContent) and words != said:
                content.extend([TextContent(words)] if is_first else [])
                is_first = False
            elif isinstance(block, ThinkingContent) and block.thinking.strip():
                kept = await self._sending(turn, block.thinking, "thought")
                if kept.block is None:
                    same = kept.text == block.thinking
                    content.append(block if same else ThinkingContent(kept.text))
            else:
                content.append(block)
        return replace(message, content=tuple(content))

    async def _sending(self, turn: int, text: str, speaker: Speaker) -> Screened:
        kept = await self._words.sending(Words(text, speaker), self._context)
        self._blame(f"model:{turn}", kept.faults)
        return kept

    def _blame(self, key: str, faults: tuple[HookFault, ...]) -> None:
        for fault in faults:
            self._failed(key, fault)

    def _failed(self, key: str, fault: HookFault) -> None:
        if not self._over:
            failed = stimuli.HookErrorReported(self._now_ms(), key, fault.hook, fault.point, fault.reason)
            self._due.append((f"hook:{key}", failed))
            self.start()

    def _spoke(self, fact: TurnReplied) -> None:
        """Show what the model said, as it is kept."""
        if self._words.looks and fact.message.text.strip():
            self._look(self._show(f"model:{fact.turn}", Words(fact.message.text, "model")))

    async def _show(self, key: str, words: Words) -> None:
        self._blame(key, await self._words.sent(words, self._context))

    def _look(self, work: Any) -> None:
        """Let hooks look at something nothing depends on."""
        task = asyncio.create_task(work)
        self._observing.add(task)
        task.add_done_callback(self._observing.discard)


_NO_WORDS = "they do not fit; in what is withheld, as a hook failed"


@dataclass(slots=True)
class _HookedCall:
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
        questioner: ModelRequestBuilder,
        watch: HookedWatch,
        report: Callable[[Outcome], None],
        now_ms: Callable[[], int],
        chain: HookChain,
    ) -> None:
        """Rebuild the session from its facts and say that it is adopted."""
        super().__init__(adopt, dispatcher, questioner, watch, report, now_ms, chain)
        self._chain = chain
        self._calls = {
            key: _HookedCall(call.arguments or call.call.arguments) for key, call in self.state.calls.items()
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
        self._calls[key] = _HookedCall(instruction.call.arguments)
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
        call = self._calls.setdefault(take.key, _HookedCall({}))
        waited_s = (self._now_ms() - self.state.calls[take.key].asked_at_ms) / 1e3
        call.started = time.monotonic() - waited_s
        super()._take_answer(take)

    async def _run(
        self, execute: todo.ExecuteCall, task: asyncio.Task[Any] | None = None
    ) -> ImmediateOutcome | None:
        call = self._calls.setdefault(execute.key, _HookedCall(execute.arguments))
        call.arguments, call.started = execute.arguments, time.monotonic()
        self._lines.open_line(execute.key, self.state.calls[execute.key].call.id, execute.tool)
        return await super()._run(execute, task)

    def _finished(self, outcome: ImmediateOutcome) -> None:
        """Take an outcome past the hooks; the machine hears of it afterwards."""
        call = self._calls.setdefault(outcome.key, _HookedCall({}))
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
