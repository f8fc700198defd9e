"""The model gateway: asks models that wait, one question a session at a time, and keeps their conversations.

A conversation travels as deltas; what the gateway has lost it asks for again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from sessiontree.contracts.cancelling import is_cancelled
from sessiontree.contracts.events import ModelEvent
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.messages import AssistantMessage, Message
from sessiontree.kernel.frames import AskModel, ModelPrompt
from sessiontree.kernel.reports import ActorRow
from sessiontree.models.answers import checked, reason_of
from sessiontree.models.port import ModelRequest, WaitingModel

Answered = Callable[[AssistantMessage], None]
Failed = Callable[[str], None]
Emit = Callable[[ModelEvent], None]


@dataclass(slots=True)
class _Conversation:
    prompt: ModelPrompt
    messages: list[Message] = field(default_factory=list)


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


class GatewayCore:
    """Holds conversations by session and at most one question of each under way.

    Args:
        model_of: Gives a tree's model by its id; None where it has none that waits.
    """

    def __init__(self, model_of: Callable[[str], WaitingModel | None]) -> None:
        """Begin without conversations."""
        self._model_of = model_of
        self._conversations: dict[tuple[str, str], _Conversation] = {}
        self._asking: dict[tuple[str, str], asyncio.Task[None]] = {}

    def ask(self, question: AskModel, asker: Asker) -> None:
        """Ask the tree's model; an earlier question of the same session is withdrawn."""
        place = (asker.tree_id, asker.session)
        self.withdraw(*place)
        model = self._model_of(asker.tree_id)
        if model is None:
            asker.failed("the tree has no model that waits; give one with model=…")
            return
        conversation = self._conversations.get(place)
        if question.base == 0 and question.prompt is not None:
            conversation = _Conversation(question.prompt)
            self._conversations[place] = conversation
        if conversation is None or len(conversation.messages) < question.base:
            asker.reask()
            return
        del conversation.messages[question.base :]
        conversation.messages.extend(question.messages)
        request = ModelRequest(
            asker.session,
            asker.kind,
            question.turn,
            conversation.prompt.system_prompt,
            conversation.prompt.tools,
            conversation.messages,
            conversation.prompt.result_schema,
        )
        self._asking[place] = asyncio.create_task(self._complete(model, request, asker))

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

    async def _complete(self, model: WaitingModel, request: ModelRequest, asker: Asker) -> None:
        place = (asker.tree_id, asker.session)
        try:
            message = checked(await model.complete(request, asker.emit), request.turn)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a model may raise anything; the session is told
            if isinstance(error, asyncio.CancelledError) and is_cancelled():
                raise
            answer = partial(asker.failed, reason_of(error))
        else:
            answer = partial(asker.answered, message)
        if self._asking.get(place) is asyncio.current_task():
            del self._asking[place]
            answer()
