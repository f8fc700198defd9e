"""One sample of a task of inspect_ai, worked on by an attempt's tree.

A task's setup and solvers run as they are. Where they ask for a reply with ``generate``, the tree works
instead: it holds the tools that the solvers chose, and its calls run in the sample's context. The next
``generate`` is the next message to the same session. What a tree can't do ends the run: it says nothing about
the sample.

inspect's parts that have no public name are imported here alone; the lock pins the release they are from.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from copy import deepcopy
from dataclasses import field
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeVar, cast

import anyio
import anyio.abc
from inspect_ai import Task
from inspect_ai._util.error import PrerequisiteError
from inspect_ai._util.registry import registry_info
from inspect_ai.dataset import Sample as InspectSampleSpec
from inspect_ai.event import ScoreEvent
from inspect_ai.log import EvalError, EvalSample, EvalSampleLimit, transcript
from inspect_ai.log._transcript import Transcript, init_transcript
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageUser,
    GenerateConfig,
    ModelName,
    ModelOutput,
    get_model,
)
from inspect_ai.model._model import init_active_model, init_sample_model_data
from inspect_ai.scorer import Score as InspectScore
from inspect_ai.scorer import Scorer as InspectScorer
from inspect_ai.scorer import Target
from inspect_ai.scorer._score import init_scoring_context
from inspect_ai.solver import Solver, TaskState
from inspect_ai.solver._task_state import set_sample_state
from inspect_ai.tool import ToolCall as InspectCall
from inspect_ai.tool import ToolDef
from inspect_ai.util import LimitExceededError, message_limit
from inspect_ai.util._limit import check_message_limit
from inspect_ai.util._store import init_subtask_store

from sessiontree import AgentSpec, AssistantMessage, ClientTool, ConfigError, SessionTree, ToolCall, Usage
from sessiontree.api.tree.client_calls import WaitingCall
from sessiontree.bench.adapters.inspect_bridge import SPAWN, STORE_KEY, collect_definitions
from sessiontree.bench.adapters.inspect_messages import to_chat_message, to_model_usage
from sessiontree.bench.adapters.inspect_tools import CallRunner, ToolTiers, make_client_tools
from sessiontree.bench.suite.suite import Attempt, RunRefused
from sessiontree.contracts.values.quick_dataclass import dataclass

T = TypeVar("T")
STATE: Final = "inspect"
"""Key of an attempt's :class:`TaskSample` in ``attempt.state``."""
MAX_RESULT_CHARS: Final = 400_000
END_S: Final = 5.0
"""Time for a plan to end when its sample's time is over, in seconds."""
_NO_MODEL: Final = "none/none"


@dataclass(frozen=True, slots=True)
class TaskChoices:
    """How the trees of a task's samples are opened, and what its scorers see.

    Args:
        tiers: What is known of the task's tools.
        builtin: Names of built-in tools that sessions also hold; with ``sessions_spawn`` a Branch of Main
            works on the sample, because it waits for its children.
        tree: Further arguments of the tree, or a function that returns them for an attempt.
        counts_refused: Whether scorers also see calls that were refused and never ran.
    """

    tiers: ToolTiers = field(default_factory=ToolTiers)
    builtin: tuple[str, ...] = ()
    tree: Mapping[str, Any] | Callable[[Attempt[Any]], Mapping[str, Any]] = field(default_factory=dict)
    counts_refused: bool = True

    @property
    def acting(self) -> str:
        """Id of the session that gets the sample's task."""
        return "main/b1" if SPAWN in self.builtin else "main"


class TaskSample:
    """One sample of a task while an attempt works on it: inspect's state, and the context its tools need.

    Args:
        task: The task.
        spec: The sample.
        epoch: Which repetition.
        model: Name of the model, for the log.
        choices: How the tree is opened.
    """

    def __init__(
        self, task: Task, spec: InspectSampleSpec, epoch: int, model: str, choices: TaskChoices
    ) -> None:
        self._task = task
        self._spec = spec
        self._choices = choices
        self._context = contextvars.copy_context()
        self._target = Target(spec.target)
        self._model = model
        told = spec.input
        messages = [ChatMessageUser(content=told, source="input")] if isinstance(told, str) else told
        self.state = TaskState(
            model=ModelName(model if "/" in model else f"sessiontree/{model}"),
            sample_id=spec.id or 0,
            epoch=epoch,
            input=spec.input,
            target=self._target,
            choices=spec.choices,
            messages=[each.model_copy() for each in messages],
            message_limit=task.message_limit,
            metadata=deepcopy(spec.metadata or {}),
        )
        self._tools: asyncio.Future[list[ToolDef]] = asyncio.get_running_loop().create_future()
        self._tree: asyncio.Future[SessionTree] = asyncio.get_running_loop().create_future()
        self._plan: asyncio.Task[None] | None = None
        self._calls: CallRunner | None = None
        self._said: list[tuple[str, str]] = []
        self._told = 0
        self._names: list[str] = []
        self._started = datetime.now(UTC)
        self._began_s = time.monotonic()
        self.usage = Usage()
        """What the tree used, once the plan has ended."""
        self.scores: dict[str, InspectScore] = {}
        """What the scorers said, by their names."""
        self.limit: EvalSampleLimit | None = None
        """The limit of inspect that ended the plan."""

    @property
    def acting(self) -> str:
        """Id of the session that gets the sample's task."""
        return self._choices.acting

    @property
    def tool_names(self) -> list[str]:
        """Names of the task's tools, once :meth:`begin` has returned."""
        return [each.name for each in self._tools.result()]

    async def begin(self) -> tuple[list[ClientTool], AgentSpec]:
        """Run setup and solvers until they ask for a reply.

        Returns:
            The task's tools as client tools; and the agent, whose prompt is that of the solvers and which
            holds these tools.

        Raises:
            RunRefused: the solvers want what a tree can't do.
        """
        self._context.run(self._enter)
        self._plan = asyncio.create_task(self._run_plan(), context=self._context)
        either: list[asyncio.Future[Any]] = [self._plan, self._tools]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self._end_late(self._plan)
            raise
        if not self._tools.done():
            await self._plan  # it failed, or wants no reply of this sample: then the tree has nothing to do
            self._tools.set_result([])
        definitions = self._tools.result()
        self._calls = CallRunner(definitions, self._find_calls)
        tools = make_client_tools(definitions, self._choices.tiers)
        names = [*(each.name for each in tools), *self._choices.builtin]
        prompts = [each.text for each in self.state.messages if each.role == "system"]
        prompt = "\n\n".join(prompts) or None
        return tools, AgentSpec(prompt=prompt, tools=names, max_result_chars=MAX_RESULT_CHARS)

    async def finish(self, tree: SessionTree) -> str:
        """Let the tree work, and the plan end; return the output's text."""
        self.state.metadata[STORE_KEY] = {"tree_id": tree.tree_id, "state_dir": str(tree.state_dir)}
        self._tree.set_result(tree)
        assert self._plan is not None  # noqa: S101 - begin was awaited
        try:
            await self._plan
        except asyncio.CancelledError:
            await self._end_late(self._plan)
            raise
        finally:
            self._plan.cancel()
        return str(self.state.output.completion)

    async def _end_late(self, plan: asyncio.Task[None]) -> None:
        """End the solvers of a sample whose time is over: as in inspect, it is scored as it is."""
        self.limit = self._limit_met()
        plan.cancel()
        await asyncio.wait([plan], timeout=END_S)

    def _limit_met(self) -> EvalSampleLimit:
        """Return the limit of time that was met, if one was."""
        total_s, working_s = self._task.time_limit, self._task.working_limit
        is_over = total_s is not None and time.monotonic() - self._began_s >= total_s
        if working_s is not None and not is_over:
            return EvalSampleLimit(type="working", limit=float(working_s))
        return EvalSampleLimit(type="time", limit=float(total_s or 0))

    def abandon(self) -> None:
        """End the plan of an attempt that nobody goes on with; from any thread."""
        plan = self._plan
        if plan is not None and not plan.done() and not plan.get_loop().is_closed():
            plan.get_loop().call_soon_threadsafe(plan.cancel)

    async def score(self) -> dict[str, InspectScore]:
        """Run the task's scorers once; the same scores again when asked again."""
        if not self.scores:
            self.scores = await self._run_inside(self._score_all())
        return self.scores

    async def _run_inside(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.create_task(work, context=self._context)

    def _enter(self) -> None:
        init_sample_model_data()
        init_active_model(get_model(_NO_MODEL), GenerateConfig())
        init_transcript(Transcript())
        self._bind()
        init_scoring_context(list(collect_scorers(self._task).values()), self._target)

    def _bind(self) -> None:
        set_sample_state(self.state)
        init_subtask_store(self.state.store)

    async def _run_plan(self) -> None:
        try:
            with message_limit(self._task.message_limit):
                for solve in _build_plan(self._task):
                    self.state = await solve(self.state, cast("Any", self._generate))
                    self._bind()
                    if self.state.completed:
                        break
        except LimitExceededError as error:  # as in inspect: the sample ends, and is scored
            self.limit = EvalSampleLimit(type=error.type, limit=error.limit or 0)
        except PrerequisiteError as error:
            raise RunRefused(
                f"sample {self.state.sample_id!r}: a solver asks inspect's model itself, not by generate; "
                "evaluate this task with inspect and the solver sessiontree/tree"
            ) from error

    async def _generate(
        self, state: TaskState, tool_calls: Literal["loop", "single", "none"] = "loop", **_: Any
    ) -> TaskState:
        """Have the tree reply; takes the place of inspect's ``generate``."""
        definitions = await collect_definitions(state.tools)
        told = self._join_new_messages(state, definitions, tool_calls)
        check_message_limit(len(state.messages), raise_for_equal=True)
        self._check_tokens()
        if not self._tools.done():
            self._tools.set_result(definitions)
        tree = await self._tree
        try:
            await self._let_reply(tree, told)
        finally:
            self._take_over(tree, state)
            self._said = _list_texts(state.messages)
        self._check_tokens()
        return state

    def _join_new_messages(self, state: TaskState, definitions: Sequence[ToolDef], tool_calls: str) -> str:
        """Return what is said to the session: the messages of users since its last reply.

        Raises:
            RunRefused: a tree can't go on from these messages, or with these tools.
        """
        fresh = state.messages[len(self._said) :]
        names = [each.name for each in definitions]
        has_asked = self._tools.done()
        refusal = ""
        if definitions and tool_calls != "loop":
            refusal = (
                f'asks for replies with generate(tool_calls="{tool_calls}"), which leaves calls to the solver'
            )
        elif has_asked and SPAWN in self._choices.builtin:
            refusal = "asks for a second reply, which a Branch that starts children can't give"
        elif has_asked and names != self._names:
            refusal = f"changes the tools between two replies, from {self._names} to {names}"
        elif _list_texts(state.messages)[: len(self._said)] != self._said:
            refusal = "changes messages that a tree has read or written before"
        elif any(each.role not in {"user", "system"} for each in fresh):
            refusal = "writes replies of the model, which a tree has not given"
        elif has_asked and any(each.role == "system" for each in fresh):
            refusal = "adds a system message after the first reply"
        elif not any(each.role == "user" and each.text.strip() for each in fresh):
            refusal = "asks for a reply without a new message of a user"
        if refusal:
            raise RunRefused(
                f"sample {self.state.sample_id!r}: its task {refusal}; evaluate this task with inspect, and "
                "pass it through with_tree, which keeps its plan"
            )
        self._names = names
        return "\n\n".join(each.text for each in fresh if each.role == "user" and each.text.strip())

    def _check_tokens(self) -> None:
        """Raise inspect's error if the whole tree has used more than the task's limit of tokens."""
        limit = self._task.token_limit
        if limit is None or not self._tree.done():
            return
        used = self._tree.result().main.status().usage.tokens
        if used > limit:
            raise LimitExceededError("token", value=used, limit=limit)

    def _check_messages(self) -> None:
        """Raise inspect's error if the next question would have more messages than the task allows.

        Called when the last call of a reply has run: its result never reaches the session, so that the model
        is not asked again.
        """
        limit = self._task.message_limit
        if limit is None:
            return
        said = self._tree.result().session(self._choices.acting).history()[self._told + 1 :]
        replies = [each for each in said if isinstance(each, AssistantMessage)]
        count = len(self.state.messages) + sum(1 + len(each.tool_calls) for each in replies)
        is_last = all(
            (self._choices.acting, each.id) in self._results
            for each in (replies[-1].tool_calls if replies else ())
        )
        if is_last and count >= limit:
            raise LimitExceededError("message", value=count, limit=limit)

    @property
    def _results(self) -> Mapping[tuple[str, str], Any]:
        return self._calls.results if self._calls is not None else {}

    async def _let_reply(self, tree: SessionTree, task: str) -> None:
        """Let the tree reply.

        Raises:
            LimitExceededError: a limit of the task ended the work.
        """
        ended: list[LimitExceededError] = []
        async with anyio.create_task_group() as group:
            group.start_soon(self._serve_calls, tree, group, ended)
            if SPAWN in self._choices.builtin:
                await tree.run(task)
            else:
                await tree.main.send(task)
            group.cancel_scope.cancel()
        if ended:
            raise ended[0]

    def _find_calls(self, session_id: str) -> Sequence[ToolCall]:
        """Return the calls of a session's newest reply."""
        said = reversed(self._tree.result().session(session_id).history())
        return next((each.tool_calls for each in said if isinstance(each, AssistantMessage)), ())

    async def _serve_calls(
        self, tree: SessionTree, group: anyio.abc.TaskGroup, ended: list[LimitExceededError]
    ) -> None:
        async for waiting in tree.client_calls:
            group.start_soon(self._run_call, waiting, group, ended)

    async def _run_call(
        self, waiting: WaitingCall, group: anyio.abc.TaskGroup, ended: list[LimitExceededError]
    ) -> None:
        assert self._calls is not None  # noqa: S101 - set before the tree was opened
        is_acting = waiting.session_id == self._choices.acting
        try:
            self._check_tokens()
            await self._calls.run(waiting, self._check_messages if is_acting else None)
        except LimitExceededError as error:
            ended.append(error)
            group.cancel_scope.cancel()

    def _take_over(self, tree: SessionTree, state: TaskState) -> None:
        """Append what the acting session said to inspect's messages; its usage is the whole tree's."""
        acting = self._choices.acting
        history = tree.session(acting).history()
        said = history[self._told + 1 :]  # the next one is the message that was sent, in inspect's own form
        self._told = len(history)
        for each in said:
            # Not by append, which would raise at the limit: what was said is kept.
            list.append(state.messages, to_chat_message(each, acting, self._results))
        last = next((each for each in reversed(said) if isinstance(each, AssistantMessage)), None)
        if last is not None:
            state.output = ModelOutput.from_message(
                cast("ChatMessageAssistant", to_chat_message(last, acting, self._results))
            )
            state.output.model = self._model
        self.usage = tree.main.status().usage

    async def _score_all(self) -> dict[str, InspectScore]:
        found: dict[str, InspectScore] = {}
        messages = self.state.messages
        if self._calls is not None:
            acting = self._choices.acting
            ran = {call_id for session, call_id in self._calls.results if session == acting}
            keeps_all = self._choices.counts_refused
            made = {key[1]: calls for key, calls in self._calls.in_programs.items() if key[0] == acting}
            self.state.messages = [
                _rewrite_as_run(each, None if keeps_all else ran, made) for each in messages
            ]
        try:
            for name, scorer in collect_scorers(self._task).items():
                score = await scorer(self.state, self._target)
                if score is not None:
                    found[name] = score
                    transcript()._event(ScoreEvent(score=score, target=self._target.target))  # noqa: SLF001
        finally:
            self.state.messages = messages
        return found

    def build_eval_sample(self, error: EvalError | None = None) -> EvalSample:
        """Return what inspect's log holds of the sample."""
        ended = datetime.now(UTC)
        usage = {} if self.usage == Usage() else {self._model: to_model_usage(self.usage)}
        return EvalSample(
            id=self.state.sample_id,
            epoch=self.state.epoch,
            input=self._spec.input,
            choices=self._spec.choices,
            target=self._spec.target,
            messages=self.state.messages,
            output=self.state.output,
            scores=dict(self.scores),
            metadata=self.state.metadata,
            store=dict(self.state.store.items()),
            events=list(self._context.run(lambda: transcript().events)),
            attachments=dict(self._context.run(lambda: transcript().attachments)),
            model_usage=usage,
            uuid=self.state.uuid,
            started_at=self._started.isoformat(),
            completed_at=ended.isoformat(),
            total_time=round((ended - self._started).total_seconds(), 3),
            limit=self.limit,
            error=error,
        )


def collect_scorers(task: Task) -> dict[str, InspectScorer]:
    """Return a task's scorers by the names under which inspect logs them.

    Raises:
        ConfigError: it has none.
    """
    found: dict[str, InspectScorer] = {}
    for scorer in task.scorer or ():
        name = registry_info(scorer).name.split("/")[-1]
        found[name if name not in found else f"{name}{len(found)}"] = scorer
    if not found:
        raise ConfigError(f"task {task.name!r} has no scorer; a suite needs at least one")
    return found


def _list_texts(messages: Sequence[ChatMessage]) -> list[tuple[str, str]]:
    return [(each.role, each.text) for each in messages]


def _build_plan(task: Task) -> list[Solver]:
    setup = task.setup
    before = [] if setup is None else list(setup) if isinstance(setup, list | tuple) else [setup]
    return [*before, task.solver]


def _rewrite_as_run(
    message: ChatMessage, ran: set[str] | None, in_programs: Mapping[str, Sequence[InspectCall]]
) -> ChatMessage:
    """Return a message with its programs' calls; without those that never ran, unless ``ran`` is None."""
    if not isinstance(message, ChatMessageAssistant) or not message.tool_calls:
        return message
    calls: list[InspectCall] = []
    for each in message.tool_calls:
        if ran is None or each.id in ran:
            calls.append(each)
        calls += in_programs.get(each.id, ())
    return message.model_copy(update={"tool_calls": calls})
