"""Interceptors at the four points of a session's runner; the hooks of a tree are one of them.

The points are ``admit`` (a message to the session, a reply of its model), ``prepare`` (a call that its model
asked for), ``settle`` (a call's outcome) and ``observe`` (a fact). Hooks also judge what a session sends on
its channel, its spawns and its progress: its handles and its watch pass them through the hooks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

from sessiontree.contracts.errors import ExecutionError, PermissionDenied
from sessiontree.contracts.facts.session_facts import CallResolved, SessionFact, TurnReplied
from sessiontree.contracts.facts.stimuli import Incoming, ModelAnswered, ModelFailed, SendMode, Stimulus
from sessiontree.contracts.handles.ports import Channel, SessionRow, Sessions, SpawnRequest
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.recorded.approvals import RejectedCall
from sessiontree.contracts.recorded.codec import Outcome
from sessiontree.contracts.reports.events import TextDelta
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.contracts.tools.context import SessionRights
from sessiontree.contracts.tools.hooks import EndedCall, HookContext, HookText, KeptResult, Spawning, Speaker
from sessiontree.contracts.values.jsonable import JsonValue, to_json_value
from sessiontree.contracts.values.messages import (
    AssistantMessage,
    ImageContent,
    ReplyContent,
    TextContent,
    ThinkingContent,
    ToolResultMessage,
)
from sessiontree.dispatch.dispatcher import Dispatcher
from sessiontree.dispatch.hook_chain import HookChain, Screened, SessionHooks, WordHooks
from sessiontree.dispatch.hook_run import HookFault
from sessiontree.dispatch.results import ImmediateOutcome, PreparedCall
from sessiontree.runtime.rights.session_rights import Facades, Link
from sessiontree.runtime.runner.call_watch import CallWatch, ToolReport
from sessiontree.runtime.runner.hooked_canvas import HookedCanvas
from sessiontree.runtime.transport.progress import ProgressHub
from sessiontree.session.instructions import PrepareCall
from sessiontree.session.state import SessionState

CallChecked: TypeAlias = PreparedCall | RejectedCall | ImmediateOutcome
Blame: TypeAlias = Callable[[str, HookFault], None]
"""Called with the key of what a hook failed at, and the failure."""


class Interceptor(Protocol):
    """Runs at the points of one session's runner. An exception of any method fails the session."""

    @property
    def has_leftover_work(self) -> bool:
        """Whether any of its work still runs that the end of the session does not stop."""
        ...

    def attach(self, state: SessionState, blame: Blame) -> None:
        """Bind the session's state, to be read only, and the callback for failures; called once and first."""
        ...

    def must_admit(self, stimulus: Stimulus) -> bool:
        """Whether a stimulus has to pass ``admit``; the others pass at once."""
        ...

    async def admit(self, stimulus: Stimulus) -> Stimulus:
        """Return the stimulus that the session's machine receives in place of this one."""
        ...

    async def prepare(self, asked: PrepareCall, checked: CallChecked, taint: str) -> CallChecked:
        """Return what replaces a checked call; ``taint`` is the source of the session's untrusted text."""
        ...

    async def settle(self, outcome: ImmediateOutcome, ran_s: float) -> ImmediateOutcome:
        """Return the outcome that the session's machine receives for a call that ran for ``ran_s`` s."""
        ...

    def observe(self, fact: SessionFact) -> None:
        """Observe a fact, except the result of a call that passed ``settle``. Returns at once."""
        ...


_NO_WORDS = "they do not fit; the details are withheld, because a hook failed"


class HookInterceptor:
    """Passes the messages, calls and outcomes of one session through the hooks of its tree.

    Args:
        chain: The tree's hooks.
        context: The session's context.
        dispatcher: Checks again what hooks changed.
        watch: Shows the replies and the progress that hooks let pass.
        shows_replies: Whether this interceptor alone shows the replies of the session's model.
    """

    def __init__(
        self,
        chain: HookChain,
        context: HookContext,
        dispatcher: Dispatcher,
        watch: ScreenedWatch,
        *,
        shows_replies: bool,
    ) -> None:
        self._chain = chain
        self._words = chain.words
        self._context = context
        self._dispatcher = dispatcher
        self._watch = watch
        self._shows_replies = shows_replies
        self._arguments: dict[str, Mapping[str, JsonValue]] = {}
        """Arguments of calls without a result, by key; those that the model asked for until the call runs."""
        self._looks: set[asyncio.Task[None]] = set()

    def attach(self, state: SessionState, blame: Blame) -> None:
        """Bind the session's state and the callback for failures of hooks."""
        self._state = state
        self._blame = self._watch.blame = blame
        for key, call in state.calls.items():
            self._arguments[key] = (call.checked or call.call).arguments

    @property
    def has_leftover_work(self) -> bool:
        """Whether a hook still observes something, or hangs."""
        return bool(self._looks or self._chain.hanging)

    def must_admit(self, stimulus: Stimulus) -> bool:
        """Whether hooks rewrite the words of a stimulus."""
        match stimulus:
            case Incoming():
                return self._words.hears
            case ModelAnswered() | ModelFailed():
                return self._words.screens
        return False

    async def admit(self, stimulus: Stimulus) -> Stimulus:
        """Return a stimulus with its text as the hooks leave it."""
        match stimulus:
            case Incoming() if self._words.hears:
                words = HookText(stimulus.text, stimulus.origin, stimulus.message_id)
                kept = await self._words.received(words, self._context)
                self._blame_all(f"message:{stimulus.message_id}", kept.faults)
                return replace(stimulus, text=kept.text)
            case ModelFailed() if self._words.screens and stimulus.said.strip():
                kept = await self._screen_text(stimulus.turn, stimulus.said, "model")
                return replace(stimulus, said=kept.text)
            case ModelAnswered() if self._words.screens:
                message = await self._screen(stimulus.turn, stimulus.message)
                if self._shows_replies and self._state.compacting is None:
                    self._watch.said(message.text)
                return replace(stimulus, message=message)
        return stimulus

    async def _screen(self, turn: int, message: AssistantMessage) -> AssistantMessage:
        """Return a reply as hooks leave it: one text in place of its first; its calls are unchanged.

        A thought whose text changed is no longer the provider's and loses its signature. A reply that changed
        also loses the provider's form of it.
        """
        words = said = message.text
        if said.strip():
            words = (await self._screen_text(turn, said, "model")).text
        content: list[ReplyContent] = []
        is_first = True
        for block in message.content:
            if isinstance(block, TextContent) and words != said:
                content.extend([TextContent(words)] if is_first else [])
                is_first = False
            elif isinstance(block, ThinkingContent) and block.thinking.strip():
                kept = await self._screen_text(turn, block.thinking, "thought")
                if kept.block is None:
                    same = kept.text == block.thinking
                    content.append(block if same else ThinkingContent(kept.text))
            else:
                content.append(block)
        kept_content = tuple(content)
        replay = message.replay if kept_content == message.content else None
        return replace(message, content=kept_content, replay=replay)

    async def _screen_text(self, turn: int, text: str, speaker: Speaker) -> Screened:
        kept = await self._words.screen_outgoing(HookText(text, speaker), self._context)
        self._blame_all(f"model:{turn}", kept.faults)
        return kept

    async def prepare(self, asked: PrepareCall, checked: CallChecked, taint: str) -> CallChecked:
        """Ask the hooks about a call that may run; of a rejected call, pass the message through them."""
        self._arguments[asked.key] = asked.call.arguments
        faults: tuple[HookFault, ...] = ()
        if isinstance(checked, PreparedCall):
            checked, faults = await self._dispatcher.run_before_hooks(
                checked, self._chain, self._context, taint, asked.asked_by
            )
        if isinstance(checked, RejectedCall):
            checked, more = await self._reword(checked, asked.call.id)
            faults += more
        if isinstance(checked, PreparedCall):
            self._arguments[asked.key] = checked.call.arguments
        self._blame_all(asked.key, faults)
        return checked

    async def _reword(
        self, rejected: RejectedCall, call_id: str
    ) -> tuple[RejectedCall, tuple[HookFault, ...]]:
        """Pass a rejected call's message through the hooks: it and its field may quote the arguments."""
        content = (TextContent(rejected.message),)
        words = KeptResult(call_id, rejected.tool, content, rejected.field, is_error=True)
        kept = await self._chain.persist(words)
        if kept.is_withheld:
            return replace(rejected, message=_NO_WORDS, field=None), kept.faults
        texts = [block.text for block in kept.result.content if isinstance(block, TextContent)]
        details = kept.result.details
        field = details if isinstance(details, str) else None
        return replace(rejected, message="\n".join(texts), field=field), kept.faults

    async def settle(self, outcome: ImmediateOutcome, ran_s: float) -> ImmediateOutcome:
        """Show an ended call to the hooks, and return its result as they keep it."""
        message, arguments = outcome.message, self._arguments.pop(outcome.key, {})
        faults = await self._chain.after(
            _build_ended_call(message, outcome.outcome, arguments, ran_s), self._context
        )
        kept = await self._chain.persist(
            KeptResult(
                message.tool_call_id,
                message.tool_name,
                message.content,
                message.details,
                message.is_error,
                outcome.artifacts,
            )
        )
        self._blame_all(outcome.key, (*faults, *kept.faults))
        result = kept.result
        message = replace(message, content=result.content, details=result.details, is_error=result.is_error)
        name = "error" if kept.is_withheld and outcome.outcome == "ok" else outcome.outcome
        return ImmediateOutcome(outcome.key, name, message, result.artifacts, untrusted=outcome.untrusted)

    def observe(self, fact: SessionFact) -> None:
        """Show the hooks a reply, or a call whose result the machine made itself."""
        if isinstance(fact, TurnReplied):
            text = fact.message.text
            if self._words.looks and text.strip():
                self._look(f"model:{fact.turn}", self._words.sent(HookText(text, "model"), self._context))
        elif isinstance(fact, CallResolved):
            arguments = self._arguments.pop(fact.key, None)
            if arguments is None:
                arguments = self._find_arguments(fact.message.tool_call_id)
            ended = _build_ended_call(fact.message, fact.outcome, arguments, 0.0)
            self._look(fact.key, self._chain.after(ended, self._context))

    def _find_arguments(self, call_id: str) -> Mapping[str, JsonValue]:
        """Return the arguments that the newest reply gave for a call id."""
        for message in reversed(self._state.transcript):
            if isinstance(message, AssistantMessage):
                return {each.id: each.arguments for each in message.tool_calls}.get(call_id, {})
        return {}

    def _look(self, key: str, look: Coroutine[Any, Any, tuple[HookFault, ...]]) -> None:
        """Let hooks observe something in the background."""

        async def finish_look() -> None:
            self._blame_all(key, await look)

        task = asyncio.create_task(finish_look())
        self._looks.add(task)
        task.add_done_callback(self._looks.discard)

    def _blame_all(self, key: str, faults: tuple[HookFault, ...]) -> None:
        for fault in faults:
            self._blame(key, fault)


def _build_ended_call(
    message: ToolResultMessage, outcome: Outcome, arguments: Mapping[str, JsonValue], ran_s: float
) -> EndedCall:
    duration_ms = round(ran_s * 1e3, 3)
    return EndedCall(message.tool_name, arguments, message, message.is_error, outcome, duration_ms)


def route_through_hooks(
    rights: SessionRights, link: Link, chain: HookChain, context: HookContext, blame: Blame
) -> SessionRights:
    """Return the same rights; the handles that hooks judge pass through them."""
    words, sessions = chain.words, chain.sessions
    if rights.channel is not None and (words.screens or words.looks):
        rights = replace(rights, channel=HookedChannel(rights.channel, words, context, blame))
    if rights.canvas is not None and (words.screens or words.looks):
        rights = replace(rights, canvas=HookedCanvas(rights.canvas, words, context, blame))
    if rights.sessions is not None and sessions.judges:
        rights = replace(rights, sessions=HookedSessions(rights.sessions, link, sessions, context, blame))
    return rights


ON_CHANNEL = "channel"
"""Key of failures at a message on a channel."""


class HookedChannel:
    """Sends messages, as hooks leave them, on the nearest channel at or above the session."""

    __slots__ = ("_blame", "_channel", "_context", "_words")

    def __init__(self, channel: Channel, words: WordHooks, context: HookContext, blame: Blame) -> None:
        self._channel = channel
        self._words = words
        self._context = context
        self._blame = blame

    async def send(self, text: str) -> None:
        """Send a message; it is durable when this returns.

        Raises:
            PermissionDenied: a hook forbids it, or a guard failed.
            ExecutionError: the text is blank.
        """
        if not isinstance(text, str) or not text.strip():
            raise ExecutionError(f"nothing was sent: {text!r} is not text with words in it")
        kept = await self._words.screen_outgoing(HookText(text, "channel"), self._context)
        for fault in kept.faults:
            self._blame(ON_CHANNEL, fault)
        if kept.block is not None:
            reason = f"session {self._context.session_id!r} may not say this to people: {kept.block}"
            raise PermissionDenied(PermissionTier.SYSTEM, reason)
        await self._channel.send(kept.text)
        for fault in await self._words.sent(HookText(kept.text, "channel"), self._context):
            self._blame(ON_CHANNEL, fault)


class HookedSessions:
    """Spawns children of the session if hooks allow it; everything else passes unchanged."""

    __slots__ = ("_blame", "_context", "_hooks", "_link", "_sessions")

    def __init__(
        self, sessions: Sessions, link: Link, hooks: SessionHooks, context: HookContext, blame: Blame
    ) -> None:
        self._sessions = sessions
        self._link = link
        self._hooks = hooks
        self._context = context
        self._blame = blame

    async def spawn(self, request: SpawnRequest, *, key: str) -> str:
        """Start a child and return its id at once; the same key gives the same child.

        Raises:
            SpawnRefused: a hook forbids it, or a guard failed; otherwise as the supervisor raises.
        """
        forbidden = None
        if isinstance(request.task, str) and isinstance(request.label, str | None):  # else it is refused
            asked = Spawning(request.kind, request.task, request.label, request.agent, "model")
            ruling = await self._hooks.screen_spawn(asked, self._context)
            for fault in ruling.faults:
                self._blame(key, fault)
            request = replace(request, task=ruling.task, label=ruling.label)
            forbidden = ruling.block
        return await self._link.spawn(request, key, forbidden)

    async def send_to(self, target: str, text: str, *, mode: SendMode, key: str) -> str:
        """Send a message to a session below or to the parent; return the receiver's id."""
        return await self._sessions.send_to(target, text, mode=mode, key=key)

    async def stop(self, target: str, *, reason: str) -> tuple[SessionRow, ...]:
        """Stop a session below this one and everything below it; return their rows once they have ended."""
        return await self._sessions.stop(target, reason=reason)


class ScreenedWatch(CallWatch):
    """Shows watchers the replies and the progress of a session as its hooks leave them.

    Args:
        hub: Receives the progress.
        tree_id: The tree.
        session: The session.
        facades: The session's facades; the reports of tools pass through one.
        config: The limits of images in updates.
        chain: The tree's hooks.
    """

    def __init__(
        self,
        hub: ProgressHub,
        tree_id: str,
        session: str,
        facades: Facades,
        config: AgentConfig | None,
        chain: HookChain,
    ) -> None:
        super().__init__(hub, tree_id, session, facades, config)
        self._chain = chain
        self._blamed: set[tuple[str, str]] = set()
        """Calls with the hooks whose failure at their progress was already reported."""
        self.blame: Blame = lambda key, fault: None
        """Callback for failures of hooks: once per call at progress; each at messages and spawns of tools."""

    def _take(self, report: ToolReport) -> None:
        """Show a report once the hooks have seen it, if there are any for results."""
        if not self._chain.rewrites:
            super()._take(report)
        elif not report.signals.over:
            report.progress = to_json_value(report.progress)
            self._queue(report)

    async def _show(self, report: ToolReport) -> None:
        """Let the hooks rewrite a report, then show it with the images that they leave."""
        if not self._chain.rewrites:
            await super()._show(report)
            return
        given = KeptResult(report.call_id, report.tool, report.images, report.progress, is_error=False)
        kept = await self._chain.persist(given)
        for fault in kept.faults:
            if (report.key, fault.hook) not in self._blamed:
                self._blamed.add((report.key, fault.hook))
                self.blame(report.key, fault)
        if not kept.is_withheld:
            left = tuple(block for block in kept.result.content if isinstance(block, ImageContent))
            await super()._show(replace(report, progress=kept.result.details, images=left))

    def said(self, text: str) -> None:
        """Show a whole reply as hooks left it; no part of it was shown before."""
        if self.readers and text:
            self._hub.emit(self._tree_id, self._session, TextDelta(text))

    def failed(self, key: str, fault: HookFault) -> None:
        """Report a hook that failed at a message or a spawn of a tool."""
        self.blame(key, fault)
