"""The command ``sessiontree run``: one task, one tree, one answer.

With ``--json`` each line is an object with a member ``change``: first ``run_started`` (``tree``,
``state_dir``, ``model``, ``approvals``, ``commands``), then those of :mod:`sessiontree.cli.changes`, last
``result`` (``tree``, ``status``, ``text``, ``output``: the value of ``--result-schema``, else null,
``error``: null or why the answer is missing, ``usage``, ``resume``: null or the command that continues the
tree).

Only the answer, or these lines, are on standard output. What happens meanwhile, questions and errors are on
standard error.
"""

from __future__ import annotations

import asyncio
import io
import json
import shlex
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import field
from pathlib import Path
from typing import Any, TypeAlias

from sessiontree import (
    AgentSpec,
    AssistantMessage,
    ConfigError,
    ImageContent,
    ProgressReader,
    SessionClosed,
    SessionFailed,
    SessionResult,
    SessionStatus,
    SessionTree,
    SessionTreeError,
    TerminalChannel,
    Usage,
)
from sessiontree.api.agents.approval_modes import describe_commands, describe_rights
from sessiontree.api.runtime.ray_door import begin_backend_early
from sessiontree.api.runtime.runtime_options import BackendName
from sessiontree.channels.port import HumanChannel
from sessiontree.channels.safe_text import make_visible
from sessiontree.cli.attachments import Attachments, read_attachments
from sessiontree.cli.changes import LiveChanges, TreeWatch
from sessiontree.cli.configured_tree import (
    build_tree_options,
    check_workspace,
    load_configuration,
    spare_tools,
)
from sessiontree.cli.reply_text import ReplyText
from sessiontree.cli.screen import FAILED, INTERRUPTED, RichScreen, YieldingChannel
from sessiontree.cli.serve import serve_page
from sessiontree.cli.tree import place_option
from sessiontree.contracts.values.jsonable import dump_json
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.journal.record import JournalRecord, read_kind
from sessiontree.journal.replay import read_fact
from sessiontree.schema.result import compile_result

PURPOSE, TYPED, ATTACHED = "run: ", "run to a schema: ", "run with files: "
"""How the purpose of a tree of this command begins; its task follows."""
_GO_ON = "Your work was interrupted. Go on with it, and give your final answer."
_TASK_CHARS = 200

Order: TypeAlias = "Callable[[SessionTree], Awaitable[SessionResult[Any]]]"


def run(  # noqa: PLR0913 - each option is a parameter
    screen: RichScreen,
    *,
    task: str | None,
    model: str | None,
    agent: str | None,
    workspace: Path | None,
    approve: str | None,
    max_cost: float | None,
    tools: str | None,
    result_schema: Path | None,
    attach: Sequence[Path] | None,
    config: Path | None,
    state_dir: Path | None,
    backend: BackendName,
    as_json: bool,
    quiet: bool,
    view: bool,
) -> int:
    """Open a tree, give Main a task, show the answer and return the exit code.

    With a schema a Branch of Main does the task: its final message must fit the schema.

    Args:
        screen: Shows the answer.
        task: The first message.
        model: Name of the model that answers; None = the configured one.
        agent: Name of the agent that Main runs as; None = the configured one.
        workspace: The directory; None = this one.
        approve: Approval mode; None = the configured one, else Elevated calls are asked about at a terminal
            and refused elsewhere, and System calls run.
        max_cost: Most US dollars that the tree may spend; None = as configured.
        tools: Names of the only tools that sessions may hold, with commas; ``none`` = no tools, None = as
            configured.
        result_schema: File of a JSON Schema that the answer must fit; None = the answer is text.
        attach: Files that go along with the task: UTF-8 text, or images.
        config: The configuration's file; None = the owner's own.
        state_dir: Where the journal is; None = the workspace's own place.
        backend: What runs the sessions.
        as_json: Whether a program reads it.
        quiet: Whether nothing but the answer, questions and errors is shown.
        view: Whether a page shows the tree, too.

    Raises:
        SessionTreeError: it can't begin; nothing was changed.
    """
    task = _check_task(task)
    root, schema = check_workspace(workspace), _load_schema(result_schema)
    options = build_tree_options(
        load_configuration(config, root), model=model, agent=agent, approve=approve, max_cost=max_cost
    )
    if tools is None:
        spare_tools(options)
    else:
        options["agents"] = _select_tools(options["agents"], options["agent"], tools)
    attached = read_attachments(attach or (), options["agents"], options["agent"])
    if schema is not None and attached.images:
        raise ConfigError(
            "--attach: an image can't go along with --result-schema; attach text, or leave it out"
        )
    beginning = TYPED if schema is not None else ATTACHED if attached != Attachments() else PURPOSE
    message = attached.add_to(task)
    progress = RichScreen(sys.stderr, is_quiet=quiet or as_json)
    begin_backend_early(backend)
    tree = SessionTree(
        root,
        **options,
        channel=make_terminal_channel(progress, as_json),
        state_dir=state_dir,
        backend=backend,
        purpose=f"{beginning}{task[:_TASK_CHARS]}",
    )
    task_run = TaskRun(screen, progress, tree.state_dir, as_json, config=config, has_page=view)

    async def order(tree: SessionTree) -> SessionResult[Any]:
        if schema is None:
            return await task_run.ask(tree, message, attached.images)
        return await task_run.ask_typed(tree, message, schema)

    return task_run.carry_out(tree.start, order)


def _check_task(task: str | None) -> str:
    if task is None or not task.strip():
        raise ConfigError("the task is empty; say what is to be done")
    if any("\ud800" <= letter <= "\udfff" for letter in task):
        raise ConfigError("the task holds bytes that are not UTF-8; write it in UTF-8")
    return task


def _select_tools(agents: Mapping[str, AgentSpec], main: str, tools: str) -> dict[str, AgentSpec]:
    """Return the agents, each with those of its tools that an option names.

    Raises:
        ConfigError: the option names nothing.
    """
    names = [name.strip() for name in tools.split(",")]
    if not all(names):
        raise ConfigError(f"--tools {tools!r} has an empty name; give names such as read,grep or none")
    wanted = () if names == ["none"] else tuple(dict.fromkeys(names))
    return {
        name: spec.model_copy(
            update={
                "tools": tuple(each for each in wanted if spec.tools is None or each in spec.tools),
                "delegates": tuple(each for each in wanted if each in spec.delegates),
            }
        )
        for name, spec in {main: AgentSpec(), **agents}.items()
    }


def _load_schema(path: Path | None) -> Mapping[str, Any] | None:
    if path is None:
        return None
    try:
        schema = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"--result-schema {str(path)!r} can't be read as JSON: {error}") from error
    if not isinstance(schema, dict):
        raise ConfigError(f"--result-schema {str(path)!r} holds no JSON Schema: give an object")
    try:
        compile_result(schema)
    except (ConfigError, ValueError, RecursionError) as error:
        raise ConfigError(f"--result-schema {str(path)!r}: {error}") from error
    return schema


def make_terminal_channel(progress: RichScreen, as_json: bool) -> HumanChannel:
    """Return Main's channel: whoever is at the terminal; lines of JSON say themselves what tools say."""
    terminal = TerminalChannel(sys.stdin if sys.stdin is not None else io.StringIO(), sys.stderr)
    return YieldingChannel(terminal, nullcontext) if as_json else progress.share_with(terminal)


@dataclass(slots=True)
class TaskRun:
    """One task and its tree."""

    screen: RichScreen
    """Shows the answer, or what a program reads."""
    progress: RichScreen
    """Shows all else."""
    state_dir: Path
    as_json: bool
    known_seq: int = 0
    """Number of the last fact that an earlier process made; what it says is not shown again."""
    config: Path | None = None
    """The configuration's file, if an option names it."""
    task: str = ""
    """What the tree was opened for, where it is taken up."""
    has_page: bool = False
    """Whether a page shows the tree, too."""
    tree_id: str | None = None
    """Once a tree is open, its id."""
    is_over: bool = False
    _held: SessionResult[Any] | None = None
    """Main's final message, until something reaches it."""
    _watch: TreeWatch | None = None
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    """Set with each fact."""

    def carry_out(self, opened: Callable[[], Awaitable[SessionTree]], order: Order) -> int:
        """Open a tree, have an order carried out there, show the result and return the exit code."""
        try:
            return asyncio.run(self._to_the_end(opened, order))
        except KeyboardInterrupt:
            code, status, why = INTERRUPTED, "interrupted", "interrupted"
        except (SessionTreeError, OSError) as error:
            if self.tree_id is None:
                raise
            code, status, why = FAILED, "failed", f"{type(error).__name__}: {error}"
        again = None
        if self.tree_id is not None and not self.is_over:
            again = self._build_resume_command(self.tree_id)
        if self.as_json:
            self._tell_result(SessionResult(SessionStatus.FAILED, ""), Usage(), status, why, again)
        else:
            end = why if again is None else f"{why}; nothing that was done is lost, go on with: {again}"
            sys.stderr.write(f"{make_visible(end)}\n")
        return code

    def _build_resume_command(self, tree_id: str) -> str:
        """Return the command that continues the tree; programs read a complete one, people a short one."""
        place = place_option(self.state_dir)
        if not self.as_json and not place and self.config is None:
            return "sessiontree resume"
        again = f"sessiontree resume {tree_id} --state-dir {shlex.quote(str(self.state_dir))}"
        return again + (
            "" if self.config is None else f" --config {shlex.quote(str(self.config.absolute()))}"
        )

    async def ask(
        self, tree: SessionTree, text: str, images: Sequence[ImageContent] = ()
    ) -> SessionResult[Any]:
        """Send Main a message and return its answer, once all its children have ended."""
        # Forgotten before the message is sent: the final message of an earlier run would be taken for its
        # answer.
        self._held = None
        await tree.main.send(text, images=images)
        return await self._answer(tree)

    async def ask_typed(self, tree: SessionTree, task: str, schema: Mapping[str, Any]) -> SessionResult[Any]:
        """Have a Branch of Main do the task and return its typed result."""
        child = await tree.main.spawn("branch", task, result_type=schema)
        return await child.result()

    async def go_on(self, tree: SessionTree) -> SessionResult[Any]:
        """Return the answer of a tree that was taken up; it is asked to go on where it had stopped short."""
        typed = [line.session_id for line in tree.receipt() if line.session_id.count("/") == 1]
        if not tree.main.history(limit=1):
            if typed:
                return await tree.session(typed[0]).result()
            if self.task.startswith((TYPED, ATTACHED)) or len(self.task) >= _TASK_CHARS:
                raise SessionFailed("main", "it was interrupted before it had its task; run it again")
            return await self.ask(tree, self.task)
        # What an earlier process made is read again first, since only it says where Main had stopped.
        while self._watch is None or self._watch.tree.last_seq < self.known_seq:
            await self._await_next_fact()
        if self._held is not None and not _is_reply(tree, self._held):
            return await self.ask(tree, _GO_ON)
        return await self._answer(tree)

    async def _answer(self, tree: SessionTree) -> SessionResult[Any]:
        # Not SessionTree.run: when Ctrl-C cancels it, it cancels its Branch, and nothing is left to resume.
        while True:
            if self._held is not None:
                main = tree.main.status()
                # Main may hold a message while its children work: their reports wake it, and its answer is
                # another one then.
                busy = main.status is SessionStatus.ACTIVE or main.children or main.pending_approvals
                if not busy:
                    break
            await self._await_next_fact()
        if not _is_reply(tree, self._held):
            raise SessionFailed("main", self._held.summary)
        return self._held

    async def _await_next_fact(self) -> None:
        self._news.clear()
        await self._news.wait()

    async def _to_the_end(self, opened: Callable[[], Awaitable[SessionTree]], order: Order) -> int:
        async with await opened() as tree:
            self.tree_id = tree.tree_id
            self._tell_begin(tree)
            say = self.progress.line
            async with serve_page(tree.state_dir, tree.tree_id, say, is_wanted=self.has_page):
                result, usage, heard = await self._run_tree(tree, order)
        self.is_over = True
        failed = result.status is not SessionStatus.COMPLETED
        if self.as_json:
            self._tell_result(result, usage, result.status, result.summary if failed else None, None)
        else:
            text = result.summary if result.output is None else dump_json(result.output)
            is_seen = heard == text and sys.stdout.isatty()  # it was shown there as it came
            for line in () if is_seen else text.splitlines():
                self.screen.line(line)
            tokens = f"{usage.input_tokens:,} tokens read, {usage.output_tokens:,} written, {usage.cost_text}"
            place = place_option(self.state_dir)
            where = f" {self.tree_id}{place}" if place else ""
            self.progress.line(f"({result.status}: {tokens}; show it: sessiontree show{where})")
        return FAILED if failed else 0

    async def _run_tree(self, tree: SessionTree, order: Order) -> tuple[SessionResult[Any], Usage, str]:
        """Return the result, what the tree used, and the last message that was shown as it came."""
        heard = ReplyText(self.progress.line)
        is_streamed = self.progress.is_live
        async with self._watch_tree(tree) as watch:
            self._watch = watch
            reader = tree.progress("main")
            tasks = [
                asyncio.create_task(self._show(tree, watch)),
                asyncio.create_task(_hear(reader, heard.take if is_streamed else _drop)),
            ]
            working = asyncio.ensure_future(order(tree))
            try:
                # Both are waited for: a tree that somebody else cancels ends the facts, and no answer ever
                # comes.
                await asyncio.wait((tasks[0], working), return_when=asyncio.FIRST_COMPLETED)
                if not working.done():
                    await tasks[0]  # it failed, or Main has ended
                    raise SessionClosed("main", "it was ended by somebody else")
                result = await working
                # The last events may still be on their way from another process when the result is there.
                await reader.catch_up()
                await asyncio.sleep(0)
                heard.end()
                usage = tree.usage()
                if result.status is SessionStatus.COMPLETED:
                    await tree.finish(result.summary)
                else:
                    await tree.cancel(result.summary)
                await tasks[0]
            finally:
                # Judged by the facts, and not by how this ended: a tree that is over can't be resumed.
                self.is_over = watch.tree.is_over
                reader.close()
                for task in (*tasks, working):
                    task.cancel()
                await asyncio.wait((*tasks, working))
        return result, usage, heard.last

    @asynccontextmanager
    async def _watch_tree(self, tree: SessionTree) -> AsyncIterator[TreeWatch]:
        if self.as_json:
            yield TreeWatch(_drop)
            return
        async with self.progress.watch(tree.progress, self.known_seq, failures=True) as watch:
            yield watch

    async def _show(self, tree: SessionTree, watch: TreeWatch) -> None:
        """Show what happens until Main has ended."""
        changes = LiveChanges()
        async for record in tree.events():
            watch.take(record)
            self._note(record)
            if self.as_json:
                for change in changes.of(record):
                    self.screen.raw(dump_json(change))
            self._news.set()
            # facts that are there already come without a pause: let others, and Ctrl-C, have their turn
            await asyncio.sleep(0)

    def _note(self, record: JournalRecord) -> None:
        kind = "" if record.session else read_kind(record.text)
        if kind in {"result_held", "session_reactivated"}:
            fact = read_fact(record.text)
            if fact.session == "main":
                self._held = fact.result if kind == "result_held" else None

    def _tell_begin(self, tree: SessionTree) -> None:
        report = tree.main.status()
        if self.as_json:
            self.screen.raw(
                dump_json(
                    {
                        "change": "run_started",
                        "tree": tree.tree_id,
                        "state_dir": str(self.state_dir),
                        "model": report.model,
                        "approvals": report.approval_mode,
                        "commands": describe_commands(report.approval_mode, report.system_tier),
                    }
                )
            )
        else:
            self.progress.line(
                f"tree {tree.tree_id}, {report.model}, {describe_rights(report)}, journal in {self.state_dir}"
            )

    def _tell_result(
        self, result: SessionResult[Any], usage: Usage, status: str, error: str | None, again: str | None
    ) -> None:
        members = {
            "change": "result",
            "tree": self.tree_id,
            "status": str(status),
            "text": result.summary if error is None else "",
            "output": result.output,
            "error": error,
            "usage": usage.to_wire(),
            "resume": again,
        }
        self.screen.raw(dump_json(members))


def _is_reply(tree: SessionTree, held: SessionResult[Any]) -> bool:
    """Return whether Main's final message is what its model replied, and not why it stopped short."""
    last = tree.main.history()[-1]
    return isinstance(last, AssistantMessage) and last.text == held.summary


async def _hear(reader: ProgressReader, take: Callable[[object], None]) -> None:
    while True:
        take((await reader.next()).event)


def _drop(*_: object) -> None:
    """Show nothing."""
