"""What a supervisor asks the image models of agents for its sessions, once for each call.

The gateway holds such a question apart from the question of the session's turn. The answer and its usage are
a fact of the tree, so a repeated call gets the same answer and nobody pays twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.facts.tree_facts import VisionAnswered
from sessiontree.contracts.handles.vision import MAX_VISION_CHARS, VisionAnswer
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.reports.events import ModelEvent
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.contracts.values.messages import AssistantMessage, ImageContent
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.contracts.values.truncation import cut_text
from sessiontree.models.answers import ModelFailure
from sessiontree.runtime.gateway.model_gateway import Gateway
from sessiontree.runtime.gateway.question_budget import QuestionBudget, find_price
from sessiontree.runtime.gateway.vision_prompt import (
    INSTRUCTION,
    VISION_TURN,
    make_vision_error,
    make_vision_message,
)
from sessiontree.runtime.scheduling.live_session import Controller, LiveSession
from sessiontree.runtime.transport.frames import AskModel, ModelPrompt
from sessiontree.tree.rules.vision import find_answer
from sessiontree.tree.state.protocol import VisionReported
from sessiontree.tree.state.reservations import place_in


@dataclass(slots=True, eq=False)
class _PendingVision:
    """One question at the gateway."""

    questions: ImageQuestions
    live: LiveSession
    key: str
    agent: str
    question: AskModel
    done: asyncio.Future[None]
    """Settled when there is an answer, or none; a repeat of the call after a lost host waits for it, too."""

    @property
    def tree_id(self) -> str:
        """The session's tree."""
        return self.live.controller.config.tree_id

    @property
    def session(self) -> str:
        """The place of the question."""
        return place_in(self.live.session, self.key)

    @property
    def kind(self) -> SessionKind:
        """The session's kind."""
        return self.live.kind

    def answered(self, message: AssistantMessage) -> None:
        """Take the reply."""
        self.questions.answered(self, message)

    def failed(self, failure: ModelFailure) -> None:
        """Take the reason why the model did not reply."""
        self.questions.failed(self, failure)

    def resend_prompt(self) -> None:
        """Ask again: the question is whole."""
        self.questions.send(self, self.question)

    def held(self, is_held: bool) -> None:
        """Do nothing: the call waits, and not the session's turn."""

    def emit(self, event: ModelEvent) -> None:
        """Drop a part of the reply: nobody is shown it while it is made."""


class ImageQuestions:
    """The questions of one tree's sessions to their image models.

    Args:
        controller: The tree.
        gateway: Asks the models that wait.
        budget: Holds a question back until it can be paid for.
        agents: The agents' configurations by name.
    """

    def __init__(
        self,
        controller: Controller,
        gateway: Gateway,
        budget: QuestionBudget,
        config_of: Callable[[str], AgentConfig],
    ) -> None:
        self._controller = controller
        self._gateway = gateway
        self._budget = budget
        self._config_of = config_of
        self._pending: dict[tuple[str, str], _PendingVision] = {}

    async def ask(
        self,
        live: LiveSession,
        question: str,
        images: tuple[ImageContent, ...],
        key: str,
        reply: AssistantMessage | None,
    ) -> VisionAnswer:
        """Return the answer of a session's image model, durable and charged; a known key asks nothing.

        Raises:
            ExecutionError: the model gave no answer; names it.
        """
        agent = self._controller.state.sessions[live.session].spec.agent
        model = self._config_of(agent).image_model
        known = find_answer(self._controller.state, live.session, key)
        if known is None:
            pending = None if reply is not None else self._begin_question(live, question, images, key, agent)
            if pending is None:
                self._keep(live.session, key, model, reply)
            else:
                await self._wait(pending, model)
            known = find_answer(self._controller.state, live.session, key)
        await self._controller.wait_until_durable()
        if known is None or not known.text.strip():
            raise ExecutionError(f"image model {model!r} gave no answer in text")
        return VisionAnswer(known.text, known.model)

    def drop(self, session: str, key: str) -> None:
        """Drop a question: nobody waits for its answer any more."""
        pending = self._pending.get((session, key))
        if pending is not None and not pending.done.done():
            self._forget(pending)
            pending.done.cancel()

    def on_session_over(self, session: str) -> None:
        """Drop the questions of a session."""
        for name, key in list(self._pending):
            if name == session:
                self.drop(name, key)

    def close(self) -> None:
        """Drop all questions."""
        for name, key in list(self._pending):
            self.drop(name, key)

    def send(self, pending: _PendingVision, question: AskModel) -> None:
        """Send a question to the gateway."""
        if not pending.done.done():
            pending.question = question
            self._gateway.ask(question, pending)

    def answered(self, pending: _PendingVision, message: AssistantMessage) -> None:
        """Keep and charge a reply."""
        model = self._config_of(pending.agent).image_model
        self._keep(pending.live.session, pending.key, model, message)
        self._forget(pending)
        if not pending.done.done():
            pending.done.set_result(None)

    def failed(self, pending: _PendingVision, failure: ModelFailure) -> None:
        """Take the reason why a model did not reply."""
        self._forget(pending)
        if not pending.done.done():
            model = self._config_of(pending.agent).image_model
            pending.done.set_exception(make_vision_error(model, failure))
            pending.done.exception()  # whoever waited may be gone

    def _begin_question(
        self, live: LiveSession, question: str, images: tuple[ImageContent, ...], key: str, agent: str
    ) -> _PendingVision:
        """Return the question of a key, which is asked if it is new."""
        # Race: a host that was lost may have asked with this key; its question goes on, and is paid for once.
        pending = self._pending.get((live.session, key))
        if pending is not None:
            return pending
        asked = AskModel(
            VISION_TURN,
            0,
            (make_vision_message(question, images),),
            ModelPrompt(INSTRUCTION, (), None),
            unseen=True,
            by_image_model=True,
        )
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        pending = _PendingVision(self, live, key, agent, asked, done)
        self._pending[live.session, key] = pending
        config = self._config_of(agent)
        if find_price(asked, config) is None:
            self.send(pending, asked)
            return pending
        self._budget.ask(pending.session, asked, config, partial(self.send, pending), pending.failed)
        return pending

    async def _wait(self, pending: _PendingVision, model: str) -> None:
        timeout_s = self._controller.config.limits.model_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                # Race: several may wait for one key; the end of one wait must not cancel the others.
                await asyncio.shield(pending.done)
        except TimeoutError:
            self.drop(pending.live.session, pending.key)
            reason = f"image model {model!r} gave no answer within {timeout_s or 0:g} s"
            raise ExecutionError(reason, retryable=True) from None
        except asyncio.CancelledError:
            if not pending.done.cancelled():
                raise
            raise ExecutionError(f"the question to image model {model!r} was dropped") from None

    def _keep(self, session: str, key: str, model: str, reply: AssistantMessage | None) -> None:
        if reply is None or self._controller.failure is not None:
            return
        at_ms = self._controller.now_ms()
        usage = replace(reply.usage, turns=0, tool_calls=0)
        text = cut_text(reply.text, MAX_VISION_CHARS)
        answered = VisionAnswered(session, key, reply.model or model, text, usage, at_ms)
        self._controller.stimulate(VisionReported(at_ms, answered), f"image:{key}")

    def _forget(self, pending: _PendingVision) -> None:
        self._pending.pop((pending.live.session, pending.key), None)
        self._budget.drop(pending.session)
        self._budget.sizes.pop(pending.session, None)
        self._gateway.forget(pending.tree_id, pending.session)
