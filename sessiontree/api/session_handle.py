"""A session as the creating program holds it.

Long because ``spawn`` and ``map`` tell type checkers twice what they return.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Generator, Iterator, Mapping, Sequence
from typing import (
    Any,
    Generic,
    Literal,
    NoReturn,
    TypeAlias,
    TypeVar,
    cast,
    get_args,
    overload,
)

from sessiontree.api.backend import Backend, OwnerPort
from sessiontree.api.inbox import HumanInbox
from sessiontree.api.options import ApproverLike, split_approver
from sessiontree.api.program_hooks import ProgramHooks
from sessiontree.contracts.errors import (
    ConfigError,
    EngineLost,
    SessionClosed,
    SessionError,
    SessionFailed,
    SessionInterrupted,
    SessionTreeError,
)
from sessiontree.contracts.events import TextDelta
from sessiontree.contracts.jsonable import JsonValue, to_json_value
from sessiontree.contracts.kinds import SessionKind, SessionStatus
from sessiontree.contracts.limits import Budget
from sessiontree.contracts.messages import Message
from sessiontree.contracts.ports import SessionReport
from sessiontree.contracts.results import R, SessionResult
from sessiontree.contracts.senders import Sender, sender_of
from sessiontree.contracts.session_ids import MAIN
from sessiontree.contracts.stimuli import SendMode
from sessiontree.contracts.suggestion import meant
from sessiontree.contracts.tool_reply import ToolReply
from sessiontree.runtime.replay import fact_of
from sessiontree.runtime.replies import Reply, tool_reply
from sessiontree.schema.result import result_schema_of, result_value
from sessiontree.session.evolve import evolve
from sessiontree.session.state import SessionState, initial
from sessiontree.tree import stimuli as tree_stimuli
from sessiontree.tree.receipt import ReceiptLine

OnError: TypeAlias = Literal["return", "raise", "first"]
ON_ERROR = get_args(OnError)
SEND_MODES = get_args(SendMode)
SHOWN_CHARS = 80
FACTS_PER_PAGE = 512
"""How many facts of a transcript are read at a time."""
T = TypeVar("T")


class PendingReply:
    """The reply to a message on its way: await it for the text, or iterate over it for the text's pieces."""

    def __init__(
        self,
        task: asyncio.Task[Reply | SessionClosed | EngineLost],
        session: str,
        backend: Backend,
        tree_id: str,
    ) -> None:
        """Bind the reply's task."""
        self._task = task
        self._session = session
        self._backend = backend
        self._tree_id = tree_id

    def __await__(self) -> Generator[Any, None, str]:
        """Return the last word; may be awaited again, also after a time-out.

        Raises:
            SessionInterrupted: somebody interrupted the session.
            SessionFailed: the run stopped short; says why.
            SessionClosed: the session ended first.
            EngineLost: the Ray that the tree runs on is gone.
        """
        return self._wait().__await__()

    def __iter__(self) -> NoReturn:
        """Say what to write: pieces come with ``async for``.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(
            "write `async for piece in session.send(…)`, or `text = await session.send(…)`; without await: "
            "sessiontree.sync, `for piece in session.stream(…)`"
        )

    async def _wait(self) -> str:
        reply = await asyncio.shield(self._task)
        if isinstance(reply, SessionClosed | EngineLost):
            raise reply
        if reply.error is not None:
            raise (SessionInterrupted if reply.interrupted else SessionFailed)(self._session, reply.error)
        return reply.text

    async def __aiter__(self) -> AsyncIterator[str]:
        """Yield pieces of the replies' text as they come; ends when the last word is there.

        What was said before the iteration began is not repeated.
        """
        watching = self._backend.watch(self._tree_id, self._session)
        try:
            while not self._task.done():
                news = asyncio.ensure_future(watching.next())
                try:
                    await asyncio.wait((news, self._task), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    news.cancel()
                if news.done():
                    event = news.result().event
                    if isinstance(event, TextDelta):
                        yield event.delta
            await watching.catch_up()
            for progress in watching.drain():
                if isinstance(progress.event, TextDelta):
                    yield progress.event.delta
        finally:
            watching.close()
        await self._wait()


class SessionHandle(Generic[R]):
    """One session of a tree, and the type of its result. Cheap; several may stand for the same session."""

    def __init__(
        self,
        backend: Backend,
        desk: HumanInbox,
        tree_id: str,
        session_id: str,
        result_type: Any = None,
        *,
        hooks: ProgramHooks | None = None,
    ) -> None:
        """Bind a session."""
        self.session_id = session_id
        self._backend = backend
        self._desk = desk
        self._tree_id = tree_id
        self._result_type = result_type
        self._hooks = hooks

    def __repr__(self) -> str:
        """Name tree and session."""
        return f"<session {self.session_id} of tree {self._tree_id}>"

    @overload
    async def spawn(
        self,
        kind: SessionKind | str,
        task: str,
        *,
        label: str | None = ...,
        agent: str | None = ...,
        result_type: type[T],
        budget: Budget | None = ...,
        approver: ApproverLike = ...,
        ttl_s: float | None = ...,
        dedicated: bool = ...,
        stays_open: bool | None = ...,
    ) -> SessionHandle[T]: ...

    @overload
    async def spawn(
        self,
        kind: SessionKind | str,
        task: str,
        *,
        label: str | None = ...,
        agent: str | None = ...,
        result_type: Any = ...,
        budget: Budget | None = ...,
        approver: ApproverLike = ...,
        ttl_s: float | None = ...,
        dedicated: bool = ...,
        stays_open: bool | None = ...,
    ) -> SessionHandle[Any]: ...

    async def spawn(  # noqa: PLR0913 - keyword-only settings of the public API
        self,
        kind: SessionKind | str,
        task: str,
        *,
        label: str | None = None,
        agent: str | None = None,
        result_type: Any = None,
        budget: Budget | None = None,
        approver: ApproverLike = None,
        ttl_s: float | None = None,
        dedicated: bool = False,
        stays_open: bool | None = None,
    ) -> SessionHandle:
        """Start a child and return its handle.

        A Branch stays open, to be spawned from, called and spoken to, until its :meth:`result` is asked for,
        or that of a session above it: its reply to the task does not end it before. A Worker ends with its
        reply.

        Args:
            kind: ``branch`` or ``worker``.
            task: Its first message.
            label: Name among its siblings.
            agent: Agent it runs as; None = this session's.
            result_type: Type its final text must fit: a pydantic model, dataclass, TypedDict, plain type, or
                a JSON Schema as a mapping.
            budget: What is set aside for it; None = it draws on what this session has left.
            approver: Who answers what climbs to it: rules, ``module:name`` of a function, or a callable here.
            ttl_s: Time to live, from its first host on; None = its kind's.
            dedicated: Whether it keeps a host of its own for life, never giving way to others.
            stays_open: Whether it completes only once its result is asked for; None = a Branch does, a Worker
                does not. One that nobody asks completes when its time to live is over or the tree ends.

        Raises:
            SpawnRefused, LimitExceeded: a rule or number forbids it; nothing was started.
            ConfigError: an argument is wrong.
        """
        _check_settings(budget, ttl_s)
        rules, function, channel = split_approver(approver)
        spawned = kind_of(kind)
        asked = tree_stimuli.SpawnAsked(
            0,
            self.session_id,
            spawned,
            _text(task, "task"),
            "handle",
            label=None if label is None else _text(label, "label"),
            agent=agent,
            result_schema=_schema_of(result_type),
            budget=budget,
            rules=rules,
            approver=function,
            owns_channel=channel is not None,
            ttl_s=ttl_s,
            dedicated=dedicated,
            stays_open=spawned is SessionKind.BRANCH if stays_open is None else stays_open,
            key=secrets.token_hex(16),
        )
        if self._hooks is not None:
            asked = await self._hooks.judged(asked)
        session_id = await self._owner.spawn(self._tree_id, asked)
        if channel is not None:
            self._desk.attach(session_id, channel)
        return SessionHandle(
            self._backend, self._desk, self._tree_id, session_id, result_type, hooks=self._hooks
        )

    @overload
    async def map(
        self,
        kind: SessionKind | str,
        tasks: Sequence[str],
        *,
        concurrency: int = ...,
        on_error: OnError = ...,
        labels: Sequence[str] | None = ...,
        agent: str | None = ...,
        result_type: type[T],
        budget: Budget | None = ...,
        ttl_s: float | None = ...,
    ) -> list[SessionResult[T]]: ...

    @overload
    async def map(
        self,
        kind: SessionKind | str,
        tasks: Sequence[str],
        *,
        concurrency: int = ...,
        on_error: OnError = ...,
        labels: Sequence[str] | None = ...,
        agent: str | None = ...,
        result_type: Any = ...,
        budget: Budget | None = ...,
        ttl_s: float | None = ...,
    ) -> list[SessionResult[Any]]: ...

    async def map(  # noqa: PLR0913 - keyword-only settings of the public API
        self,
        kind: SessionKind | str,
        tasks: Sequence[str],
        *,
        concurrency: int = 8,
        on_error: OnError = "return",
        labels: Sequence[str] | None = None,
        agent: str | None = None,
        result_type: Any = None,
        budget: Budget | None = None,
        ttl_s: float | None = None,
    ) -> list[SessionResult[Any]]:
        """Run one child per task, some at a time, and return their results in the tasks' order.

        Args:
            kind: ``branch`` or ``worker``.
            tasks: First messages.
            concurrency: Most children at a time; the tree's ``max_children`` bounds it too.
            on_error: ``return`` gives failed results like others; ``raise`` raises the first failure once all
                have ended; ``first`` cancels the others at the first failure and raises it.
            labels: Their names among their siblings, one for each task; None = they have none.
            agent: Agent they run as.
            result_type: Type each final text must fit.
            budget: What is set aside for each.
            ttl_s: Time to live of each, from its first host on; None = its kind's.

        Raises:
            SessionFailed: a child did not complete (``raise``, ``first``).
            SpawnRefused, LimitExceeded: a child was refused; those that live are cancelled first.
            ConfigError: an argument is wrong; nothing was started.
        """
        if not isinstance(concurrency, int) or concurrency < 1:
            raise ConfigError(f"concurrency is {concurrency!r}; it must be a whole number, at least 1")
        _one_of(on_error, ON_ERROR, "on_error")
        if isinstance(tasks, str):
            raise ConfigError(f"tasks must be texts in a list, not one text: {tasks[:SHOWN_CHARS]!r}")
        words = [_text(task, "task") for task in tasks]
        names = _labels_of(labels, len(words))
        _check_settings(budget, ttl_s)
        results: list[SessionResult[Any] | None] = [None] * len(words)
        slots = asyncio.Semaphore(min(concurrency, self._room()))

        async def run(index: int) -> None:
            async with slots:
                spawning = asyncio.ensure_future(
                    self.spawn(
                        kind,
                        words[index],
                        label=names[index],
                        agent=agent,
                        result_type=result_type,
                        budget=budget,
                        ttl_s=ttl_s,
                        stays_open=False,
                    )
                )
                try:
                    child = await asyncio.shield(spawning)
                    result = await child.result()
                except asyncio.CancelledError:
                    # Whether it lives already or is only on its way, nobody waits for it any more.
                    await asyncio.shield(_take_back(spawning))
                    raise
                results[index] = result
                if on_error == "first":
                    _raise_failure(child.session_id, result)

        try:
            async with asyncio.TaskGroup() as group:
                for index in range(len(words)):
                    group.create_task(run(index))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        finished = [result for result in results if result is not None]
        if on_error == "raise":
            for result in finished:
                _raise_failure(f"{self.session_id}/…", result)
        return finished

    @property
    def _owner(self) -> OwnerPort:
        """The way to the supervisor, for who is on the tree's event loop."""
        self._desk.check_loop()
        return self._backend.owner

    def _room(self) -> int:
        """Return how many more children the session may have now, at least 1 so that a refusal is told."""
        return max(1, self._owner.room(self._tree_id, self.session_id))

    async def call(self, tool: str, arguments: Mapping[str, Any] | None = None) -> ToolReply:
        """Make one tool call in the session, outside its transcript, by the same gates as a model's call.

        ReadOnly calls run at once; others wait for the end of the session's turn. Approvals climb from here.

        Raises:
            ValidationError, PermissionDenied, Timeout, ExecutionError: as the call ended.
            SessionClosed, SessionNotFound: the session takes no calls.
        """
        name = _text(tool, "tool")
        try:
            given = to_json_value({} if arguments is None else arguments)
        except RecursionError as error:
            raise ConfigError(f"arguments of {name!r} are nested too deeply, or hold themselves") from error
        if not isinstance(given, dict):
            raise ConfigError(f"arguments of {name!r} must be a mapping of names to values")
        call_id = secrets.token_hex(16)
        reply = await self._owner.call(self._tree_id, self.session_id, call_id, name, given)
        return tool_reply(reply)

    def send(
        self, text: str, mode: SendMode = "follow_up", *, sender: Sender | str | None = None
    ) -> PendingReply:
        """Say something to the session.

        Args:
            text: The message.
            mode: ``follow_up`` waits for the end of the turn; ``steer`` stops running tools and forces the
                next turn.
            sender: Who says it, or their id, where the program hears several people; whether they own the
                tree is looked up. None = the program itself, an owner.

        Returns:
            The reply to come: await it, or iterate over its pieces.

        Raises:
            ConfigError: the text is empty, there is no such mode, or the sender is none.
        """
        _one_of(mode, SEND_MODES, "mode")
        message_id = secrets.token_hex(16)
        words = _text(text, "text")
        task = asyncio.create_task(self._deliver(words, mode, message_id, sender_of(sender)))
        return PendingReply(task, self.session_id, self._backend, self._tree_id)

    async def _deliver(
        self, text: str, mode: SendMode, message_id: str, sender: Sender | None
    ) -> Reply | SessionClosed | EngineLost:
        """Return the reply, or as a value that there will be none: not everybody who sends waits for one."""
        place = (self._tree_id, self.session_id)
        try:
            return await self._owner.send(*place, text, mode, message_id, sender)
        except (SessionClosed, EngineLost) as closed:
            return closed

    async def result(self) -> SessionResult[R]:
        """Return how the session ended, waiting for it; ``output`` is of the asked type.

        Raises:
            SessionError: it is Main, which never completes by itself, and nobody ends it.
        """
        owner = self._owner
        if self.session_id == MAIN and not owner.is_ending(self._tree_id):
            raise SessionError(
                MAIN,
                "main never completes by itself, so there is no result to wait for; ask with send(…), or end "
                "the tree with tree.finish(…) or tree.cancel() first",
            )
        result = await owner.result(self._tree_id, self.session_id)
        if self._result_type is None or result.output is None or _is_schema(self._result_type):
            return result
        value = result_value(self._result_type, result.output)
        return SessionResult(
            result.status, result.summary, value, result.artifacts, result.memory_ids, result.usage
        )

    async def cancel(self, reason: str = "cancelled by the program") -> tuple[ReceiptLine, ...]:
        """End the session and everything below it.

        Returns:
            The receipt: every session of the subtree and how it ended.

        Raises:
            ConfigError: the reason is no text.
        """
        if not isinstance(reason, str):
            raise ConfigError(f"reason must be text, not {reason!r}")
        return await self._owner.stop(self._tree_id, self.session_id, reason, SessionStatus.CANCELLED)

    async def interrupt(self, reason: str = "interrupted by the program") -> tuple[ReceiptLine, ...]:
        """Drop whatever the session does, and keep it: what is said to it next is heard at once.

        Its running tools are told to stop, its model is waited for no more, and so it goes for everything
        below it; what a model spawned there ends ``cancelled``, for its work is over. Whoever awaits a reply
        or a call of theirs gets an error. Returns once all of it has stopped.

        Returns:
            Every session of the subtree and how it stands.

        Raises:
            SessionClosed, SessionNotFound: there is no such live session.
            ConfigError: the reason is no text.
        """
        if not isinstance(reason, str):
            raise ConfigError(f"reason must be text, not {reason!r}")
        await asyncio.sleep(0)  # messages sent just before are on their way first
        return await self._owner.interrupt(self._tree_id, self.session_id, reason)

    def status(self) -> SessionReport:
        """Return the session's standing now."""
        return self._owner.report(self._tree_id, self.session_id)

    def history(self, *, after: int = 0, limit: int | None = None) -> list[Message]:
        """Return messages of the session's transcript, oldest first, as far as it is durable.

        It is read from its beginning, whatever is returned; :meth:`transcript` is better for a long one.

        Args:
            after: How many of the oldest messages to leave out.
            limit: Most messages returned; None = all there are.

        Raises:
            ConfigError: a number is none, or below 0.
        """
        _check_count(after, "after")
        if limit is not None:
            _check_count(limit, "limit")
        found: list[Message] = []
        for messages in self._pages():
            found += messages[after:]
            after = max(0, after - len(messages))
            if limit is not None and len(found) >= limit:
                break
        return found[:limit]

    async def transcript(self, *, after: int = 0) -> AsyncIterator[Message]:
        """Iterate over the messages of the session's transcript, oldest first, as far as it is durable.

        Read page by page, with others' turns in between, however long it is.

        Args:
            after: How many of the oldest messages to leave out.

        Raises:
            ConfigError: the number is none, or below 0.
        """
        _check_count(after, "after")
        for messages in self._pages():
            for message in messages[after:]:
                yield message
            after = max(0, after - len(messages))
            await asyncio.sleep(0)

    def _pages(self) -> Iterator[list[Message]]:
        """Yield what joined the transcript with some facts, then with those after them."""
        seq, state = 0, cast("SessionState | None", None)
        while state is None or seq:
            record = self._owner.record_of(self._tree_id, self.session_id, seq, FACTS_PER_PAGE)
            state = state or initial(record.spec, record.limits)
            for text in record.facts:
                evolve(state, fact_of(text))
            yield state.transcript
            state.transcript = []
            seq = record.next_seq


def _check_count(value: object, name: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ConfigError(f"{name} is {value!r}; give a whole number, at least 0")


def kind_of(kind: SessionKind | str) -> SessionKind:
    """Return the kind of a name.

    Raises:
        ConfigError: there is none.
    """
    try:
        return SessionKind(kind)
    except ValueError:
        spawned = (SessionKind.BRANCH.value, SessionKind.WORKER.value)
        raise ConfigError(
            f"kind {kind!r} can't be spawned; give 'branch' or 'worker'{meant(kind, spawned)}"
        ) from None


def _text(value: object, name: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{name} must be text with something in it, not {value!r}")
    return value


def _check_settings(budget: object, ttl_s: object) -> None:
    """Refuse what the tree would only stumble over; numbers out of bounds are its own to refuse."""
    if budget is not None and not isinstance(budget, Budget):
        raise ConfigError(f"budget: give a Budget, not {budget!r}")
    if ttl_s is not None and (isinstance(ttl_s, bool) or not isinstance(ttl_s, int | float)):
        raise ConfigError(f"ttl_s is {ttl_s!r}; give seconds above 0, or None for the default")


def _labels_of(labels: object, count: int) -> Sequence[str | None]:
    """Return a label, or none, for each of so many tasks."""
    if labels is None:
        return [None] * count
    if isinstance(labels, str) or not isinstance(labels, Sequence) or len(labels) != count:
        raise ConfigError(
            f"labels must be a list with one text for each of the {count} tasks, not {labels!r}"
        )
    return [_text(label, "label") for label in labels]


def _one_of(value: object, known: tuple[str, ...], name: str) -> None:
    if value not in known:
        raise ConfigError(f"{name} {value!r} is none of {', '.join(known)}{meant(value, known)}")


async def _take_back(spawning: asyncio.Future[SessionHandle]) -> None:
    try:
        child = await spawning
    except SessionTreeError:
        return
    await child.cancel("a sibling failed")


def _is_schema(result_type: Any) -> bool:
    return isinstance(result_type, Mapping)


def _schema_of(result_type: Any) -> Mapping[str, JsonValue] | None:
    if result_type is None or isinstance(result_type, Mapping):
        return result_type
    return result_schema_of(result_type)


def _raise_failure(session: str, result: SessionResult[Any]) -> None:
    if result.status is not SessionStatus.COMPLETED:
        raise SessionFailed(session, f"it ended {result.status}: {result.summary}")
