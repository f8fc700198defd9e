"""The messages between supervisor and model gateway, and the gateway in the same or another process.

Long because both ends of one conversation are here, with every message between them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from sys import intern
from typing import Any, Final, Protocol, TypeAlias

from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.reports.events import Done, ModelEvent, TranscriptRepaired
from sessiontree.contracts.settings.model_settings import NO_SETTINGS
from sessiontree.contracts.tools.thread_calls import is_cancelled
from sessiontree.contracts.values.messages import (
    NOTHING_USED,
    AssistantMessage,
    Message,
    ToolCall,
    ToolResultMessage,
)
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.contracts.values.truncation import cut_text
from sessiontree.contracts.values.whole_text import repair_object, repair_text
from sessiontree.models.answers import ModelFailure, check_reply, make_failure
from sessiontree.models.held_questions import NOTE_HELD
from sessiontree.models.port import (
    EmitEvent,
    GatewayModel,
    ModelRequest,
    ToolSpec,
    get_model_name,
    make_image_key,
    make_summary_key,
)
from sessiontree.models.sendable.provider_view import GRAMMARS, NAMES, NAMES_OF, NO_REPAIRS, ProviderView
from sessiontree.models.sendable.sendable_message import repair_tools
from sessiontree.models.stream_assembler import StreamAssembler, request_reply
from sessiontree.runtime.transport.frames import AskModel, ModelPrompt, PollReply, Watch
from sessiontree.runtime.transport.link import HostLink, HostLost, Mailbox, Transport
from sessiontree.runtime.transport.progress import Progress, ProgressHub
from sessiontree.runtime.transport.supervisor_api import ActorRow
from sessiontree.schema.dialect import choose_dialect
from sessiontree.tree.state.reservations import extract_session


@dataclass(frozen=True, slots=True)
class Ask:
    """Send a session's request to its agent's model."""

    tree_id: str
    session: str
    agent: str
    ticket: int
    """Identifies this request; its answer carries it."""
    kind: SessionKind
    question: AskModel
    equipment: str
    """Identifies the models that the tree was opened with."""


@dataclass(frozen=True, slots=True)
class Forget:
    """Drop a session's request, and its conversation too unless the session continues."""

    tree_id: str
    session: str
    keep_conversation: bool


GatewayFrame: TypeAlias = Ask | Forget | Watch


@dataclass(frozen=True, slots=True)
class ModelReplied:
    """A model's reply to a request."""

    ticket: int
    message: AssistantMessage


@dataclass(frozen=True, slots=True)
class NotAnswered:
    """Why a model did not reply."""

    ticket: int
    failure: ModelFailure


@dataclass(frozen=True, slots=True)
class AskWhole:
    """The gateway does not hold the conversation; send the request again with all of it."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Held:
    """Whether a request waits for its turn at the provider."""

    ticket: int
    is_held: bool


GatewayAnswer: TypeAlias = ModelReplied | NotAnswered | AskWhole | Held | Progress


NO_MODEL = "no model that waits answers for the agent {agent!r}; give one with model=… or models=…"
MAX_SAID_CHARS = 64_000
"""Most characters kept of a reply that failed half-way."""


@dataclass(slots=True)
class _Conversation:
    prompt: ModelPrompt
    told: ProviderView
    asking: asyncio.Task[None] | None = None
    """Runs while the model is asked."""


class Asker(Protocol):
    """Who sent a request, and takes its answer: one method is called, once, unless the request is withdrawn.

    Thousands wait for their answers, so a request is one object, and no callbacks are made for it.
    """

    @property
    def tree_id(self) -> str:
        """The tree."""
        ...

    @property
    def session(self) -> str:
        """The session in the tree, or a place of its own for a further question of it."""
        ...

    @property
    def agent(self) -> str:
        """Name of the session's agent."""
        ...

    @property
    def kind(self) -> SessionKind:
        """The session's kind."""
        ...

    def answered(self, message: AssistantMessage) -> None:
        """Take the reply."""
        ...

    def failed(self, failure: ModelFailure) -> None:
        """Take the reason why the model did not reply."""
        ...

    def resend_prompt(self) -> None:
        """Ask again with the whole conversation, which the gateway does not hold."""
        ...

    def held(self, is_held: bool) -> None:
        """Hear that the request waits for its turn at the provider, or does not any more."""
        ...

    def emit(self, event: ModelEvent) -> None:
        """Take a part of the reply while it is made; called any number of times before the answer."""
        ...


class Gateway(Protocol):
    """Access to the models that are awaited. Every method returns at once."""

    def ask(self, question: AskModel, asker: Asker) -> None:
        """Send a request to the tree's model; an earlier request of the same session is withdrawn."""
        ...

    def withdraw(self, tree_id: str, session: str) -> None:
        """Drop a session's request; its answer is not delivered."""
        ...

    def forget(self, tree_id: str, session: str) -> None:
        """Drop a session's request and conversation."""
        ...

    def watch(self, tree_id: str, *, watched: bool) -> None:
        """Set whether anyone watches the replies of a tree's models while they are made."""
        ...

    def actors(self) -> list[ActorRow]:
        """Return the row of the gateway's process, if it has its own and runs."""
        ...

    @property
    def pending(self) -> int:
        """How many requests have no answer yet."""
        ...

    async def close(self) -> None:
        """Drop everything."""
        ...


def _choose_key(question: AskModel, agent: str) -> str:
    """Return the key of the model that a question is for."""
    if question.by_image_model:
        return make_image_key(agent)
    return make_summary_key(agent) if question.by_compaction_model else agent


def _show_nobody(event: ModelEvent) -> None:
    """Drop the events of a reply that hooks must judge before anyone sees it."""


MOST_SHARED: Final = 64
"""How many lists of tools are remembered, to be shared by conversations that have equal ones."""


class GatewayCore:
    """Holds conversations by session, and at most one pending request of each.

    Conversations with equal tools share one list of them: every prompt that arrives has its own copy, and the
    schemas of twenty tools take more room than many a conversation.

    Args:
        models_of: Returns the awaited models of a tree, by agent and summary key, for the tree's id.
    """

    def __init__(self, models_of: Callable[[str], Mapping[str, GatewayModel]]) -> None:
        self._models_of = models_of
        self._conversations: dict[tuple[str, str], _Conversation] = {}
        self._shared: dict[tuple[str, ...], tuple[tuple[ToolSpec, ...], tuple[ToolSpec, ...]]] = {}
        """By tree and names, the newest list of tools: as it was given, and as it is sent."""

    def _share_tools(self, tree_id: str, prompt: ModelPrompt) -> ModelPrompt:
        """Return a prompt as it is sent, with the list of tools that other conversations of its tree hold."""
        names = (tree_id, *[spec.name for spec in prompt.tools])
        given, tools = self._shared.pop(names, ((), ()))
        if given != prompt.tools:
            given, tools = prompt.tools, repair_tools(prompt.tools)
        self._shared[names] = (given, tools)  # the newest is last
        if len(self._shared) > MOST_SHARED:
            del self._shared[next(iter(self._shared))]
        schema = None if prompt.result_schema is None else repair_object(prompt.result_schema)
        return replace(
            prompt, system_prompt=repair_text(prompt.system_prompt), tools=tools, result_schema=schema
        )

    def ask(self, question: AskModel, asker: Asker) -> None:
        """Send a request to the tree's model; an earlier request of the same session is withdrawn."""
        place = (asker.tree_id, asker.session)
        emit = _show_nobody if question.unseen else asker.emit
        self.withdraw(*place)
        model = self._models_of(asker.tree_id).get(_choose_key(question, asker.agent))
        if model is None:
            asker.failed(ModelFailure(NO_MODEL.format(agent=asker.agent)))
            return
        conversation = self._conversations.get(place)
        if question.base == 0 and question.prompt is not None:
            dialect = choose_dialect(get_model_name(model)).name
            told = ProviderView(GRAMMARS.get(dialect), NAMES_OF.get(dialect, NAMES))
            prompt = self._share_tools(asker.tree_id, question.prompt)
            conversation = _Conversation(prompt, told)
            self._conversations[place] = conversation
        if conversation is None or len(conversation.told) < question.base:
            asker.resend_prompt()
            return
        repairs = conversation.told.take(question.base, question.messages)
        if repairs is not NO_REPAIRS:
            emit(TranscriptRepaired(repairs.missing, repairs.dropped, repairs.moved))
        request = ModelRequest(
            extract_session(asker.session),
            asker.kind,
            question.turn,
            conversation.prompt.system_prompt,
            conversation.prompt.tools,
            conversation.told.shown,
            None if question.summarises else conversation.prompt.result_schema,
            asker.agent,
            get_model_name(model),
            question.settings,
            question.summarises,
        )
        asking = _complete(model, request, conversation, asker, emit)
        conversation.asking = asyncio.create_task(asking)

    def withdraw(self, tree_id: str, session: str) -> None:
        """Drop a session's request; its answer is not delivered."""
        conversation = self._conversations.get((tree_id, session))
        if conversation is not None and conversation.asking is not None:
            conversation.asking.cancel()
            conversation.asking = None

    def forget(self, tree_id: str, session: str) -> None:
        """Drop a session's request and conversation."""
        self.withdraw(tree_id, session)
        self._conversations.pop((tree_id, session), None)

    def watch(self, tree_id: str, *, watched: bool) -> None:
        """Do nothing: watchers in this process receive what is emitted."""

    def actors(self) -> list[ActorRow]:
        """Return an empty list, because this gateway shares its supervisor's process."""
        return []

    @property
    def pending(self) -> int:
        """How many requests have no answer yet."""
        return sum(each.asking is not None for each in self._conversations.values())

    async def close(self) -> None:
        """Drop everything."""
        tasks = [each.asking for each in self._conversations.values() if each.asking is not None]
        self._conversations.clear()
        self._shared.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def _complete(
    model: GatewayModel, request: ModelRequest, conversation: _Conversation, asker: Asker, emit: EmitEvent
) -> None:
    """Ask a model, and pass its answer on unless the request is withdrawn meanwhile."""
    assembly = StreamAssembler(request.turn, emit) if hasattr(model, "stream") else None
    NOTE_HELD.set(asker.held)
    try:
        reply = check_reply(await request_reply(model, request, assembly, emit), request.turn)
        message = conversation.told.own(reply)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a model may raise anything; the session gets the reason
        withdrawn = isinstance(error, asyncio.CancelledError) and is_cancelled()
        if assembly is not None and assembly.has_begun:
            emit(Done("aborted" if withdrawn else "error"))
        if withdrawn:
            raise
        said = "" if assembly is None else cut_text(assembly.text, MAX_SAID_CHARS)
        answer = partial(asker.failed, make_failure(error, request.session_id, said))
    else:
        answer = partial(asker.answered, message)
    if conversation.asking is asyncio.current_task():
        conversation.asking = None
        answer()


MAX_LOSSES = 3
"""How many gateways may be lost during a session's request before the request fails."""


class GatewayLink:
    """A gateway in another process, started with the first request.

    Args:
        make_transport: Starts a gateway and returns the transport to it.
        hub: Receives the parts of replies.
        equipment_of: Returns the name of the models a tree was opened with; None if none of them is awaited.
        resend_after_s: Seconds until frames are sent again that were not acknowledged.
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
        """Send a request to the tree's model; an earlier request of the same session is withdrawn."""
        equipment = self._equipment_of(asker.tree_id)
        if equipment is None:
            asker.failed(ModelFailure(NO_MODEL.format(agent=asker.agent)))
            return
        place = (asker.tree_id, asker.session)
        self._drop_ticket(place)
        self._ticket += 1
        self._tickets[place] = self._ticket
        self._asked[self._ticket] = asker
        self._known.add(place)
        link = self._ensure_running()
        ask = Ask(asker.tree_id, asker.session, asker.agent, self._ticket, asker.kind, question, equipment)
        link.send(ask)

    def withdraw(self, tree_id: str, session: str) -> None:
        """Drop a session's request; its answer is not delivered."""
        if self._drop_ticket((tree_id, session)) and self._link is not None:
            self._link.send(Forget(tree_id, session, keep_conversation=True))

    def forget(self, tree_id: str, session: str) -> None:
        """Drop a session's request and conversation."""
        self._drop_ticket((tree_id, session))
        self._losses.pop((tree_id, session), None)
        if (tree_id, session) in self._known and self._link is not None:
            self._known.discard((tree_id, session))
            self._link.send(Forget(tree_id, session, keep_conversation=False))

    def watch(self, tree_id: str, *, watched: bool) -> None:
        """Set whether anyone watches the replies of a tree's models while they are made."""
        change = self._watched.add if watched else self._watched.discard
        change(tree_id)
        if self._link is not None:
            self._link.send(Watch(tree_id, watched))

    def actors(self) -> list[ActorRow]:
        """Return the row of the gateway's process, if it runs."""
        if self._link is None:
            return []
        transport = self._link.transport
        return [ActorRow(self._link.name, "gateway", transport.pid, transport.level)]

    @property
    def pending(self) -> int:
        """How many requests have no answer yet."""
        return len(self._asked)

    async def close(self) -> None:
        """Drop everything and end the gateway."""
        self._asked.clear()
        self._tickets.clear()
        if self._link is not None:
            link, self._link = self._link, None
            await link.close()

    def _ensure_running(self) -> HostLink:
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
        if isinstance(answer, Progress):
            self._hub.emit(answer.tree_id, answer.session, answer.event)
            return
        keep = self._asked.get if isinstance(answer, Held) else self._asked.pop
        asker: Asker | None = keep(answer.ticket, None)
        if asker is None:
            return
        if isinstance(answer, Held):
            asker.held(answer.is_held)
            return
        place = (asker.tree_id, asker.session)
        self._tickets.pop(place, None)
        if not isinstance(answer, AskWhole):
            self._losses.pop(place, None)
        if isinstance(answer, ModelReplied):
            asker.answered(answer.message)
        elif isinstance(answer, NotAnswered):
            asker.failed(answer.failure)
        else:  # the last answer there is: AskWhole
            asker.resend_prompt()

    def _on_lost(self, link: HostLink, lost: HostLost) -> None:
        """Send every pending request again with its whole conversation: the next gateway holds none.

        A request that was pending at each loss fails in the end, even if others were answered in between.
        """
        self._link = None
        self._known.clear()
        asked = list(self._asked.values())
        self._asked.clear()
        self._tickets.clear()
        for asker in asked:
            place = (asker.tree_id, asker.session)
            losses = self._losses[place] = self._losses.get(place, 0) + 1
            if losses > MAX_LOSSES:
                del self._losses[place]
                reason = f"the model gateway was lost {losses} times over this question: {lost}"
                asker.failed(ModelFailure(reason, cause="provider"))
            else:
                asker.resend_prompt()


def _share_name(text: str) -> str:
    """Return a name that many messages have, as one object for all of them."""
    return intern(text) if type(text) is str else text


def share_names(message: Message) -> Message:
    """Return a message of a frame, with one object for what many messages have: names, and no usage.

    Every frame brings its own copies, and a conversation is held for as long as its session lives.
    """
    if isinstance(message, AssistantMessage):
        content = tuple(
            [_share_call(block) if type(block) is ToolCall else block for block in message.content]
        )
        usage = NOTHING_USED if message.usage == NOTHING_USED else message.usage
        reason: Any = _share_name(message.stop_reason)
        rest = (message.timestamp, _share_name(message.model), message.stop_detail, message.replay)
        return AssistantMessage(content, reason, usage, *rest)
    if isinstance(message, ToolResultMessage):
        name, rest_of_it = (
            _share_name(message.tool_name),
            (message.details, message.is_error, message.timestamp),
        )
        return ToolResultMessage(message.tool_call_id, name, message.content, *rest_of_it)
    return message


def _share_call(call: ToolCall) -> ToolCall:
    arguments = {_share_name(name): value for name, value in call.arguments.items()}
    return ToolCall(call.id, _share_name(call.name), arguments, call.unread)


@dataclass(slots=True, eq=False)
class PendingAsk:
    """Turns what becomes of a request into an answer with its ticket. Thousands wait, so it holds little."""

    host: GatewayHost
    ticket: int
    tree_id: str
    session: str
    agent: str
    kind: SessionKind

    def answered(self, message: AssistantMessage) -> None:
        """The model replied."""
        self.host.answer(ModelReplied(self.ticket, message))

    def failed(self, failure: ModelFailure) -> None:
        """It did not."""
        self.host.answer(NotAnswered(self.ticket, failure))

    def resend_prompt(self) -> None:
        """The conversation is not here."""
        self.host.answer(AskWhole(self.ticket))

    def held(self, is_held: bool) -> None:
        """It waits for its turn, or does not any more."""
        self.host.answer(Held(self.ticket, is_held))

    def emit(self, event: ModelEvent) -> None:
        """A part of the reply."""
        self.host.emit(self.tree_id, self.session, event)


class GatewayHost:
    """Accepts requests as numbered frames and keeps answers until they are acknowledged.

    Args:
        models_of: Returns models by agent, for the name of their equipment.
    """

    def __init__(self, models_of: Callable[[str], Mapping[str, GatewayModel]]) -> None:
        self._equipment: dict[str, str] = {}
        self._core = GatewayCore(lambda tree_id: models_of(self._equipment[tree_id]))
        self._mailbox = Mailbox(self._take)
        self._watched: set[str] = set()
        self.push: Callable[[Sequence[Progress]], bool] = lambda events: False
        """Sends events to the supervisor at once, if that is possible now; returns whether it was."""
        self._has_pushed = False
        """Whether an event was pushed in this turn of the event loop; those that follow go together."""
        self._late: list[Progress] = []
        """Events that follow it."""

    def receive(self, frames: Sequence[tuple[int, GatewayFrame]]) -> None:
        """Accept frames; repeats are dropped, early ones wait for those before them."""
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
        self._equipment[frame.tree_id] = frame.equipment
        tree_id, agent, question = _share_name(frame.tree_id), _share_name(frame.agent), frame.question
        settings = NO_SETTINGS if question.settings == NO_SETTINGS else question.settings
        messages = tuple([share_names(each) for each in question.messages])
        question = replace(question, messages=messages, settings=settings)
        asked = PendingAsk(self, frame.ticket, tree_id, frame.session, agent, frame.kind)
        try:
            self._core.ask(question, asked)
        except Exception as error:  # noqa: BLE001 - an unavailable model fails only this request
            asked.failed(ModelFailure(f"{type(error).__name__}: {error}"))

    def answer(self, answer: GatewayAnswer) -> None:
        """Keep an answer, after the events that came before it."""
        self._push_late()
        self._mailbox.put(answer)

    def emit(self, tree_id: str, session: str, event: ModelEvent) -> None:
        """Show a part of a reply: at once if everything before it has arrived, else after what has not."""
        if tree_id not in self._watched:
            return
        progress = Progress(tree_id, session, event)
        if self._has_pushed:
            self._late.append(progress)
        elif self._mailbox.is_empty and self.push((progress,)):
            self._has_pushed = True
            asyncio.get_running_loop().call_soon(self._push_late)
        else:
            self._mailbox.put(progress)

    def _push_late(self) -> None:
        late, self._late, self._has_pushed = self._late, [], False
        if late and not self.push(late):
            for each in late:
                self._mailbox.put(each)
