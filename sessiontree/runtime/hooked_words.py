"""An adopted session whose messages pass its tree's hooks before its machine, and so its journal, hears them.

What is fed while a message is with the hooks waits behind it, in order, but for the word to stop: a session
that stops records nothing of what waited, which is then let through as it is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sessiontree.contracts import stimuli
from sessiontree.contracts.hook_sessions import Speaker, Words
from sessiontree.contracts.messages import AssistantMessage, ReplyContent, TextContent, ThinkingContent
from sessiontree.contracts.session_facts import TurnReplied
from sessiontree.contracts.stimuli import Stimulus
from sessiontree.dispatch.dispatcher import Dispatcher
from sessiontree.dispatch.hook_run import HookFault
from sessiontree.dispatch.hooks import HookChain
from sessiontree.dispatch.word_hooks import Screened
from sessiontree.runtime.frames import Adopt, Outcome
from sessiontree.runtime.hooked_services import context_of
from sessiontree.runtime.hooked_watch import HookedWatch
from sessiontree.runtime.questions import Questioner
from sessiontree.runtime.runner import SessionRunner


class ScreenedRunner(SessionRunner):
    """Runs one session, its messages past the hooks of its tree."""

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
            failed = stimuli.HookFailed(self._now_ms(), key, fault.hook, fault.point, fault.reason)
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
