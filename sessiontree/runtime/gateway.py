"""The model gateway: asks models that wait, one question a session at a time, and keeps their conversations.

A conversation travels as deltas; what the gateway has lost it asks for again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from sessiontree.contracts.cancelling import is_cancelled
from sessiontree.contracts.cutting import cut_text
from sessiontree.contracts.events import Done, ModelEvent, TranscriptRepaired
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.messages import AssistantMessage
from sessiontree.models.answers import checked, reason_of
from sessiontree.models.assembly import Assembly
from sessiontree.models.call_ids import GRAMMARS, NAMES, NAMES_OF
from sessiontree.models.pairing import NO_REPAIRS
from sessiontree.models.port import GatewayModel, ModelRequest
from sessiontree.models.presenting import Presented
from sessiontree.models.streaming import reply_of
from sessiontree.runtime.frames import AskModel, ModelPrompt
from sessiontree.runtime.reports import ActorRow
from sessiontree.schema.dialect import dialect_of

NO_MODEL = "the tree has no model that waits; give one with model=…"
MAX_SAID_CHARS = 64_000
"""Most text that is kept of a reply that failed half-way."""

Answered = Callable[[AssistantMessage], None]
Failed = Callable[[str, str], None]
"""Called with the reason and the text so far."""
Emit = Callable[[ModelEvent], None]


@dataclass(slots=True)
class _Conversation:
    prompt: ModelPrompt
    told: Presented


@dataclass(slots=True)
class Asker:
    """Who asks, and what to call with the answer; exactly one of them is called, unless withdrawn."""

    tree_id: str
    session: str
    kind: SessionKind
    answered: Answered
    failed: Failed
    reask: Callable[[], None]
    emit: Emit


class Gateway(Protocol):
    """The way to the models that wait. Every method returns at once."""

    def ask(self, question: AskModel, asker: Asker) -> None:
        """Ask the tree's model; an earlier question of the same session is withdrawn."""
        ...

    def withdraw(self, tree_id: str, session: str) -> None:
        """Drop a session's question; its answer is not delivered."""
        ...

    def forget(self, tree_id: str, session: str) -> None:
        """Drop a session's question and conversation."""
        ...

    def watch(self, tree_id: str, *, watched: bool) -> None:
        """Say whether anybody watches what a tree's models say while they say it."""
        ...

    def actors(self) -> list[ActorRow]:
        """Return the gateway's process, where it has one of its own and runs."""
        ...

    async def close(self) -> None:
        """Drop everything."""
        ...


def _show_nobody(event: ModelEvent) -> None:
    """Of a reply that hooks have the first look at nothing is shown while it is made."""


class GatewayCore:
    """Holds conversations by session and at most one question of each under way.

    Args:
        model_of: Gives a tree's model by its id; None where it has none that waits.
    """

    def __init__(self, model_of: Callable[[str], GatewayModel | None]) -> None:
        """Begin without conversations."""
        self._model_of = model_of
        self._conversations: dict[tuple[str, str], _Conversation] = {}
        self._asking: dict[tuple[str, str], asyncio.Task[None]] = {}

    def ask(self, question: AskModel, asker: Asker) -> None:
        """Ask the tree's model; an earlier question of the same session is withdrawn."""
        place = (asker.tree_id, asker.session)
        if question.unseen:
            asker = replace(asker, emit=_show_nobody)
        self.withdraw(*place)
        model = self._model_of(asker.tree_id)
        if model is None:
            asker.failed(NO_MODEL, "")
            return
        conversation = self._conversations.get(place)
        if question.base == 0 and question.prompt is not None:
            dialect = dialect_of(str(getattr(model, "name", ""))).name
            told = Presented(GRAMMARS.get(dialect), NAMES_OF.get(dialect, NAMES))
            conversation = _Conversation(question.prompt, told)
            self._conversations[place] = conversation
        if conversation is None or len(conversation.told) < question.base:
            asker.reask()
            return
        repairs = conversation.told.take(question.base, question.messages)
        if repairs is not NO_REPAIRS:
            asker.emit(TranscriptRepaired(repairs.missing, repairs.dropped, repairs.moved))
        request = ModelRequest(
            asker.session,
            asker.kind,
            question.turn,
            conversation.prompt.system_prompt,
            conversation.prompt.tools,
            conversation.told.shown,
            conversation.prompt.result_schema,
        )
        self._asking[place] = asyncio.create_task(self._complete(model, request, conversation.told, asker))

    def withdraw(self, tree_id: str, session: str) -> None:
        """Drop a session's question; its answer is not delivered."""
        task = self._asking.pop((tree_id, session), None)
        if task is not None:
            task.cancel()

    def forget(self, tree_id: str, session: str) -> None:
        """Drop a session's question and conversation."""
        self.withdraw(tree_id, session)
        self._conversations.pop((tree_id, session), None)

    def watch(self, tree_id: str, *, watched: bool) -> None:
        """Say whether anybody watches; here those who watch take what is emitted."""

    def actors(self) -> list[ActorRow]:
        """Return nothing: this one shares its supervisor's process."""
        return []

    async def close(self) -> None:
        """Drop everything."""
        tasks = list(self._asking.values())
        self._asking.clear()
        self._conversations.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _complete(
        self, model: GatewayModel, request: ModelRequest, told: Presented, asker: Asker
    ) -> None:
        place = (asker.tree_id, asker.session)
        assembly = Assembly(request.turn, asker.emit)
        try:
            reply = checked(await reply_of(model, request, assembly, asker.emit), request.turn)
            message = told.own(reply)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a model may raise anything; the session is told
            withdrawn = isinstance(error, asyncio.CancelledError) and is_cancelled()
            if assembly.has_begun:
                asker.emit(Done("aborted" if withdrawn else "error"))
            if withdrawn:
                raise
            answer = partial(asker.failed, reason_of(error), cut_text(assembly.text, MAX_SAID_CHARS))
        else:
            answer = partial(asker.answered, message)
        if self._asking.get(place) is asyncio.current_task():
            del self._asking[place]
            answer()
