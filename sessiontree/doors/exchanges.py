"""What a request asks of a conversation: a message, or the outputs of calls that the client hosts.

All of it is decided by the journal, so that a request which comes again after a loss has the same answer.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any
from weakref import WeakValueDictionary

from sessiontree.contracts.errors import AnswerTooLate, ConfigError, SessionTreeError, ValidationError
from sessiontree.contracts.settings.model_settings import ModelSettings
from sessiontree.contracts.tools.client_tool import build_answer
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.messages import ImageContent
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.doors.conversations import ConflictError, Conversation, Conversations, NotFoundError
from sessiontree.doors.histories import Histories
from sessiontree.doors.principals import DoorPrincipal
from sessiontree.doors.request_keys import RequestKey
from sessiontree.doors.response_log import HostedCall, LoggedResponse, ResponseFold, ResponseLog
from sessiontree.doors.turns import Turn


@dataclass(frozen=True, slots=True)
class Begun:
    """A response that has begun."""

    exchange: DoorExchange
    response_id: str
    turn: Turn | None
    """Its turn, if it begins with a message."""

    @property
    def turn_id(self) -> str:
        """The id of its turn."""
        return self.response_id.partition("-")[0]


class DoorExchange:
    """One conversation as requests and responses.

    Args:
        conversation: The conversation.
    """

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation

    @property
    def log(self) -> ResponseLog:
        """Its responses."""
        return self.conversation.responses

    async def find(self, response_id: str) -> LoggedResponse:
        """Return a response.

        Raises:
            NotFoundError: it has no such response.
        """
        return _find(await self.log.read(), response_id)

    async def find_repeated(self, key: RequestKey) -> str | None:
        """Return the id of the turn that a request with this key began here; None = none did.

        Raises:
            KeyUsedError: a request that asked for something else did.
        """
        return key.find(self.conversation.conversation_id, await self.conversation.log.read())

    async def wait_until_heard(self, turn: Turn) -> None:
        """Wait until a turn that was asked for is in the journal, or is over without it."""
        hearing = asyncio.ensure_future(self.conversation.log.wait_until_heard(turn.turn_id))
        ending = asyncio.ensure_future(turn.end())
        try:
            await asyncio.wait([hearing, ending], return_when="FIRST_COMPLETED")
        finally:
            hearing.cancel()
            ending.cancel()

    def add_instructions(self, instructions: str, text: str) -> str:
        """Return a message with the client's instructions before it, unless the last ones were the same."""
        if not instructions.strip() or instructions == self.conversation.instructions:
            return text
        self.conversation.instructions = instructions
        return f"Instructions of the client:\n\n{instructions}\n\nMessage of the client:\n\n{text}"

    async def send(
        self,
        previous: str | None,
        text: str,
        images: Sequence[ImageContent] = (),
        settings: ModelSettings | None = None,
        turn_id: str | None = None,
    ) -> Turn:
        """Send a message after a response, and return its turn.

        Args:
            previous: Id of the response that it follows; None = it is the first message.
            text: The message.
            images: Images that belong to it.
            settings: Settings of the model until the reply; None = the tree's.
            turn_id: Id of the turn; None = a new one.

        Raises:
            ConflictError: the response goes on, waits for outputs, or is not the newest one.
            ConfigError: the text is empty, or an image is not valid.
        """
        # Race: two requests that continue one response would both find it to be the newest.
        async with self.conversation.deciding:
            if previous is not None:
                await self._check_follows(previous)
            return self.conversation.send(text, images, settings, turn_id=turn_id)

    async def _check_follows(self, previous: str) -> None:
        fold = await self.log.read()
        response = _find(fold, previous)
        if fold.newest is not response:
            raise ConflictError(f"{previous} is not the newest response of its conversation")
        turn = await self.conversation.find_turn(response.turn_id)
        told = () if response.ended is None else response.ended.waiting
        if open_calls := [each for each in told if each.resolved is None]:
            raise ConflictError(f"{previous} waits for the output of {_format_names(open_calls)}")
        if response.ended is None or turn.ended is None:
            raise ConflictError(f"{previous} goes on; wait for its end, or cancel it")

    async def answer(self, outputs: Mapping[str, str]) -> LoggedResponse:
        """Accept outputs of calls that the client hosts, and return the response that begins with them.

        An output that was accepted before changes nothing.

        Args:
            outputs: The outputs, by the id of their call.

        Raises:
            ConflictError: a call has another output already.
            ConfigError: a call is unknown or does not wait any more, or an output can't be a result.
        """
        async with self.conversation.deciding:
            ids = {name: _answer_id(name, text) for name, text in outputs.items()}
            fold = await self.log.read()
            new = [name for name in outputs if _is_new(fold, name, ids[name])]
            for name in new:
                await self._answer(name, outputs[name], ids[name])
            while (response := (await self.log.read()).find_outputs(list(outputs))) is None:
                await self.log.wait()
            return response

    async def _answer(self, call_id: str, text: str, answer_id: str) -> None:
        conversation = self.conversation
        try:
            await conversation.answer_call(call_id, build_answer(call_id, text), answer_id)
        except AnswerTooLate as error:
            # Race: the same output may have been accepted since the look; then nothing is wrong.
            if _is_new(await self.log.read(), call_id, answer_id):
                raise ConfigError(str(error)) from error
        except ValidationError as error:
            raise ConfigError(str(error)) from error

    async def wait_for_end(
        self, response_id: str, turn: Turn | None = None, on_news: Callable[[], None] | None = None
    ) -> LoggedResponse:
        """Wait for the end of a response.

        Args:
            response_id: The response.
            turn: Its turn, if it was asked for just now; says why it is not heard.
            on_news: Called each time the journal was read; None = nobody follows the response.

        Raises:
            SessionTreeError: it was never heard.
            JournalError: the journal can't be read.
        """
        refused = None if turn is None else asyncio.ensure_future(turn.end())
        try:
            if refused is not None and on_news is None and not self.conversation.hosted:
                await asyncio.wait([refused])  # only its turn's end ends it: nothing before that is read
            fold = await self.log.read()
            while True:
                found = fold.responses.get(response_id)
                if on_news is not None:
                    on_news()
                if found is not None and found.ended is not None:
                    return found
                if found is None and refused is not None and refused.done():
                    raise SessionTreeError(refused.result().error or "the message was not heard")
                await self.wait(refused if found is None else None)
        finally:
            if refused is not None:
                refused.cancel()

    async def heard(self, begun: Begun) -> LoggedResponse:
        """Wait until a response has begun, and return it.

        Raises:
            SessionTreeError: its message was never heard.
        """
        await self.conversation.log.wait_until_heard(begun.turn_id)
        found = (await self.log.read()).responses.get(begun.response_id)
        if found is None:
            raise SessionTreeError("the conversation has ended, and takes no message any more")
        return found

    async def wait(self, other: asyncio.Future[Any] | None = None) -> None:
        """Wait for news in the journal, and take them in; or for something else."""
        if other is None:
            return await self.log.wait()
        news = asyncio.ensure_future(self.log.wait())
        try:
            await asyncio.wait([news, other], return_when="FIRST_COMPLETED")
            if news.done():
                news.result()
        finally:
            news.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait([news])


class DoorExchanges:
    """The conversations of one door as requests and responses.

    Args:
        conversations: The conversations.
    """

    def __init__(self, conversations: Conversations) -> None:
        self.conversations = conversations
        self._histories: Histories | None = None
        # Weak, so that a lock is forgotten with the last request that holds it.
        self._keys: WeakValueDictionary[RequestKey, asyncio.Lock] = WeakValueDictionary()

    def lock_for(self, key: RequestKey) -> asyncio.Lock:
        """Return what a request with a key holds until it has begun: the same one, sent again, waits."""
        return self._keys.setdefault(key, asyncio.Lock())

    @property
    def histories(self) -> Histories:
        """By which histories clients continue responses."""
        if self._histories is None:
            self._histories = Histories(self.conversations.state_dir)
        return self._histories

    async def begin(
        self,
        principal: DoorPrincipal,
        agent: str,
        declared: Mapping[str, Mapping[str, JsonValue]],
        *,
        is_kept: bool = True,
        key: RequestKey | None = None,
    ) -> DoorExchange:
        """Begin a conversation; one that a request with the same key began is found again.

        Args:
            principal: Whose it is.
            agent: Main's agent.
            declared: What the client declares of the tools that it hosts, by name.
            is_kept: Whether its responses are found by their ids later.
            key: Names the request; None = it is not sent again.

        Raises:
            ConfigError: it can't be begun.
        """
        tree_id = None if key is None else key.tree_id()
        if tree_id is not None:
            with suppress(NotFoundError):
                return DoorExchange(await self.conversations.find(principal, tree_id, is_named=False))
        begin = self.conversations.begin
        made = await begin(principal, agent, hosted=declared, is_kept=is_kept, tree_id=tree_id)
        return DoorExchange(made)

    async def at(
        self, exchange: DoorExchange, response_id: str, key: RequestKey | None = None
    ) -> DoorExchange:
        """Return the exchange in which a response is the newest one: this, or a fork at its end.

        A request whose key is known here has begun here; one that began in a fork finds the same fork.

        Raises:
            ConflictError: the conversation can't be forked there.
            ConfigError: too many trees are open.
        """
        fold = await exchange.log.read()
        response = _find(fold, response_id)
        if key is not None and await exchange.find_repeated(key) is not None:
            return exchange
        if fold.newest is response or response.ended is None:
            return exchange
        if not response.ended.is_run or response.ended.waiting:
            raise ConflictError(f"{response_id} waited for outputs; continue a response that ends a turn")
        conversation = exchange.conversation
        tree_id = None if key is None else key.tree_id(conversation.conversation_id)
        return DoorExchange(await self.conversations.fork(conversation, response.ended.seq, tree_id))

    async def find(
        self, principal: DoorPrincipal, response_id: str, held: ExitStack, *, is_named: bool = True
    ) -> DoorExchange:
        """Return the exchange that a response belongs to.

        Args:
            principal: Whose it is.
            response_id: The response.
            held: Lets its conversation go when it is closed; until then, its tree stays open.
            is_named: Whether the client names it, which it can't do if it wanted nothing to be kept.

        Raises:
            NotFoundError: the principal has no such response.
            ConfigError: too many trees are open.
        """
        turn_id = response_id.partition("-")[0]
        try:
            conversation = await self.conversations.find_by_turn(principal, turn_id, is_named=is_named)
        except NotFoundError:
            # The same words as for an id that nobody has: what others made does not exist here.
            raise NotFoundError(f"nothing is called {response_id[:100]!r}") from None
        # Race: it is entered before anything is awaited. A request that needs room would otherwise close it,
        # because nobody uses it.
        found = DoorExchange(held.enter_context(conversation))
        await found.find(response_id)
        return found


def _find(fold: ResponseFold, response_id: str) -> LoggedResponse:
    """Return a response.

    Raises:
        NotFoundError: the conversation has no such response.
    """
    found = fold.responses.get(response_id)
    if found is None:
        raise NotFoundError(f"nothing is called {response_id[:100]!r}")
    return found


def _answer_id(call_id: str, text: str) -> str:
    """Return what names an output: the same output of a call has the same name for ever."""
    return hashlib.sha256(f"{call_id}\n{text}".encode()).hexdigest()[:32]


def _is_new(fold: ResponseFold, call_id: str, answer_id: str) -> bool:
    """Return whether a call waits for an output; False = it has this one.

    Raises:
        ConflictError: it has another output.
        ConfigError: it is unknown, or does not wait any more.
    """
    call = fold.calls.get(call_id)
    if call is None:
        raise ConfigError(f"no call {call_id[:100]!r} waits for an output")
    if call.resolved is None:
        return True
    if not call.answer_id:
        raise ConfigError(f"the call {call_id} does not wait any more: it expired, or was cancelled")
    if call.answer_id != answer_id:
        raise ConflictError(f"the call {call_id} has another output already")
    return False


def _format_names(calls: Sequence[HostedCall]) -> str:
    return ", ".join(f"{each.tool} ({each.call_id})" for each in calls)
