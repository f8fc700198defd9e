"""A session as the creating program holds it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from operator import attrgetter
from typing import Annotated, Any, Final, TypeVar, Unpack, overload

from sessiontree.api.options.options import ApproverLike, parse_kind, split_approver
from sessiontree.api.runtime import notebook_door
from sessiontree.api.runtime.backend import Backend
from sessiontree.api.tree.child_results import ChildResult, ResultAccess, run_children
from sessiontree.api.tree.handle_arguments import (
    TASKS,
    check_images,
    check_values,
    convert_inputs,
    find_first_call,
    resolve_lifetimes,
)
from sessiontree.api.tree.inbox import HumanInbox
from sessiontree.api.tree.keyword_options import MapOptions, SettingsGiven, SpawnOptions
from sessiontree.api.tree.own_workspaces import OwnWorkspaces
from sessiontree.api.tree.pending_reply import PendingReply
from sessiontree.api.tree.program_hooks import ProgramHooks
from sessiontree.api.tree.session_reader import SessionReader
from sessiontree.contracts.errors import ConfigError, EngineLost, SessionClosed
from sessiontree.contracts.facts.stimuli import SendMode
from sessiontree.contracts.kinds import ChildKind, SessionKind, SessionStatus
from sessiontree.contracts.recorded.programs import is_text_value, make_first_call
from sessiontree.contracts.recorded.results import R, ResultCause
from sessiontree.contracts.recorded.senders import Sender, resolve_sender
from sessiontree.contracts.reports.fan_outs import ChildResults
from sessiontree.contracts.settings.given_values import ANY_TEXT, TEXT, Choice, Edge, check_options
from sessiontree.contracts.settings.model_settings import ModelSettings
from sessiontree.contracts.values.jsonable import JsonValue, to_json_value
from sessiontree.contracts.values.messages import ImageContent, ToolReply
from sessiontree.runtime.transport.supervisor_api import Reply, unwrap_reply
from sessiontree.schema.result import derive_result_schema
from sessiontree.tree.report import ReceiptLine
from sessiontree.tree.state import protocol as tree_stimuli

_MODE = Edge[SendMode](Annotated[SendMode, Choice()])
_SETTINGS = Edge[ModelSettings | None](SettingsGiven)
_ENDS_ALL: Final[frozenset[ResultCause]] = frozenset({"provider", "budget"})
T = TypeVar("T")


class SessionHandle(SessionReader[R]):
    """A handle of one session, with the type of its result. It is cheap; several may refer to one session."""

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
        self.session_id = session_id
        self._backend = backend
        self._desk = desk
        self._tree_id = tree_id
        self._result_type = result_type
        self._hooks = hooks

    @overload
    async def spawn(
        self,
        kind: ChildKind | SessionKind,
        task: str,
        *,
        result_type: type[T],
        approver: ApproverLike = ...,
        **options: Unpack[SpawnOptions],
    ) -> SessionHandle[T]: ...

    @overload
    async def spawn(
        self,
        kind: ChildKind | SessionKind,
        task: str,
        *,
        result_type: Any = ...,
        approver: ApproverLike = ...,
        **options: Unpack[SpawnOptions],
    ) -> SessionHandle[Any]: ...

    async def spawn(
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
                callable in this process.
            options: Members of :class:`SpawnOptions` by name: its label, agent, budget, model settings,
                skills, time to live, the program that it runs, and whether it stays open.

        Raises:
            SpawnRefused, LimitExceeded: a rule or limit forbids it; nothing was started.
            ConfigError: an argument is wrong.
        """
        given = check_options(options, SpawnOptions, "spawn", "kind", "task", "result_type", "approver")
        rules, function, channel = split_approver(approver)
        spawned, stays_open = parse_kind(kind), options.get("stays_open")
        asked = tree_stimuli.SpawnAsked(
            0,
            self.session_id,
            spawned,
            TEXT.take(task, "task"),
            "handle",
            label=options.get("label"),
            agent=options.get("agent"),
            result_schema=_build_schema(result_type),
            budget=options.get("budget"),
            rules=rules,
            approver=function,
            owns_channel=channel is not None,
            ttl_s=options.get("ttl_s"),
            dedicated=options.get("dedicated", False),
            stays_open=spawned is SessionKind.BRANCH if stays_open is None else stays_open,
            key=secrets.token_hex(16),
            settings=options.get("settings"),
            skills=given.get("skills"),
            workspace=options.get("workspace"),
            first_call=find_first_call(options),
        )
        if self._hooks is not None:
            asked = await self._hooks.judge_spawn(asked)
        session_id = await self._supervisor.spawn(self._tree_id, asked)
        if channel is not None:
            self._desk.attach(session_id, channel)
        return SessionHandle(
            self._backend, self._desk, self._tree_id, session_id, result_type, hooks=self._hooks
        )

    @overload
    async def map(
        self,
        kind: ChildKind | SessionKind,
        tasks: Sequence[str],
        *,
        result_type: type[T],
        **options: Unpack[MapOptions],
    ) -> ChildResults[T]: ...

    @overload
    async def map(
        self,
        kind: ChildKind | SessionKind,
        tasks: Sequence[str],
        *,
        result_type: Any = ...,
        **options: Unpack[MapOptions],
    ) -> ChildResults[Any]: ...

    async def map(
        self,
        kind: ChildKind | SessionKind,
        tasks: Sequence[str],
        *,
        result_type: Any = None,
        **options: Unpack[MapOptions],
    ) -> ChildResults[Any]:
        """Run one child per task, some at a time, and return their results in the tasks' order, with counts.

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
        check_options(options, MapOptions, "map", "kind", "tasks", "result_type")
        ended = self._run_children(kind, tasks, result_type, options)
        async with aclosing(ended):
            found = [result async for result in ended]
        return ChildResults(sorted(found, key=attrgetter("index")))

    @overload
    def as_completed(
        self,
        kind: ChildKind | SessionKind,
        tasks: Sequence[str],
        *,
        result_type: type[T],
        **options: Unpack[MapOptions],
    ) -> AsyncGenerator[ChildResult[T], None]: ...

    @overload
    def as_completed(
        self,
        kind: ChildKind | SessionKind,
        tasks: Sequence[str],
        *,
        result_type: Any = ...,
        **options: Unpack[MapOptions],
    ) -> AsyncGenerator[ChildResult[Any], None]: ...

    def as_completed(
        self,
        kind: ChildKind | SessionKind,
        tasks: Sequence[str],
        *,
        result_type: Any = None,
        **options: Unpack[MapOptions],
    ) -> AsyncGenerator[ChildResult[Any], None]:
        """Run one child per task, some at a time, and yield each result as soon as its child has ended.

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
        check_options(options, MapOptions, "as_completed", "kind", "tasks", "result_type")
        return self._run_children(kind, tasks, result_type, options)

    def _run_children(
        self, kind: ChildKind | SessionKind, tasks: Sequence[str], result_type: Any, options: MapOptions
    ) -> AsyncGenerator[ChildResult[Any], None]:
        """Check the arguments for several children; they start with the first step of the iteration."""
        words = TASKS.take(tasks, "tasks")
        most, labels = options.get("concurrency", 8), options.get("labels")
        names = [*check_values([None] * len(words) if labels is None else labels, len(words), "labels")]
        times = resolve_lifetimes(options.get("ttl_s"), len(words))

        async def spawn(index: int, label: str | None) -> SessionHandle[Any]:
            return await self.spawn(
                kind,
                words[index],
                result_type=result_type,
                label=label,
                ttl_s=times[index],
                stays_open=False,
                agent=options.get("agent"),
                budget=options.get("budget"),
                settings=options.get("settings"),
                skills=options.get("skills"),
                workspace=options.get("workspace"),
            )

        how: ResultAccess[SessionHandle[Any]] = ResultAccess(
            SessionHandle._request_result, SessionHandle._convert_result
        )
        # A budget of its own that a child uses up says nothing about the others.
        ends_all = _ENDS_ALL if options.get("budget") is None else _ENDS_ALL - {"budget"}
        on_error = options.get("on_error", "return")
        ended = run_children(spawn, how, names, min(most, self._count_room()), on_error, ends_all)
        return notebook_door.show_bar(ended, len(words), str(kind)) if options.get("progress") else ended

    def _count_room(self) -> int:
        """Return how many more children the session may have; at least 1, so that an excess spawn fails."""
        return max(
            1, self._on_loop.ask_now(lambda supervisor: supervisor.room(self._tree_id, self.session_id))
        )

    async def call(self, tool: str, arguments: Mapping[str, Any] | None = None) -> ToolReply:
        """Make one tool call in the session, outside its transcript, with the same checks as a model's call.

        ReadOnly calls run at once; others wait for the end of the session's turn. Approvals climb from here.

        Args:
            tool: Name of the tool.
            arguments: Its arguments by name; None = none.

        Raises:
            ConfigError: ``tool`` is not text, or ``arguments`` are not a mapping that JSON can hold.
            ValidationError, PermissionDenied, Timeout, ExecutionError: the call failed.
            SessionClosed, SessionNotFound: the session takes no calls.
        """
        TEXT.take(tool, "tool")
        try:
            given = to_json_value({} if arguments is None else arguments)
        except RecursionError as error:
            raise ConfigError(f"arguments of {tool!r} are nested too deeply, or hold themselves") from error
        if not isinstance(given, dict):
            raise ConfigError(f"arguments of {tool!r} must be a mapping of names to values")
        call_id = secrets.token_hex(16)
        reply = await self._supervisor.call(self._tree_id, self.session_id, call_id, tool, given)
        return unwrap_reply(reply)

    async def run_program(self, source_or_name: str, /, **inputs: Any) -> Any:
        """Run a program in the session, outside its transcript, and return its value.

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
        first = make_first_call(TEXT.take(source_or_name, "program"), convert_inputs(inputs))
        reply = await self.call(first.tool, first.arguments)
        return reply.text if is_text_value(reply.details) else reply.output

    @property
    def child_workspaces(self) -> OwnWorkspaces:
        """What children changed in workspaces of their own: shown, merged into this one's, or discarded."""
        return OwnWorkspaces(self.call)

    def send(
        self,
        text: str,
        mode: SendMode = "follow_up",
        *,
        sender: Sender | str | None = None,
        settings: ModelSettings | None = None,
        images: Sequence[ImageContent] = (),
        message_id: str | None = None,
    ) -> PendingReply:
        """Send a message to the session; the reply is its next final message.

        A session whose children still work may send an interim message, such as "waiting for my branches".
        :meth:`SessionTree.run` returns the final answer, after all children.

        Args:
            text: The message.
            mode: ``follow_up`` waits for the end of the turn; ``steer`` stops running tools and forces the
                next turn.
            sender: The sender or their id, if the program has several users; the runtime looks up whether
                they own the tree. None = the program itself, an owner.
            settings: Model settings from the turn that takes the message until the reply to it, if they
                differ from those of session and agent.
            images: Images that belong to the message; they must fit the model, nothing scales them down.
            message_id: Its id in the journal, if the program may send it again after a loss: a session takes
                a message with the same id once, and the reply to it is the reply to both. None = a new one.

        Returns:
            The pending reply: await it, or iterate over its pieces.

        Raises:
            ConfigError: the text is empty, the mode is unknown, or the sender or an image is not valid.
        """
        _MODE.take(mode, "mode")
        name = secrets.token_hex(16) if message_id is None else TEXT.take(message_id, "message_id")
        words = TEXT.take(text, "text")
        _SETTINGS.take(settings, "settings")
        message = (words, mode, name, resolve_sender(sender), settings, check_images(images))
        task = asyncio.create_task(self._deliver(*message))
        return PendingReply(task, self.session_id, self._backend, self._tree_id)

    async def _deliver(self, *message: Any) -> Reply | SessionClosed | EngineLost:
        """Return the reply, or its failure as a value: not every sender waits for the reply."""
        try:
            return await self._supervisor.send(self._tree_id, self.session_id, *message)
        except (SessionClosed, EngineLost) as closed:
            return closed

    async def cancel(self, reason: str = "cancelled by the program") -> tuple[ReceiptLine, ...]:
        """End the session and everything below it.

        Returns:
            The receipt: every session of the subtree and how it ended.

        Raises:
            ConfigError: the reason is not text.
        """
        ANY_TEXT.take(reason, "reason")
        return await self._supervisor.stop(self._tree_id, self.session_id, reason, SessionStatus.CANCELLED)

    async def interrupt(self, reason: str = "interrupted by the program") -> tuple[ReceiptLine, ...]:
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
        ANY_TEXT.take(reason, "reason")
        await asyncio.sleep(0)  # messages sent just before go first
        return await self._supervisor.interrupt(self._tree_id, self.session_id, reason)


def _build_schema(result_type: Any) -> Mapping[str, JsonValue] | None:
    if result_type is None or isinstance(result_type, Mapping):
        return result_type
    return derive_result_schema(result_type)
