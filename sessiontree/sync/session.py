"""A session, its approvals, questions and client calls, as a program without ``await`` holds them.

Written by ``.ci/generate_sync.py`` from the async classes: change those, or the script.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from sessiontree.api.options.options import ApproverLike
from sessiontree.api.tree.child_results import ChildResult
from sessiontree.api.tree.keyword_options import MapOptions, SpawnOptions
from sessiontree.contracts.handles.ports import SessionReport
from sessiontree.contracts.kinds import ChildKind, SessionKind
from sessiontree.contracts.recorded.approvals import ApprovalRequest
from sessiontree.contracts.recorded.client_calls import ClientCall
from sessiontree.contracts.recorded.questions import AnswerGiven, QuestionRequest, Surface
from sessiontree.contracts.recorded.results import R, SessionResult
from sessiontree.contracts.recorded.senders import Sender
from sessiontree.contracts.reports.fan_outs import ChildResults
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.messages import Message, ToolReply
from sessiontree.sync.bases import BridgedObject, SessionBase
from sessiontree.sync.channels import wrap_approver
from sessiontree.sync.event_buffer import drain_iterator
from sessiontree.tree.report import ReceiptLine

if TYPE_CHECKING:
    from sessiontree.api.tree import client_calls, inbox, own_workspaces, questions
    from sessiontree.api.tree.own_workspaces import Merged, OwnWorkspace

T = TypeVar("T")


class PendingApproval(BridgedObject):
    """One request that waits for a person."""

    _inner: inbox.PendingApproval

    @property
    def request(self) -> ApprovalRequest:
        """What is asked."""
        return self._inner.request

    def approve(
        self,
        *,
        always: bool = False,
        reason: str = "",
        sender: Sender | str | None = None,
        surface: Surface = "program",
    ) -> None:
        """Approve this call, or every later call of the tool in this tree too.

        Args:
            always: Whether later calls are approved too.
            reason: The reason, for the journal.
            sender: Who approves, if the program has several users; None = the program itself.
            surface: Where the person approved, for the journal.

        Raises:
            AnswerTooLate: the request was decided in the meantime, or the session was asked to stop before
                the approval was durable, so that the call did not run or was stopped as it began.
            PermissionDenied: the sender does not own the tree; the request still waits.
        """
        self._crossing.run(self._inner.approve, always=always, reason=reason, sender=sender, surface=surface)

    def deny(
        self, reason: str = "", *, sender: Sender | str | None = None, surface: Surface = "program"
    ) -> None:
        """Deny the call, with a ``reason``; the same call stays denied on this path until the tree ends.

        The other arguments are those of :meth:`approve`, ``surface`` too.

        Raises:
            AnswerTooLate: the request was decided in the meantime.
            PermissionDenied: the sender does not own the tree; the request still waits.
        """
        self._crossing.run(self._inner.deny, reason, sender=sender, surface=surface)


class Approvals(BridgedObject):
    """The requests of a tree that wait for a person."""

    _inner: inbox.Approvals

    def pending(self) -> list[PendingApproval]:
        """Return the requests that wait for a person, oldest first."""
        return [PendingApproval(self._crossing, each) for each in self._crossing.run(self._inner.pending)]

    def forget(self, request_id: str) -> None:
        """Lift a person's denial of ``request_id``, so that the same call is asked about again.

        Raises:
            AnswerTooLate: no denial of this request holds.
        """
        self._crossing.run(self._inner.forget, request_id)


class PendingQuestion(BridgedObject):
    """Questions of one call that wait for a person."""

    _inner: questions.PendingQuestion

    @property
    def question(self) -> QuestionRequest:
        """What is asked."""
        return self._inner.question

    def answer(
        self, *answers: AnswerGiven, sender: Sender | str | None = None, surface: Surface = "program"
    ) -> None:
        """Answer the questions; the answer is durable when this returns.

        Args:
            answers: One for each question: a QuestionAnswer, a text (an option's label, or free text), or a
                sequence of labels.
            sender: Who answers, if the program has several users; None = the program itself.
            surface: Where the person answered, for the journal.

        Raises:
            AnswerTooLate: it was answered in the meantime, expired, or its session stopped.
            ConfigError: an answer has another form, or the surface is unknown.
            PermissionDenied: the sender does not own the tree; the question still waits.
            ValidationError: an answer does not fit its question, which still waits.
        """
        self._crossing.run(self._inner.answer, sender=sender, surface=surface)


class Questions(BridgedObject):
    """The questions of a tree that wait for a person."""

    _inner: questions.Questions

    def pending(self) -> list[PendingQuestion]:
        """Return the questions that wait for a person, oldest first."""
        return [PendingQuestion(self._crossing, each) for each in self._crossing.run(self._inner.pending)]


class WaitingCall(BridgedObject):
    """One call that waits for the program. It is cheap; several objects may refer to the same call."""

    _inner: client_calls.WaitingCall

    @property
    def call(self) -> ClientCall:
        """The call."""
        return self._inner.call

    @property
    def call_id(self) -> str:
        """The call's id; unguessable."""
        return self._inner.call_id

    @property
    def session_id(self) -> str:
        """The session that makes the call."""
        return self._inner.session_id

    @property
    def tool(self) -> str:
        """The tool's name."""
        return self._inner.tool

    @property
    def arguments(self) -> Mapping[str, JsonValue]:
        """The final arguments."""
        return self._inner.arguments

    @property
    def params(self) -> Any:
        """The arguments as an instance of the tool's ``Params``.

        Raises:
            ConfigError: the tree was resumed without the tool.
            ValidationError: the tree was resumed with a tool that has other parameters.
        """
        return self._inner.params

    def answer(self, result: object) -> None:
        """Give the call its result; it is durable when this returns.

        Args:
            result: A ToolResult, or any value with a JSON form.

        Raises:
            AnswerTooLate: the call has a result already, timed out, was cancelled, or its session ended.
            ValidationError: it has no JSON form, is too long, or does not fit the tool's ``result_type``;
                the call still waits.
        """
        self._crossing.run(self._inner.answer, result)

    def fail(self, message: str) -> None:
        """Fail the call with a message for the model; raises as :meth:`answer`."""
        self._crossing.run(self._inner.fail, message)


class ClientCalls(BridgedObject):
    """The calls of one tree that wait for the program; iterate over them as they arrive."""

    _inner: client_calls.ClientCalls

    def pending(self) -> list[WaitingCall]:
        """Return the calls that wait, in the order they were handed over."""
        return [WaitingCall(self._crossing, each) for each in self._crossing.run(self._inner.pending)]

    def __iter__(self) -> Iterator[WaitingCall]:
        """Yield the waiting calls, then each new call once; ends when Main has ended."""
        return (
            WaitingCall(self._crossing, each)
            for each in drain_iterator(self._crossing, lambda: aiter(self._inner), 64, 1)
        )

    def answer(self, call_id: str, result: object) -> None:
        """Give the call ``call_id`` its result; raises as :meth:`WaitingCall.answer`."""
        self._crossing.run(self._inner.answer, call_id, result)

    def fail(self, call_id: str, message: str) -> None:
        """Fail the call ``call_id`` with a ``message``; raises as :meth:`WaitingCall.answer`."""
        self._crossing.run(self._inner.fail, call_id, message)

    def params_of(self, call: ClientCall) -> Any:
        """Return a call's arguments as :attr:`WaitingCall.params` does.

        Raises:
            ConfigError: its tool was not given in this process.
        """
        return self._inner.params_of(call)


class OwnWorkspaces(BridgedObject):
    """The children of one session with workspaces of their own.

    Each method is a call of the tool ``child_workspace`` in the session, with the checks of every call: the
    session must hold the tool, and its writer changes the files.

    Raises (every method):
        ExecutionError: the child has no workspace of its own, works still, or its changes are gone.
        PermissionDenied: the session does not hold the tool, or may not write.
        SessionClosed: the session has ended.
    """

    _inner: own_workspaces.OwnWorkspaces

    def list(self) -> list[OwnWorkspace]:
        """Return the children that had a workspace of their own, in the order of their spawns."""
        value: list[OwnWorkspace] = self._crossing.run(self._inner.list)
        return value

    def diff(self, child: str) -> str:
        """Return what a child changed, as a patch in git's format; cut where it is very long.

        Args:
            child: Its id, or the label of one that lives.
        """
        value: str = self._crossing.run(self._inner.diff, child)
        return value

    def merge(self, child: str) -> Merged:
        """Merge a child's changes into the session's workspace: all files, or none.

        A file that was changed in both is a conflict, also where neither change is committed. Nothing is
        committed, and no hook or filter of the repository runs.

        Args:
            child: Its id.
        """
        value: Merged = self._crossing.run(self._inner.merge, child)
        return value

    def discard(self, child: str) -> None:
        """Discard a child's changes; they are gone then.

        Args:
            child: Its id.
        """
        self._crossing.run(self._inner.discard, child)


class SessionHandle(SessionBase[R]):
    """A handle of one session, with the type of its result. It is cheap; several may refer to one session."""

    @overload
    def spawn(
        self,
        kind: ChildKind | SessionKind,
        task: str,
        *,
        result_type: type[T],
        approver: ApproverLike = ...,
        **options: Unpack[SpawnOptions],
    ) -> SessionHandle[T]: ...
    @overload
    def spawn(
        self,
        kind: ChildKind | SessionKind,
        task: str,
        *,
        result_type: Any = ...,
        approver: ApproverLike = ...,
        **options: Unpack[SpawnOptions],
    ) -> SessionHandle[Any]: ...
    def spawn(
        self,
        kind: ChildKind | SessionKind,
        task: str,
        *,
        result_type: Any = None,
        approver: ApproverLike = None,
        **options: Unpack[SpawnOptions],
    ) -> SessionHandle[Any]:
        """Start a child and return its handle.

        A Branch stays open for spawns, calls and messages until its :meth:`result`, or that of a session
        above it, is requested; its reply to the task does not end it before. A Worker ends with its reply.

        Args:
            kind: ``branch`` or ``worker``.
            task: Its first message.
            result_type: Type of its final message: a pydantic model, dataclass, TypedDict, plain type, or a
                JSON Schema as a mapping.
            approver: What answers requests that climb to it: rules, ``module:name`` of a function, or a
                callable in this process. A callable is called on a thread that blocks in the tree.
            options: Members of :class:`SpawnOptions` by name: its label, agent, budget, model settings,
                skills, time to live, the program that it runs, and whether it stays open.

        Raises:
            SpawnRefused, LimitExceeded: a rule or limit forbids it; nothing was started.
            ConfigError: an argument is wrong.
        """
        return SessionHandle(
            self._crossing,
            self._crossing.run(
                self._inner.spawn,
                kind,
                task,
                result_type=result_type,
                approver=wrap_approver(approver, self._crossing.prompts),
                **options,
            ),
        )

    @overload
    def map(
        self,
        kind: ChildKind | SessionKind,
        tasks: Sequence[str],
        *,
        result_type: type[T],
        **options: Unpack[MapOptions],
    ) -> ChildResults[T]: ...
    @overload
    def map(
        self,
        kind: ChildKind | SessionKind,
        tasks: Sequence[str],
        *,
        result_type: Any = ...,
        **options: Unpack[MapOptions],
    ) -> ChildResults[Any]: ...
    def map(
        self,
        kind: ChildKind | SessionKind,
        tasks: Sequence[str],
        *,
        result_type: Any = None,
        **options: Unpack[MapOptions],
    ) -> ChildResults[Any]:
        """Run one child per task, some at a time, and return their results in the tasks' order, with counts.

        An interrupt cancels the children.

        After a provider refused for good, or a budget that the children share is used up, no more children
        start: those under way end, and each of the rest has a result whose ``outcome`` is ``not_started``.

        Args:
            kind: ``branch`` or ``worker``.
            tasks: First messages.
            result_type: Type of each final message.
            options: Members of :class:`MapOptions` by name: how many run at a time, what follows a failure,
                and the settings of each child.

        Raises:
            SessionFailed: a child did not complete (``raise``, ``first``). Its ``results`` are those of all
                children, with counts.
            SpawnRefused, LimitExceeded: a child was refused; the live children are cancelled first.
            ConfigError: an argument is wrong; nothing was started.
        """
        value: ChildResults[Any] = self._crossing.wait(
            self._inner.map, kind, tasks, result_type=result_type, **options
        )
        return value

    @overload
    def as_completed(
        self,
        kind: ChildKind | SessionKind,
        tasks: Sequence[str],
        *,
        result_type: type[T],
        **options: Unpack[MapOptions],
    ) -> Iterator[ChildResult[T]]: ...
    @overload
    def as_completed(
        self,
        kind: ChildKind | SessionKind,
        tasks: Sequence[str],
        *,
        result_type: Any = ...,
        **options: Unpack[MapOptions],
    ) -> Iterator[ChildResult[Any]]: ...
    def as_completed(
        self,
        kind: ChildKind | SessionKind,
        tasks: Sequence[str],
        *,
        result_type: Any = None,
        **options: Unpack[MapOptions],
    ) -> Iterator[ChildResult[Any]]:
        """Run one child per task, some at a time, and yield each result as soon as its child has ended.

        An interrupt cancels the children. Arguments are checked with the first step.

        Each result has the number of its task (``index``), the child's path (``session_id``) and ``label``.
        Those of children that were not started come last, as :meth:`map` says.
        Children start even if results are not consumed. Leaving the loop cancels the live children;
        ``contextlib.aclosing`` around the iterator waits for this.

        Args:
            kind: ``branch`` or ``worker``.
            tasks: First messages; the first child starts with the first step of the iteration.
            result_type: Type of each final message.
            options: Members of :class:`MapOptions` by name, as for :meth:`map`. With ``raise`` too, failed
                results are yielded like others.

        Raises:
            SessionFailed: a child did not complete (``raise``, ``first``). Its ``results`` are those of all
                children, with counts.
            SpawnRefused, LimitExceeded: a child was refused; the live children are cancelled first.
            ConfigError: an argument is wrong; nothing was started.
        """
        return drain_iterator(
            self._crossing,
            lambda: self._inner.as_completed(kind, tasks, result_type=result_type, **options),
            64,
            1,
        )

    def call(self, tool: str, arguments: Mapping[str, Any] | None = None) -> ToolReply:
        """Make one tool call in the session, outside its transcript, with the same checks as a model's call.

        An interrupt ends the waiting, not the call.

        ReadOnly calls run at once; others wait for the end of the session's turn. Approvals climb from here.

        Args:
            tool: Name of the tool.
            arguments: Its arguments by name; None = none.

        Raises:
            ConfigError: ``tool`` is not text, or ``arguments`` are not a mapping that JSON can hold.
            ValidationError, PermissionDenied, Timeout, ExecutionError: the call failed.
            SessionClosed, SessionNotFound: the session takes no calls.
        """
        value: ToolReply = self._crossing.wait(self._inner.call, tool, arguments)
        return value

    def run_program(self, source_or_name: str, /, **inputs: Any) -> Any:
        """Run a program in the session, outside its transcript, and return its value.

        An interrupt ends the waiting, not the program.

        It is a call of the tool ``program``, or of the saved program's own tool, with all checks of
        :meth:`call`; its calls are the session's. A text of a tree's owner needs no model.

        Args:
            source_or_name: The name of a saved program, or the text of a program.
            inputs: Arguments of the saved program, or variables of the text.

        Raises:
            ConfigError: the program is not text, or an input has no JSON form.
            ValidationError: the text or an argument is not valid; nothing was run.
            PermissionDenied, Timeout, ExecutionError: it was refused, took too long, or raised.
            SessionClosed, SessionNotFound: the session takes no calls.
        """
        value: Any = self._crossing.wait(self._inner.run_program, source_or_name, **inputs)
        return value

    def result(self) -> SessionResult[R]:
        """Wait until the session ends and return its result; ``output`` has the requested type.

        Raises:
            SessionError: it is Main, which never completes by itself, and nothing ends it.
        """
        value: SessionResult[R] = self._crossing.wait(self._inner.result)
        return value

    def cancel(self, reason: str = "cancelled by the program") -> tuple[ReceiptLine, ...]:
        """End the session and everything below it.

        Returns:
            The receipt: every session of the subtree and how it ended.

        Raises:
            ConfigError: the reason is not text.
        """
        value: tuple[ReceiptLine, ...] = self._crossing.run(self._inner.cancel, reason)
        return value

    def interrupt(self, reason: str = "interrupted by the program") -> tuple[ReceiptLine, ...]:
        """Stop the work of the session and keep the session open: it takes the next message at once.

        The running tools of the session and of everything below it are asked to stop, and the requests to
        their models are withdrawn; sessions below that a model spawned end as ``cancelled``. Pending replies
        and calls raise an error. The method returns once all work has stopped.

        Returns:
            Every session of the subtree and its state.

        Raises:
            SessionClosed, SessionNotFound: the session has ended or does not exist.
            ConfigError: the reason is not text.
        """
        value: tuple[ReceiptLine, ...] = self._crossing.run(self._inner.interrupt, reason)
        return value

    def status(self) -> SessionReport:
        """Return the session's current status."""
        value: SessionReport = self._crossing.run(self._inner.status)
        return value

    def history(self, *, after: int = 0, limit: int | None = None) -> list[Message]:
        """Return messages of the session's transcript, oldest first, as far as it is durable.

        It is the whole conversation. A compaction adds the summary at its time, as a notice, and removes
        nothing. It is always read from the beginning; use :meth:`transcript` for a long one.

        Args:
            after: How many of the oldest messages to leave out.
            limit: Maximum messages to return; None = all.

        Raises:
            ConfigError: a number is not valid, or below 0.
        """
        value: list[Message] = self._crossing.run(self._inner.history, after=after, limit=limit)
        return value

    def transcript(self, *, after: int = 0) -> Iterator[Message]:
        """Iterate over the messages of the session's transcript, oldest first, as far as it is durable.

        It is read page by page and yields to other tasks between pages.

        Args:
            after: How many of the oldest messages to leave out.

        Raises:
            ConfigError: the number is not valid, or below 0.
        """
        return drain_iterator(self._crossing, lambda: self._inner.transcript(after=after), 64, 64)

    @property
    def child_workspaces(self) -> OwnWorkspaces:
        """What children changed in workspaces of their own: shown, merged into this one's, or discarded."""
        return OwnWorkspaces(self._crossing, self._crossing.run(lambda: self._inner.child_workspaces))
