"""One conversation as an editor has it open: its updates as they happen, its prompts, and what is asked."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

from acp import RequestError
from acp.interfaces import Client
from acp.schema import AcceptElicitationResponse, ElicitationFormSessionMode
from pydantic import ValidationError

from sessiontree.api.trajectories.request_edges import RequestEdges
from sessiontree.contracts.errors import ConfigError, SessionTreeError
from sessiontree.contracts.facts.session_facts import RunFinished
from sessiontree.contracts.recorded.approvals import ApprovalAnswer, ApprovalRequest
from sessiontree.contracts.recorded.questions import QuestionReply, QuestionRequest, Surface
from sessiontree.contracts.reports.events import ToolExecutionUpdate
from sessiontree.contracts.values.jsonable import dump_readable
from sessiontree.contracts.values.messages import ImageContent
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.contracts.values.session_ids import MAIN
from sessiontree.doors.acp.elicitations import build_form, format_questions, read_reply
from sessiontree.doors.acp.options import ModelChoice, list_tiers
from sessiontree.doors.acp.permissions import list_options, parse_answer, render_call
from sessiontree.doors.acp.replies import make_message_chunk
from sessiontree.doors.acp.tool_calls import make_progress, make_text_content
from sessiontree.doors.acp.updates import TreeUpdates, Update
from sessiontree.doors.conversations import Conversation
from sessiontree.doors.principals import name_tier_group
from sessiontree.doors.turns import Turn
from sessiontree.journal.record import JournalRecord, read_kind
from sessiontree.runtime.transport.progress import Progress, ProgressReader

MAX_PROMPTS: Final = 16
"""Most prompts of one session that are open at once."""
_ENDS_A_REPLY: Final = frozenset({"turn_replied", "reply_cut", "turn_failed", "turn_cut"})
StopReason: TypeAlias = Any
"""A reason of the protocol why a prompt has ended."""


class Withdrawing(Protocol):
    """Lets the client know that it need not answer any more."""

    async def withdraw(self, asked: str) -> None:
        """Withdraw what was asked about a request for an approval, or about a question."""
        ...


class DeskClosedError(Exception):
    """What shows requests was closed before it showed one."""


class EditorDesk(Protocol):
    """What shows requests and questions in an editor."""

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        """Show a request and return the answer; None = it is not answered here.

        Raises:
            DeskClosedError: it was closed first.
        """
        ...

    async def ask_question(self, question: QuestionRequest) -> QuestionReply | None:
        """Show a question and return the answer; None = it is not answered here."""
        ...


class EditorChannel:
    """Asks in the editor that has opened the tree.

    Args:
        owners: Ids of the senders whose answers count.
    """

    surface: Surface = "editor"

    def __init__(self, owners: Sequence[str] = ()) -> None:
        self.owners = owners
        self._asker: asyncio.Future[EditorDesk] = asyncio.get_running_loop().create_future()

    def show_in(self, asker: EditorDesk) -> None:
        """Ask by ``asker`` from now on, and what waits already first."""
        if self._asker.done():
            self._asker = asyncio.get_running_loop().create_future()
        self._asker.set_result(asker)

    def stop_showing(self, asker: EditorDesk) -> None:
        """Let what is asked from now on wait for the next asker, if ``asker`` is the one that there is."""
        if self._asker.done() and self._asker.result() is asker:
            self._asker = asyncio.get_running_loop().create_future()

    async def send(self, text: str) -> None:
        """Do nothing: messages are facts of the tree, which the editor follows."""

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        """Ask in the editor, once it shows the tree."""
        while True:
            # A request that is withdrawn must not cancel the future that others wait for.
            asker = await asyncio.shield(self._asker)
            # Race: the tree may be loaded again before the request is shown; then the next asker shows it.
            with suppress(DeskClosedError):
                return await asker.ask(request)

    async def ask_question(self, question: QuestionRequest) -> QuestionReply | None:
        """Ask in the editor, once it shows the tree."""
        asker = await asyncio.shield(self._asker)
        return await asker.ask_question(question)


@dataclass(slots=True)
class _Prompt:
    """A prompt without an answer."""

    stopped: asyncio.Future[StopReason] = field(repr=False)
    finished: RunFinished | None = None
    """The end of the run that answers it; children may go on."""
    is_cancelled: bool = False


@dataclass(frozen=True, slots=True)
class Editor:
    """The other side of a connection, and what it can show."""

    client: Client
    withdrawing: Withdrawing
    has_forms: bool
    """Whether it shows forms for questions."""


class EditorSession:
    """A conversation that is open in an editor; its tree stays open until this is closed.

    Args:
        conversation: The conversation.
        editor: Where it is shown.
        root: The workspace.
        models: What may answer in it, first what does.
    """

    def __init__(
        self, conversation: Conversation, editor: Editor, root: Path, models: Sequence[ModelChoice]
    ) -> None:
        self.conversation = conversation.__enter__()
        self.root = root
        self.models = models
        self._editor = editor
        self._prompts: dict[str, _Prompt] = {}
        self._updates = TreeUpdates(root, models[0].context_tokens, self._prompts.__contains__)
        self.edges = RequestEdges()
        """Edges between the requests of its tree, for answers to prompts."""
        self._facts = conversation.tree.events()
        self._progress: ProgressReader = conversation.tree.progress()
        self._arrived: deque[tuple[Progress, int]] = deque()
        self._seq = 0
        """Number of the newest fact that is shown."""
        self._cancelled_seq = 0
        """Number of the newest fact when the turn was last cancelled."""
        self._moved = asyncio.Condition()
        """Held while updates are sent, so that they keep their order; notified after each fact."""
        self._is_closed = False
        self._tasks: list[asyncio.Task[None]] = []
        self.tier: str = self.most_tier
        """The highest tier of calls for prompts that follow."""

    @property
    def most_tier(self) -> str:
        """The tier of its principal's rights."""
        return self.conversation.principal.rights.tier

    @property
    def has_prompts(self) -> bool:
        """Whether a prompt has no answer yet."""
        return bool(self._prompts)

    @property
    def _is_cancelling(self) -> bool:
        return any(prompt.is_cancelled for prompt in self._prompts.values())

    @property
    def session_id(self) -> str:
        """Its id, which is that of its tree."""
        return self.conversation.conversation_id

    async def replay(self, *, is_shown: bool) -> None:
        """Read the facts until now, and send what they show if that is wanted.

        Raises:
            SessionTreeError: the journal can't be read.
        """
        last = await self.conversation.log.last_seq()
        while self._seq < last:
            record = await anext(self._facts, None)
            if record is None:  # Main has ended
                break
            self.edges.add(record, is_past=True)
            for update in self._updates.take(record):
                if is_shown:
                    await self._send(update)
            self._seq = record.seq
        for tier in list_tiers(self.most_tier)[:-1]:  # what was chosen holds until something else is
            if self._updates.group == name_tier_group(tier):
                self.tier = tier

    def begin(self, notice: str = "") -> None:
        """Send updates from now on, and ask what waits.

        Args:
            notice: What the person is shown first; empty = nothing.
        """
        self._tasks = [asyncio.create_task(self._follow()), asyncio.create_task(self._watch())]
        channel = self.conversation.tree.channel
        if isinstance(channel, EditorChannel):
            channel.show_in(self)
        if notice:
            self._tasks.append(asyncio.create_task(self._say(notice)))

    async def close(self) -> None:
        """Stop sending; the tree is closed by whoever keeps conversations."""
        channel = self.conversation.tree.channel
        if isinstance(channel, EditorChannel):
            channel.stop_showing(self)
        self._progress.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        async with self._moved:
            self._is_closed = True
            self._moved.notify_all()
        await self._facts.aclose()
        for prompt in self._prompts.values():
            _stop(prompt, "cancelled")
        self.conversation.__exit__()

    async def prompt(self, text: str, images: tuple[ImageContent, ...]) -> StopReason:
        """Send a message, and return why its turn ended, once all updates of it are sent.

        A turn has ended when Main has answered and no child is about to report to it.

        Raises:
            ConfigError: the message is not valid, or too many prompts are open.
            RequestError: the turn failed.
        """
        if len(self._prompts) >= MAX_PROMPTS:
            raise ConfigError(f"{MAX_PROMPTS} prompts of this session are open; wait for one to end")
        group = "" if self.tier == self.most_tier else name_tier_group(self.tier)
        turn = self.conversation.send(text, images, group=group)
        prompt = self._prompts[turn.turn_id] = _Prompt(asyncio.get_running_loop().create_future())
        ending = asyncio.create_task(self._end_unheard(turn, prompt))
        try:
            return await prompt.stopped
        finally:
            ending.cancel()
            del self._prompts[turn.turn_id]

    async def _end_unheard(self, turn: Turn, prompt: _Prompt) -> None:
        """End a prompt that no fact will end: its message was not taken, or the tree has ended."""
        end = await turn.end()
        if end.error is None:
            return
        # A turn that was heard is ended by its fact, after the updates before it.
        heard = (await self.conversation.log.read()).get(turn.turn_id)
        if heard is None or heard.ended is None:
            _fail(prompt, end.error)

    async def cancel(self) -> None:
        """Interrupt what the tree does; open prompts end as cancelled once it has stopped."""
        for prompt in self._prompts.values():
            prompt.is_cancelled = True
        with suppress(SessionTreeError):  # it has ended
            await self.conversation.interrupt()
            # Prompts end as cancelled only when all facts up to here are shown.
            self._cancelled_seq = await self.conversation.log.last_seq()
        self._settle()

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        """Show a request after the call that it is about; one that is decided elsewhere is withdrawn.

        Raises:
            DeskClosedError: it was closed before the call was shown.
        """
        shown = self._updates.requests
        async with self._moved:
            await self._moved.wait_for(lambda: self._is_closed or request.request_id in shown)
        if request.request_id not in shown:
            raise DeskClosedError
        call_id = shown[request.request_id]
        try:
            response = await self._editor.client.request_permission(
                self.session_id, render_call(request, call_id, self.root), list_options(request)
            )
        except asyncio.CancelledError:
            with suppress(ConnectionError):
                await self._editor.withdrawing.withdraw(request.request_id)
            raise
        except (RequestError, ValidationError, ConnectionError):
            await self._say("The editor did not answer the request for a permission; it waits in the tree.")
            return None
        answer = parse_answer(request, response, self.conversation.principal.sender)
        # A turn that is cancelled ends its requests itself.
        if answer is None and not self._is_cancelling:
            await self._say("No permission was given or refused; the request waits in the tree.")
        return answer

    async def ask_question(self, question: QuestionRequest) -> QuestionReply | None:
        """Show a question as a form, or else as a message; then it waits for another surface."""
        text = format_questions(question.items)
        if not self._editor.has_forms:
            await self._say(f"{text}\n(The question waits in the tree for an answer.)")
            return None
        mode = ElicitationFormSessionMode(
            session_id=self.session_id, requested_schema=build_form(question.items)
        )
        try:
            meta = {"request": question.question_id}
            response = await self._editor.client.create_elicitation(text, mode, sessiontree=meta)
        except asyncio.CancelledError:
            with suppress(ConnectionError):
                await self._editor.withdrawing.withdraw(question.question_id)
            raise
        except (RequestError, ValidationError, ConnectionError):
            response = None
        if not isinstance(response, AcceptElicitationResponse):
            if not self._is_cancelling:
                await self._say("The question was not answered in the editor; it waits in the tree.")
            return None
        return read_reply(question.items, response.content or {}, self.conversation.principal.sender)

    async def _say(self, text: str) -> None:
        await self._send(make_message_chunk(text, f"notice.{self._seq}"))

    async def _send(self, update: Update) -> None:
        with suppress(ConnectionError):  # the client has gone; the process ends soon
            await self._editor.client.session_update(self.session_id, update)

    async def _follow(self) -> None:
        try:
            async for record in self._facts:
                async with self._moved:
                    if record.session == MAIN and read_kind(record.text) in _ENDS_A_REPLY:
                        await self._catch_up()
                    self.edges.add(record, is_past=False)
                    for update in self._updates.take(record):
                        await self._send(update)
                    self._seq = record.seq
                    self._moved.notify_all()
                self._note(record)
        except SessionTreeError as error:
            for prompt in self._prompts.values():
                _fail(prompt, str(error))
        for prompt in self._prompts.values():
            _fail(prompt, "the session has ended")

    async def _watch(self) -> None:
        with suppress(SessionTreeError):
            async for progress in self._progress:
                self._arrived.append((progress, self._progress.dropped))
                async with self._moved:
                    await self._send_progress()

    async def _catch_up(self) -> None:
        """Send the pieces of a reply that came before the fact that it has ended."""
        await self._progress.catch_up()
        self._arrived += [(progress, self._progress.dropped) for progress in self._progress.drain()]
        await self._send_progress()

    async def _send_progress(self) -> None:
        while self._arrived:
            for update in self._on_progress(*self._arrived.popleft()):
                await self._send(update)

    def _on_progress(self, progress: Progress, dropped: int) -> Iterator[Update]:
        if progress.session != MAIN:
            return
        event = progress.event
        if not isinstance(event, ToolExecutionUpdate):
            yield from self._updates.replies.take(event, dropped)
        elif (call_id := self._updates.call_running(event.tool_call_id)) is not None:
            said = event.partial if isinstance(event.partial, str) else dump_readable(event.partial)
            yield make_progress(call_id, "in_progress", [make_text_content(said)])

    def _note(self, record: JournalRecord) -> None:
        """End the prompts that a record answers."""
        if record.session == MAIN:
            for fact in record.facts:
                if isinstance(fact, RunFinished):
                    for turn_id in fact.answers:
                        if (prompt := self._prompts.get(turn_id)) is not None:
                            prompt.finished = fact
        self._settle()

    def _settle(self) -> None:
        for prompt in self._prompts.values():
            if prompt.is_cancelled and self._cancelled_seq and self._seq >= self._cancelled_seq:
                _stop(prompt, "cancelled")
            elif prompt.finished is not None and (prompt.finished.error or self._updates.is_idle):
                _finish(prompt, prompt.finished)


def _finish(prompt: _Prompt, finished: RunFinished) -> None:
    if finished.interrupted or (prompt.is_cancelled and finished.error):
        _stop(prompt, "cancelled")
    elif finished.failure == "length":
        _stop(prompt, "max_tokens")
    elif finished.failure == "refusal":
        _stop(prompt, "refusal")
    elif finished.error is None:
        _stop(prompt, "end_turn")
    elif finished.error.startswith("max_turns "):
        _stop(prompt, "max_turn_requests")
    else:
        _fail(prompt, finished.error)


def _stop(prompt: _Prompt, reason: StopReason) -> None:
    if not prompt.stopped.done():
        prompt.stopped.set_result(reason)


def _fail(prompt: _Prompt, reason: str) -> None:
    if not prompt.stopped.done():
        prompt.stopped.set_exception(RequestError.internal_error({"details": reason}))
