"""One tree inside one sample of inspect_ai: its model is inspect's, and its tools run in inspect's context.

inspect keeps the sample's store, log and limits in context variables. A tree's own tasks do not have them, so
questions to the model and calls of tools are handed to tasks that the sample started. The first error there
ends the tree and is raised to inspect unchanged: a limit stays a limit.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import field
from pathlib import Path
from typing import Any, Final, TypeAlias

import anyio
import anyio.abc
from inspect_ai.model import ChatMessage, ChatMessageSystem, ChatMessageUser, GenerateConfig, Model, get_model
from inspect_ai.tool import Tool as InspectTool
from inspect_ai.tool import ToolDef, ToolSource
from inspect_ai.util import span, store
from platformdirs import user_state_path

from sessiontree import (
    AgentSpec,
    AssistantMessage,
    ConfigError,
    ContextOverflow,
    Limits,
    ModelError,
    ModelRequest,
    PolicyConfig,
    SessionTree,
    SessionTreeError,
    ToolCall,
    ToolPolicy,
)
from sessiontree.bench.adapters.inspect_messages import (
    convert_reply,
    to_chat_message,
    to_generate_config,
    to_tool_choice,
    to_tool_info,
)
from sessiontree.bench.adapters.inspect_tools import CallRunner, ToolTiers, make_client_tools
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.models.port import EmitEvent

CLOSE_S: Final = 30.0
"""Time for the tree to end when the sample does, in seconds."""
UNLIMITED: Final = 1_000_000
"""Turns and results are limited by inspect, not by the tree."""
STORE_KEY: Final = "sessiontree"
SPAWN: Final = "sessions_spawn"
GO_ON: Final = "Reply once more."
"""The message to a session if a solver asks again without one; the model sees inspect's messages."""
Tools: TypeAlias = Sequence[InspectTool | ToolDef | ToolSource] | ToolSource


@dataclass(frozen=True, slots=True)
class TreeChoices:
    """How the tree of a sample is opened.

    Args:
        tiers: What is known of inspect's tools.
        builtin: Names of built-in tools that its sessions also hold, such as ``sessions_spawn``.
        policy: The tree's policy.
        approvals: What happens to calls that need an approval; nobody is asked. None = they are refused, and
            System calls run.
        approver: Main's approver.
        own_prompt: Whether inspect's messages follow the sessions' system prompt.
        state_dir: Directory of the journal; None = one for all samples, in the user's state folder.
    """

    tiers: ToolTiers = field(default_factory=ToolTiers)
    builtin: tuple[str, ...] = ()
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    approvals: Any = None
    approver: Any = None
    own_prompt: bool = True
    state_dir: Path | None = None


async def collect_definitions(tools: Tools) -> list[ToolDef]:
    """Return the definitions of inspect's tools; sources are asked for theirs."""
    given = await tools.tools() if isinstance(tools, ToolSource) else tools
    found: list[ToolDef] = []
    for each in given:
        if isinstance(each, ToolSource):
            found += [ToolDef(tool) for tool in await each.tools()]
        else:
            found.append(each if isinstance(each, ToolDef) else ToolDef(each))
    return found


class BridgedModel:
    """A model for a tree that has inspect's model of the sample answer.

    Args:
        model: inspect's model.
        ask: Runs a coroutine function in the sample's context and returns its result.
        generate: Asks inspect's model a session's question.
    """

    def __init__(
        self,
        model: Model,
        ask: Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]],
        generate: Callable[[ModelRequest], Awaitable[AssistantMessage]],
    ) -> None:
        self.name = f"inspect:{model}"
        self._ask = ask
        self._generate = generate

    async def complete(self, request: ModelRequest, emit: EmitEvent) -> AssistantMessage:
        """Return the reply of inspect's model.

        Raises:
            ModelError: inspect raised an error; the sample gets it.
        """
        reply: AssistantMessage = await self._ask(lambda: self._generate(request))
        return reply


class SampleBridge:
    """Connects a tree with the sample that it works on.

    Args:
        state: inspect's state of the sample or agent; its messages and output are kept up to date.
        definitions: inspect's tools.
        model: inspect's model; None = the one that is being evaluated.
        choices: How the tree is opened.
    """

    def __init__(
        self, state: Any, definitions: Sequence[ToolDef], model: Model | None, choices: TreeChoices
    ) -> None:
        self._state: Any = state
        self._definitions = definitions
        self._model = model or get_model()
        self._choices = choices
        self._prefix: list[ChatMessage] = list(state.messages)
        self._task = extract_task(self._prefix)
        self._said: dict[str, Sequence[ToolCall]] = {}
        self._calls = CallRunner(definitions, lambda session_id: self._said.get(session_id, ()))
        self._seen = 0
        self._work: asyncio.Queue[tuple[Callable[[], Awaitable[Any]], asyncio.Future[Any]]] = asyncio.Queue()
        self._failure: Exception | None = None
        self._tree: SessionTree | None = None
        self._config: GenerateConfig | None = None
        self._has_replied = False

    async def run(self) -> None:
        """Run the tree until the session that got the task has given its final message.

        Raises:
            Exception: what inspect's model or tools raised; or SessionTreeError if the tree itself failed.
        """
        async with self.serve():
            await self.reply(self._state)

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        """Keep the tree open for replies.

        Raises:
            Exception: as :meth:`run`; the body is cancelled first.
        """
        async with self._open_tree() as tree, anyio.create_task_group() as group:
            group.start_soon(self._serve_questions, group)
            group.start_soon(self._serve_calls, tree, group)
            self._tree = tree
            try:
                yield
            except Exception as error:  # noqa: BLE001 - raised again below, not as a group
                self._fail(error, group)
            group.cancel_scope.cancel()
        if self._failure is not None:
            raise self._failure

    async def reply(self, state: Any, config: GenerateConfig | None = None) -> None:
        """Have the acting session reply to the messages of users since its last reply.

        The model is shown inspect's messages, whatever a solver has changed in them.

        Args:
            state: inspect's state, which is kept up to date.
            config: Settings of the model's replies.

        Raises:
            SessionTreeError: the tree failed.
        """
        tree = self._tree
        assert tree is not None  # noqa: S101 - only called while serving
        self._state, self._config = state, config
        if not self._has_replied:
            self._has_replied = True
            # A Branch gets the task if children may be started, for a Branch waits for them.
            await (tree.run(self._task) if SPAWN in self._choices.builtin else tree.main.send(self._task))
            self._prefix = list(state.messages)
            return
        self._seen += 1  # the message below, which inspect has in its own form
        fresh = state.messages[len(self._prefix) :]
        told = "\n\n".join(each.text for each in fresh if isinstance(each, ChatMessageUser))
        await tree.main.send(told if told.strip() else GO_ON)
        self._prefix = list(state.messages)

    @asynccontextmanager
    async def _open_tree(self) -> AsyncIterator[SessionTree]:
        choices = self._choices
        tools = make_client_tools(self._definitions, choices.tiers)
        names = [tool.name for tool in tools]
        with tempfile.TemporaryDirectory(prefix="sessiontree-inspect-", ignore_cleanup_errors=True) as place:
            tree = SessionTree(
                place,
                model=BridgedModel(self._model, self._run_in_sample, self._generate),
                tools=tools,
                agents={"default": AgentSpec(tools=[*names, *choices.builtin], max_result_chars=400_000)},
                limits=Limits(
                    max_turns=UNLIMITED,
                    max_repeats=None,
                    model_retries=0,
                    model_timeout_s=None,
                    approval_patience_s=None,
                    branch_ttl_s=None,
                    worker_ttl_s=None,
                ),
                approvals=choices.approvals,
                approver=choices.approver,
                channel="queue" if choices.approver is not None else None,
                policy=choices.policy,
                builtin_tools=bool(choices.builtin),
                state_dir=choices.state_dir or get_default_state_dir(),
                backend="local",
                purpose="a sample of inspect",
                agents_md=None,
                web=None,
            )
            try:
                await tree.start()
                self._record(tree)
                yield tree
            finally:
                # Shielded, because inspect ends a sample by cancelling it, and the tree must still end in
                # order.
                with anyio.move_on_after(CLOSE_S, shield=True):
                    await _end(tree)
                self._abandon()

    def _record(self, tree: SessionTree) -> None:
        place = {"tree_id": tree.tree_id, "state_dir": str(tree.state_dir)}
        store().set(STORE_KEY, place)
        metadata = getattr(self._state, "metadata", None)
        if isinstance(metadata, dict):
            metadata[STORE_KEY] = place

    async def _run_in_sample(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """Run a coroutine function in a task of the sample, from any task of this loop."""
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._work.put_nowait((work, done))
        return await done

    async def _serve_questions(self, group: anyio.abc.TaskGroup) -> None:
        while True:
            work, done = await self._work.get()
            group.start_soon(self._carry_out, work, done, group)

    async def _carry_out(
        self, work: Callable[[], Awaitable[Any]], done: asyncio.Future[Any], group: anyio.abc.TaskGroup
    ) -> None:
        try:
            result = await work()
        except ContextOverflow as error:  # the session summarises its conversation and asks again
            if not done.done():
                done.set_exception(error)
        except Exception as error:  # noqa: BLE001 - raised again in run, as it is
            self._fail(error, group)
            if not done.done():
                done.set_exception(ModelError(f"inspect ended the sample: {type(error).__name__}: {error}"))
        else:
            if not done.done():
                done.set_result(result)

    async def _serve_calls(self, tree: SessionTree, group: anyio.abc.TaskGroup) -> None:
        async for waiting in tree.client_calls:
            group.start_soon(self._run_call, waiting, group)

    async def _run_call(self, waiting: Any, group: anyio.abc.TaskGroup) -> None:
        try:
            await self._calls.run(waiting)
        except Exception as error:  # noqa: BLE001 - raised again in run, as it is
            self._fail(error, group)

    def _fail(self, error: Exception, group: anyio.abc.TaskGroup) -> None:
        """Keep the first error, and end the tree."""
        # The first error is the reason; those that follow come from the tree's end.
        if self._failure is None:
            self._failure = error
        group.cancel_scope.cancel()

    def _abandon(self) -> None:
        while not self._work.empty():
            self._work.get_nowait()[1].cancel()

    async def _generate(self, request: ModelRequest) -> AssistantMessage:
        """Ask inspect's model; the acting session's messages are the sample's."""
        is_acting = request.session_id == ("main/b1" if SPAWN in self._choices.builtin else "main")
        if is_acting and not request.summarises:
            return await self._generate_acting(request)
        messages = [
            to_chat_message(each, request.session_id, self._calls.results) for each in request.messages
        ]
        async with span(name=request.session_id, type="agent"):
            output = await self._ask_model(
                request, [ChatMessageSystem(content=request.system_prompt), *messages]
            )
        return self._take_reply(request, output)

    async def _generate_acting(self, request: ModelRequest) -> AssistantMessage:
        said = request.messages[1:]  # the first is the task, which inspect has in its own form
        if len(said) < self._seen:  # a summary replaced the older ones
            self._state.messages = [*self._prefix]
            self._seen = 0
        for each in said[self._seen :]:
            self._state.messages.append(to_chat_message(each, request.session_id, self._calls.results))
        self._seen = len(said)
        own = [ChatMessageSystem(content=request.system_prompt)] if self._choices.own_prompt else []
        output = await self._ask_model(request, [*own, *self._state.messages])
        self._state.output = output
        reply = self._take_reply(request, output)
        self._state.messages.append(output.message)
        self._seen += 1
        return reply

    async def _ask_model(self, request: ModelRequest, messages: list[ChatMessage]) -> Any:
        return await self._model.generate(
            messages,
            tools=[to_tool_info(each) for each in request.tools],
            tool_choice=to_tool_choice(request.settings),
            config=to_generate_config(request.settings).merge(self._config or GenerateConfig()),
        )

    def _take_reply(self, request: ModelRequest, output: Any) -> AssistantMessage:
        if output.stop_reason == "model_length":
            raise ContextOverflow(f"{self._model}: the conversation is longer than the model's context")
        reply = convert_reply(output, request.turn)
        self._said[request.session_id] = reply.tool_calls
        return reply


def extract_task(messages: Sequence[ChatMessage]) -> str:
    """Return the text of the newest message of a person; the model is shown inspect's messages themselves.

    Raises:
        ConfigError: no message of a person has text.
    """
    for message in reversed(messages):
        if isinstance(message, ChatMessageUser) and message.text.strip():
            return str(message.text)
    raise ConfigError(
        "sessiontree in inspect: the sample has no message of a user with text; give the sample an input"
    )


def get_default_state_dir() -> Path:
    """Return the state directory of trees in inspect's samples: the user's state folder."""
    return user_state_path("sessiontree", appauthor=False) / "inspect"


def check_loop() -> None:
    """Refuse an event loop that trees can't use.

    Raises:
        ConfigError: inspect runs on trio.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise ConfigError(
            "sessiontree in inspect: inspect runs on trio, and trees need asyncio; unset "
            "INSPECT_ASYNC_BACKEND, or set it to asyncio"
        ) from None


async def _end(tree: SessionTree) -> None:
    try:
        await tree.cancel("the sample ended")
    except SessionTreeError:  # it never started, or ended by itself
        pass
    finally:
        await tree.close()


def build_policy(after_untrusted: Any) -> PolicyConfig:
    """Return a policy that only says what happens to calls after untrusted text."""
    return PolicyConfig(tools=ToolPolicy(), after_untrusted=after_untrusted)
