"""A session as a program without ``await`` holds it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from sessiontree.api.options import ApproverLike
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.limits import Budget
from sessiontree.contracts.messages import Message
from sessiontree.contracts.ports import SessionReport
from sessiontree.contracts.results import R, SessionResult
from sessiontree.contracts.senders import Sender
from sessiontree.contracts.stimuli import SendMode
from sessiontree.contracts.tool_reply import ToolReply
from sessiontree.sync.blocking_bridge import Crossing
from sessiontree.sync.channels import crossed_approver
from sessiontree.sync.event_buffer import Pump

READ_AHEAD = 64
"""Messages of a transcript taken in before they are asked for."""

T = TypeVar("T")

if TYPE_CHECKING:
    from sessiontree.api import session_handle as handle
    from sessiontree.api.session_handle import OnError
    from sessiontree.tree.receipt import ReceiptLine


class PendingReply:
    """The reply to a message on its way: iterate for pieces of its text, ask :meth:`result` for the whole."""

    def __init__(self, crossing: Crossing, pending: handle.PendingReply, pieces: Pump[str]) -> None:
        """Bind the loop's reply, and what takes its pieces in."""
        self._crossing = crossing
        self._pending = pending
        self._pieces = pieces

    def result(self) -> str:
        """Return the last word, waiting for it; may be asked again, also after an interrupt.

        Raises:
            SessionInterrupted: somebody interrupted the session.
            SessionFailed: the run stopped short; says why.
            SessionClosed: the session ended first.
        """
        text: str = self._crossing.wait(_awaited, self._pending)
        return text

    def __iter__(self) -> Iterator[str]:
        """Yield pieces of the replies' text as they come; ends when the last word is there.

        Begins with the first piece after the message was said. A second iteration goes on where the first
        was left.

        Raises:
            SessionFailed, SessionClosed: as :meth:`result`.
        """
        while piece := self._crossing.wait(self._pieces.take, 1):
            yield piece[0]


class SessionHandle(Generic[R]):
    """One session of a tree, and the type of its result; any thread may use it. Cheap."""

    def __init__(self, crossing: Crossing, session: handle.SessionHandle) -> None:
        """Bind the loop's handle of a session."""
        self.session_id = session.session_id
        self._crossing = crossing
        self._session = session

    def __repr__(self) -> str:
        """Name tree and session."""
        return repr(self._session)

    @overload
    def spawn(
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
    def spawn(
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

    def spawn(  # noqa: PLR0913 - keyword-only settings of the public API
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

        A Branch stays open until its :meth:`result` is asked for, or that of a session above it.

        Args:
            kind: ``branch`` or ``worker``.
            task: Its first message.
            label: Name among its siblings.
            agent: Agent it runs as; None = this session's.
            result_type: Type its final text must fit: a pydantic model, dataclass, TypedDict, plain type, or
                a JSON Schema as a mapping.
            budget: What is set aside for it; None = it draws on what this session has left.
            approver: Who answers what climbs to it: rules, ``module:name`` of a function, or a callable here,
                which is called on a thread that blocks in the tree.
            ttl_s: Time to live, from its first host on; None = its kind's.
            dedicated: Whether it keeps a host of its own for life, never giving way to others.
            stays_open: As for :meth:`sessiontree.SessionHandle.spawn`.

        Raises:
            SpawnRefused, LimitExceeded: a rule or number forbids it; nothing was started.
            ConfigError: an argument is wrong.
        """
        child: handle.SessionHandle = self._crossing.run(
            self._session.spawn,
            kind,
            task,
            label=label,
            agent=agent,
            result_type=result_type,
            budget=budget,
            approver=crossed_approver(approver, self._crossing.prompts),
            ttl_s=ttl_s,
            dedicated=dedicated,
            stays_open=stays_open,
        )
        return SessionHandle(self._crossing, child)

    @overload
    def map(
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
    def map(
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

    def map(  # noqa: PLR0913 - keyword-only settings of the public API
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

        An interrupt cancels the children.

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
        results: list[SessionResult[Any]] = self._crossing.wait(
            self._session.map,
            kind,
            tasks,
            concurrency=concurrency,
            on_error=on_error,
            labels=labels,
            agent=agent,
            result_type=result_type,
            budget=budget,
            ttl_s=ttl_s,
        )
        return results

    def call(self, tool: str, arguments: Mapping[str, Any] | None = None) -> ToolReply:
        """Make one tool call in the session, outside its transcript, by the same gates as a model's call.

        ReadOnly calls run at once; others wait for the end of the session's turn. Approvals climb from here.
        An interrupt ends the waiting, not the call.

        Raises:
            ValidationError, PermissionDenied, Timeout, ExecutionError: as the call ended.
            SessionClosed, SessionNotFound: the session takes no calls.
        """
        reply: ToolReply = self._crossing.wait(self._session.call, tool, arguments)
        return reply

    def send(self, text: str, mode: SendMode = "follow_up", *, sender: Sender | str | None = None) -> str:
        """Say something to the session and return its last word for it.

        An interrupt ends the waiting; the message was said, and what is answered stands in the history.

        Args:
            text: The message.
            mode: ``follow_up`` waits for the end of the turn; ``steer`` stops running tools and forces the
                next turn.
            sender: As for :meth:`sessiontree.SessionHandle.send`.

        Raises:
            SessionInterrupted: somebody interrupted the session.
            SessionFailed: the run stopped short; says why.
            SessionClosed: the session ended first.
            ConfigError: the text is empty, there is no such mode, or the sender is none.
        """
        reply: str = self._crossing.wait(self._send, text, mode, sender)
        return reply

    async def _send(self, text: str, mode: SendMode, sender: Sender | str | None) -> str:
        return await self._session.send(text, mode, sender=sender)

    def stream(
        self, text: str, mode: SendMode = "follow_up", *, sender: Sender | str | None = None
    ) -> PendingReply:
        """Say something to the session, and go on while it answers.

        Args:
            text: The message.
            mode: As for :meth:`send`.
            sender: As for :meth:`send`.

        Returns:
            The reply to come: iterate over its pieces, or ask for its :meth:`~PendingReply.result`.

        Raises:
            ConfigError: the text is empty, there is no such mode, or the sender is none.
        """
        reply: PendingReply = self._crossing.run(self._stream, text, mode, sender)
        return reply

    def _stream(self, text: str, mode: SendMode, sender: Sender | str | None) -> PendingReply:
        # One step of the loop: nothing can be said before the pump listens.
        pending = self._session.send(text, mode, sender=sender)
        return PendingReply(self._crossing, pending, Pump(self._crossing, pending.__aiter__()))

    def result(self) -> SessionResult[R]:
        """Return how the session ended, waiting for it; ``output`` is of the asked type.

        Raises:
            SessionError: it is Main, which never completes by itself, and nobody ends it.
        """
        result: SessionResult[R] = self._crossing.wait(self._session.result)
        return result

    def cancel(self, reason: str = "cancelled by the program") -> tuple[ReceiptLine, ...]:
        """End the session and everything below it.

        Returns:
            The receipt: every session of the subtree and how it ended.

        Raises:
            ConfigError: the reason is no text.
        """
        receipt: tuple[ReceiptLine, ...] = self._crossing.run(self._session.cancel, reason)
        return receipt

    def interrupt(self, reason: str = "interrupted by the program") -> tuple[ReceiptLine, ...]:
        """Drop whatever the session does, and keep it: what is said to it next is heard at once.

        Its running tools are told to stop, its model is waited for no more, and so it goes for everything
        below it; what a model spawned there ends ``cancelled``. Returns once all of it has stopped.

        Returns:
            Every session of the subtree and how it stands.

        Raises:
            SessionClosed, SessionNotFound: there is no such live session.
            ConfigError: the reason is no text.
        """
        receipt: tuple[ReceiptLine, ...] = self._crossing.run(self._session.interrupt, reason)
        return receipt

    def status(self) -> SessionReport:
        """Return the session's standing now."""
        report: SessionReport = self._crossing.run(self._session.status)
        return report

    def history(self, *, after: int = 0, limit: int | None = None) -> list[Message]:
        """Return messages of the session's transcript, oldest first, as far as it is durable.

        It is read from its beginning, whatever is returned; :meth:`transcript` is better for a long one.

        Args:
            after: How many of the oldest messages to leave out.
            limit: Most messages returned; None = all there are.

        Raises:
            ConfigError: a number is none, or below 0.
        """
        found: list[Message] = self._crossing.run(self._session.history, after=after, limit=limit)
        return found

    def transcript(self, *, after: int = 0) -> Iterator[Message]:
        """Iterate over the messages of the session's transcript, oldest first, as far as it is durable.

        Read page by page, with others' turns in between, however long it is.

        Args:
            after: How many of the oldest messages to leave out.

        Raises:
            ConfigError: the number is none, or below 0.
        """
        pump: Pump[Message] = self._crossing.run(
            lambda: Pump(self._crossing, self._session.transcript(after=after), READ_AHEAD)
        )
        try:
            while messages := self._crossing.wait(pump.take, READ_AHEAD):
                yield from messages
        finally:
            pump.close()


async def _awaited(pending: handle.PendingReply) -> str:
    return await pending
