"""The model gateway as a process of its own: the only one that holds models that wait, and their keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from sessiontree.contracts.events import ModelEvent
from sessiontree.contracts.messages import AssistantMessage
from sessiontree.models.port import GatewayModel
from sessiontree.runtime.frames import PollReply, Watch
from sessiontree.runtime.mailbox import Mailbox
from sessiontree.runtime.model_gateway import (
    Ask,
    Asker,
    AskWhole,
    GatewayCore,
    GatewayEvent,
    GatewayFrame,
    ModelReplied,
    NotAnswered,
)


class GatewayHost:
    """Takes questions in as numbered frames and keeps answers until they are known.

    Args:
        model_of: Gives a model by the name of the equipment it belongs to.
    """

    def __init__(self, model_of: Callable[[str], GatewayModel]) -> None:
        self._equipment: dict[str, str] = {}
        self._core = GatewayCore(lambda tree_id: model_of(self._equipment[tree_id]))
        self._mailbox = Mailbox(self._take)
        self._watched: set[str] = set()

    def receive(self, frames: Sequence[tuple[int, GatewayFrame]]) -> None:
        """Take frames in; repeats are dropped, early ones wait for those before them."""
        self._mailbox.receive(frames)

    async def poll(self, after: int, wait_s: float) -> PollReply:
        """Return answers after a number, waiting for the first."""
        return await self._mailbox.poll(after, wait_s)

    def _take(self, frame: GatewayFrame) -> None:
        if isinstance(frame, Ask):
            self._ask(frame)
        elif isinstance(frame, Watch):
            change = self._watched.add if frame.watched else self._watched.discard
            change(frame.tree_id)
        elif frame.keep_conversation:
            self._core.withdraw(frame.tree_id, frame.session)
        else:
            self._core.forget(frame.tree_id, frame.session)

    def _ask(self, frame: Ask) -> None:
        put, ticket = self._mailbox.put, frame.ticket

        def answered(message: AssistantMessage) -> None:
            put(ModelReplied(ticket, message))

        def failed(reason: str, said: str) -> None:
            put(NotAnswered(ticket, reason, said))

        def reask() -> None:
            put(AskWhole(ticket))

        self._equipment[frame.tree_id] = frame.equipment
        emit = partial(self._emit, frame.tree_id, frame.session)
        asker = Asker(frame.tree_id, frame.session, frame.kind, answered, failed, reask, emit)
        try:
            self._core.ask(frame.question, asker)
        except Exception as error:  # noqa: BLE001 - a model that can't be had fails its question alone
            failed(f"{type(error).__name__}: {error}", "")

    def _emit(self, tree_id: str, session: str, event: ModelEvent) -> None:
        if tree_id in self._watched:
            self._mailbox.put(GatewayEvent(tree_id, session, event))
