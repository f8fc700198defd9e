"""What supervisor and model gateway say to each other, where the gateway is a process of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeAlias

from sessiontree.contracts.cancellation import is_cancelled
from sessiontree.contracts.events import Done, ModelEvent, TranscriptRepaired
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.messages import AssistantMessage
from sessiontree.contracts.truncation import cut_text
from sessiontree.models.answers import checked, reason_of
from sessiontree.models.call_ids import GRAMMARS, NAMES, NAMES_OF
from sessiontree.models.call_pairs import NO_REPAIRS
from sessiontree.models.port import GatewayModel, ModelRequest
from sessiontree.models.provider_view import Presented
from sessiontree.models.stream_assembler import Assembly
from sessiontree.models.streaming import reply_of
from sessiontree.runtime.frames import AskModel, ModelPrompt, Watch
from sessiontree.runtime.host_link import HostLink, HostLost, Transport
from sessiontree.runtime.progress import ProgressHub
from sessiontree.runtime.session_reports import ActorRow
from sessiontree.schema.dialect import dialect_of


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the tree's model for a session."""

    tree_id: str
    session: str
    ticket: int
    """Names this question; its answer carries it."""
    kind: SessionKind
    question: AskModel
    equipment: str
    """Names the model the tree was opened with."""


@dataclass(frozen=True, slots=True)
class Forget:
    """Drop a session's question, and its conversation too unless it goes on."""

    tree_id: str
    session: str
    keep_conversation: bool


GatewayFrame: TypeAlias = Ask | Forget | Watch


@dataclass(frozen=True, slots=True)
class ModelReplied:
    """What a model said to a question."""

    ticket: int
    message: AssistantMessage


@dataclass(frozen=True, slots=True)
class NotAnswered:
    """Why there is no answer."""

    ticket: int
    reason: str
    said: str
    """The text of the answer so far."""


@dataclass(frozen=True, slots=True)
class AskWhole:
    """The gateway does not hold the conversation; ask again with all of it."""

    ticket: int


@dataclass(frozen=True, slots=True)
class GatewayEvent:
    """A piece of an answer on its way."""

    tree_id: str
    session: str
    event: ModelEvent


GatewayAnswer: TypeAlias = ModelReplied | NotAnswered | AskWhole | GatewayEvent


NO_MODEL = "the tree has no model that waits; give one with model=…"
MAX_SAID_CHARS = 64_000
"""Most text that is kept of a reply that failed half-way."""

OnReply = Callable[[AssistantMessage], None]
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
    answered: OnReply
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


MOST_LOSSES = 3
"""How often a gateway may be lost over a session's question before that fails."""


class GatewayLink:
    """A gateway in another process, started with the first question.

    Args:
        make_transport: Starts a gateway and returns the way to it.
        hub: Where pieces of answers go.
        equipment_of: Names the model a tree was opened with; None where it has none that waits.
        resend_after_s: When frames not known to be received are sent again.
    """

    def __init__(
        self,
        make_transport: Callable[[str], Transport],
        hub: ProgressHub,
        equipment_of: Callable[[str], str | None],
        *,
        resend_after_s: float,
    ) -> None:
        self._make_transport = make_transport
        self._hub = hub
        self._equipment_of = equipment_of
        self._resend_after_s = resend_after_s
        self._link: HostLink | None = None
        self._starts = 0
        self._losses: dict[tuple[str, str], int] = {}
        self._ticket = 0
        self._asked: dict[int, Asker] = {}
        self._tickets: dict[tuple[str, str], int] = {}
        self._known: set[tuple[str, str]] = set()
        self._watched: set[str] = set()

    def ask(self, question: AskModel, asker: Asker) -> None:
        """Ask the tree's model; an earlier question of the same session is withdrawn."""
        equipment = self._equipment_of(asker.tree_id)
        if equipment is None:
            asker.failed(NO_MODEL, "")
            return
        place = (asker.tree_id, asker.session)
        self._drop_ticket(place)
        self._ticket += 1
        self._tickets[place] = self._ticket
        self._asked[self._ticket] = asker
        self._known.add(place)
        link = self._running()
        link.send(Ask(asker.tree_id, asker.session, self._ticket, asker.kind, question, equipment))

    def withdraw(self, tree_id: str, session: str) -> None:
        """Drop a session's question; its answer is not delivered."""
        if self._drop_ticket((tree_id, session)) and self._link is not None:
            self._link.send(Forget(tree_id, session, keep_conversation=True))

    def forget(self, tree_id: str, session: str) -> None:
        """Drop a session's question and conversation."""
        self._drop_ticket((tree_id, session))
        self._losses.pop((tree_id, session), None)
        if (tree_id, session) in self._known and self._link is not None:
            self._known.discard((tree_id, session))
            self._link.send(Forget(tree_id, session, keep_conversation=False))

    def watch(self, tree_id: str, *, watched: bool) -> None:
        """Say whether anybody watches what a tree's models say while they say it."""
        change = self._watched.add if watched else self._watched.discard
        change(tree_id)
        if self._link is not None:
            self._link.send(Watch(tree_id, watched))

    def actors(self) -> list[ActorRow]:
        """Return the gateway's process, if it runs."""
        if self._link is None:
            return []
        transport = self._link.transport
        return [ActorRow(self._link.name, "gateway", transport.pid, transport.level)]

    async def close(self) -> None:
        """Drop everything and end the gateway."""
        self._asked.clear()
        self._tickets.clear()
        if self._link is not None:
            link, self._link = self._link, None
            await link.close()

    def _running(self) -> HostLink:
        if self._link is None:
            self._starts += 1
            name = f"gateway{self._starts}"
            self._link = HostLink(
                name,
                self._make_transport(name),
                on_outcome=self._on_answer,
                on_lost=self._on_lost,
                on_free=lambda link: None,
                on_progress=lambda progress: None,
                resend_after_s=self._resend_after_s,
            )
            for tree_id in self._watched:
                self._link.send(Watch(tree_id, True))
        return self._link

    def _drop_ticket(self, place: tuple[str, str]) -> bool:
        ticket = self._tickets.pop(place, None)
        if ticket is not None:
            self._asked.pop(ticket, None)
        return ticket is not None

    def _on_answer(self, link: HostLink, answer: Any) -> None:
        if isinstance(answer, GatewayEvent):
            self._hub.emit(answer.tree_id, answer.session, answer.event)
            return
        asker = self._asked.pop(answer.ticket, None)
        if asker is None:
            return
        place = (asker.tree_id, asker.session)
        self._tickets.pop(place, None)
        if not isinstance(answer, AskWhole):
            self._losses.pop(place, None)
        if isinstance(answer, ModelReplied):
            asker.answered(answer.message)
        elif isinstance(answer, NotAnswered):
            asker.failed(answer.reason, answer.said)
        else:
            assert isinstance(answer, AskWhole)  # noqa: S101 - the last answer there is
            asker.reask()

    def _on_lost(self, link: HostLink, lost: HostLost) -> None:
        """Every open question is asked again, whole: the next gateway holds no conversation.

        One that was open each time fails in the end, however many others were answered in between.
        """
        self._link = None
        self._known.clear()
        asked = list(self._asked.values())
        self._asked.clear()
        self._tickets.clear()
        for asker in asked:
            place = (asker.tree_id, asker.session)
            losses = self._losses[place] = self._losses.get(place, 0) + 1
            if losses > MOST_LOSSES:
                del self._losses[place]
                asker.failed(f"the model gateway was lost {losses} times over this question: {lost}", "")
            else:
                asker.reask()
