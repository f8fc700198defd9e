"""The contract of a tool: checks that every tool of a tree passes, whoever wrote it.

::

    WEATHER = ToolContract(
        weather,
        cases=(
            ToolCase("a city", {"city": "Bergen"}),
            ToolCase("no such city", {"city": "?"}, error=ExecutionError, says="no city"),
        ),
        not_checked={"slow": "it answers at once", "huge": "a line at most"},
    )


    async def test_weather(tmp_path: Path) -> None:
        await check_tool_contract(WEATHER, tmp_path)

Each case runs in a tree of its own, over a workspace of its own.
Not here: contexts without a tree (``context``).
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import jsonschema_rs

from sessiontree.api.agents.agents import AgentSpec
from sessiontree.api.options.app import App
from sessiontree.api.options.options import PolicyLike
from sessiontree.api.runtime.runtime_options import BackendName
from sessiontree.api.tree.session_handle import SessionHandle
from sessiontree.api.tree.session_tree import SessionTree
from sessiontree.contracts.errors import PermissionDenied, SessionTreeError, Timeout
from sessiontree.contracts.kinds import PermissionTier, SessionKind
from sessiontree.contracts.recorded.approvals import ApprovalMode
from sessiontree.contracts.recorded.results import ToolResult
from sessiontree.contracts.tools.tool import Tool, ToolFlag, check_tool
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.messages import AssistantMessage, ToolCall, ToolReply, ToolResultMessage
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.models.port import ModelRequest
from sessiontree.models.scripted import FunctionModel
from sessiontree.schema.compiled import compile_tool
from sessiontree.schema.dialect import DIALECTS
from sessiontree.testing.context import call_tool, make_context

Part: TypeAlias = Literal["slow", "huge", "undecodable", "restart"]
"""A part of the contract that needs a case of its own, or a reason why it has none."""
CONTEXT_TOKENS: Final = 8_000
"""Context of the model in every check, so that a huge result is one of 10,000 characters."""
TIME_OUT_S: Final = 0.3
"""Time limit of the call that is too slow."""
END_S: Final = 30.0
"""How long a call or a process may take to end once it has to; a machine may be busy."""


@dataclass(frozen=True, slots=True)
class ToolCase:
    """One call of the tool, and what comes of it."""

    name: str
    """What it shows, in a few words."""
    arguments: Mapping[str, JsonValue]
    """As a model gives them."""
    error: type[SessionTreeError] | None = None
    """The documented error that it ends with; None = it succeeds."""
    says: str = ""
    """A part of the result's text, or of the error's."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """The workspace before the call: path to content."""
    check: Callable[[ToolReply, Path], object] | None = None
    """Gets the reply and the workspace after the call; raises AssertionError if they are wrong."""


@dataclass(frozen=True, slots=True)
class ToolContract:
    """What one tool promises.

    The first case must succeed. ``slow``, ``huge`` and ``undecodable`` are calls that last several seconds,
    whose result is longer than a model may read, and that meet bytes which are not UTF-8. Each of them needs
    a case, or a reason in ``not_checked``. A tool that ends by itself at its time limit has a result then: a
    part of it is ``says`` of the slow case. Other tools fail with a time-out.
    """

    tool: Tool[Any]
    cases: Sequence[ToolCase]
    slow: ToolCase | None = None
    huge: ToolCase | None = None
    undecodable: ToolCase | None = None
    not_checked: Mapping[Part, str] = field(default_factory=dict)
    """Part of the contract to the reason why it does not apply."""
    app: App = field(default_factory=App)
    """What the trees are made from besides the tool and a model: web settings, a container, hooks, and the
    configuration of the agent ``default``."""
    policy: PolicyLike = None
    """The owner's policy in each tree, for a tool that is not offered without one."""
    around: Callable[[SessionTree, SessionHandle[Any]], AbstractAsyncContextManager[object]] | None = None
    """Is entered with each open tree and its calling session before the call, and left after it: for a
    program that spawns a child for the tool, or answers questions."""


@dataclass(frozen=True, slots=True)
class ContractReport:
    """What was checked, in order."""

    passed: tuple[str, ...]
    """Checks that the tool passed, as ``part: case``."""
    not_checked: Mapping[Part, str]
    """Parts that do not apply, with the reasons."""


async def check_tool_contract(
    contract: ToolContract, root: Path, *, backend: BackendName = "local", end_s: float = END_S
) -> ContractReport:
    """Run every check of a tool's contract; return what was checked.

    On Ray, the checks that watch a call from inside (capability, time-out, cancellation, restart) are left to
    the local backend: there the tool runs in another process.

    Args:
        contract: The tool and its cases.
        root: An empty directory for workspaces and journals.
        backend: Where the trees run.
        end_s: Seconds that a call or a process may take to end once it has to.

    Raises:
        AssertionError: the tool breaks its contract; names every check that failed, and how.
        ConfigError: the tool can't be in any tree.
    """
    _check_complete(contract)
    checks = _Checks(contract, root, backend, end_s)
    await checks.run()
    if checks.failed:
        raise AssertionError(f"tool {contract.tool.name!r} breaks its contract:\n" + "\n".join(checks.failed))
    return ContractReport(tuple(checks.passed), dict(contract.not_checked))


def _check_complete(contract: ToolContract) -> None:
    check_tool(contract.tool)
    if not contract.cases or contract.cases[0].error is not None:
        raise AssertionError(f"the contract of {contract.tool.name!r}: the first case must be a success")
    for part in ("slow", "huge", "undecodable"):
        if (getattr(contract, part) is None) == (part not in contract.not_checked):
            raise AssertionError(
                f"the contract of {contract.tool.name!r}: give a case for {part!r}, "
                "or a reason in not_checked"
            )


class _Checks:
    """Runs the checks one after another, each in a directory of its own."""

    def __init__(self, contract: ToolContract, root: Path, backend: BackendName, end_s: float) -> None:
        self._contract = contract
        self._tool = contract.tool
        self._root = root
        self._backend = backend
        self._end_s = end_s
        self._made = 0
        self.passed: list[str] = []
        self.failed: list[str] = []

    async def run(self) -> None:
        contract, first = self._contract, self._contract.cases[0]
        async with self._note_check("schema: every dialect takes the first case"):
            _check_schemas(self._tool, first.arguments)
        for case in contract.cases:
            async with self._note_check(f"case: {case.name}"):
                await self._expect(case)
        for kind in SessionKind:
            async with self._note_check(f"kind: {kind}"):
                await self._check_kind(kind)
        async with self._note_check("tier: what needs an answer is refused without one"):
            await self._check_tier()
        for part in ("huge", "undecodable"):
            case = getattr(contract, part)
            if case is not None:
                async with self._note_check(f"{part}: {case.name}"):
                    await self._expect(case)
        if self._backend == "local":
            await self._watch()

    async def _watch(self) -> None:
        """Run the checks that watch the call from inside this process."""
        if self._tool.capabilities:
            async with self._note_check("capability: without its handles it is refused"):
                await self._check_capabilities()
        if (slow := self._contract.slow) is not None:
            async with self._note_check("time-out"):
                await self._check_time_out(slow)
            async with self._note_check("cancellation"):
                await self._check_cancelled(slow)
        if "restart" not in self._contract.not_checked:
            for moment in ("before", "after"):
                async with self._note_check(f"restart: {moment} its work"):
                    await self._check_restart(moment)

    @contextlib.asynccontextmanager
    async def _note_check(self, name: str) -> AsyncIterator[None]:
        """Note how one check went, and that it left nothing behind."""
        # Taken before the check, because the tests themselves may have processes.
        before = _descendants()
        try:
            yield
            left = await _left_since(before, self._end_s)
            _require(not left, f"processes are left: {', '.join(left)}")
        except (AssertionError, SessionTreeError, OSError) as error:
            self.failed.append(f"- {name}: {type(error).__name__}: {error}")
        else:
            self.passed.append(name)

    def _workspace(self, case: ToolCase) -> Path:
        self._made += 1
        workspace = self._root / f"{self._made}" / "workspace"
        workspace.mkdir(parents=True)
        for path, data in case.files.items():
            (workspace / path).parent.mkdir(parents=True, exist_ok=True)
            (workspace / path).write_bytes(data)
        return workspace

    def _app(self, tool: Tool[Any], model: Callable[[ModelRequest], Any], **settings: Any) -> App:
        tools = [*self._contract.app.tools, tool]
        given = (self._contract.app.agents or {}).get("default", AgentSpec()).config
        own = {name: getattr(given, name) for name in given.model_fields_set}
        settings = {**own, "context_tokens": CONTEXT_TOKENS, **settings}
        agent = AgentSpec(tools=[each.name for each in tools], **settings)
        return replace(
            self._contract.app,
            model=FunctionModel(model, context_tokens=CONTEXT_TOKENS),
            tools=tools,
            agents={"default": agent},
            builtin_tools=False,
        )

    @contextlib.asynccontextmanager
    async def _react(
        self,
        workspace: Path,
        tool: Tool[Any] | None = None,
        *,
        approvals: ApprovalMode = "auto",
        model: Callable[[ModelRequest], Any] = lambda request: "done",
        **settings: Any,
    ) -> AsyncIterator[SessionTree]:
        app, state_dir = self._app(tool or self._tool, model, **settings), workspace.parent / "state"
        tree = SessionTree(
            workspace,
            app,
            approvals=approvals,
            policy=self._contract.policy,
            backend=self._backend,
            state_dir=state_dir,
        )
        async with tree, self._around(tree):
            yield tree

    def _around(
        self, tree: SessionTree, session: SessionHandle[Any] | None = None
    ) -> AbstractAsyncContextManager[object]:
        around = self._contract.around
        return contextlib.nullcontext() if around is None else around(tree, session or tree.main)

    async def _expect(self, case: ToolCase) -> None:
        workspace = self._workspace(case)
        async with self._react(workspace) as tree:
            try:
                reply = await tree.main.call(self._tool.name, case.arguments)
            except SessionTreeError as error:
                _check_error(case, error)
                return
            _check_reply(case, reply, workspace)

    async def _check_kind(self, kind: SessionKind) -> None:
        case = self._contract.cases[0]
        workspace = self._workspace(case)
        async with self._react(workspace) as tree:
            session = tree.main
            if kind is not SessionKind.MAIN:
                session = await tree.main.spawn(kind, "wait", stays_open=True)
            # Those who own the tree speak to Main alone.
            is_heard = kind is SessionKind.MAIN or ToolFlag.OWNER_ONLY not in self._tool.flags
            holds = kind in self._tool.kinds and is_heard
            # A session that may not call it can't have what the program prepares, such as a child.
            async with self._around(tree, session) if holds else contextlib.nullcontext():
                try:
                    reply = await session.call(self._tool.name, case.arguments)
                except PermissionDenied as error:
                    _require(not holds, f"a {kind} is refused: {error}")
                    return
            _require(holds, f"a {kind} may call it")
            _check_reply(replace(case, check=None), reply, workspace)

    async def _check_tier(self) -> None:
        case = self._contract.cases[0]
        params, _ = compile_tool(self._tool).validate(dict(case.arguments))
        needed = max(self._tool.tier, self._tool.tier_for(params))
        workspace = self._workspace(case)
        async with self._react(workspace, approvals="never") as tree:
            try:
                await tree.main.call(self._tool.name, case.arguments)
            except PermissionDenied:
                _require(needed >= PermissionTier.SYSTEM, f"a {needed.label} call is refused in mode 'never'")
                return
        _require(needed < PermissionTier.SYSTEM, f"a {needed.label} call runs in mode 'never'")

    async def _check_capabilities(self) -> None:
        case = self._contract.cases[0]
        workspace = self._workspace(case)
        ctx = make_context(workspace, reader=None, writer=None, channel=None, sessions=None, subtree=None)
        try:
            await call_tool(self._tool, ctx, **case.arguments)
        except PermissionDenied:
            return
        raise AssertionError("it works without any handle")

    async def _check_time_out(self, slow: ToolCase) -> None:
        workspace = self._workspace(slow)
        limits: dict[str, Any] = {"tool_timeouts": {self._tool.name: TIME_OUT_S}}
        probe, seen = _observed(self._tool)
        async with self._react(workspace, probe, **limits) as tree:
            try:
                reply = await asyncio.wait_for(tree.main.call(self._tool.name, slow.arguments), self._end_s)
            except Timeout:
                pass
            else:
                says = slow.says or "nothing of a time limit"
                _require(
                    slow.says and slow.says in reply.text, f"its result says {says}: {reply.text[:200]!r}"
                )
            await self._end(seen)

    async def _check_cancelled(self, slow: ToolCase) -> None:
        workspace = self._workspace(slow)
        probe, seen = _observed(self._tool)
        async with self._react(workspace, probe) as tree:
            call = asyncio.create_task(tree.main.call(self._tool.name, slow.arguments))
            begun = asyncio.create_task(seen.begun.wait())
            await asyncio.wait((call, begun), timeout=self._end_s, return_when=asyncio.FIRST_COMPLETED)
            begun.cancel()
            _require(not call.done(), f"it ended before it could be cancelled: {call}")
            await tree.cancel("the contract cancels it")
            try:
                await asyncio.wait_for(call, self._end_s)
            except SessionTreeError:
                pass
            else:
                raise AssertionError("a cancelled call has a result")
            await self._end(seen)

    async def _end(self, seen: _Seen) -> None:
        try:
            await asyncio.wait_for(seen.idle.wait(), self._end_s)
        except TimeoutError:
            raise AssertionError(f"it goes on {self._end_s} s after its call has ended") from None

    async def _check_restart(self, moment: Literal["before", "after"]) -> None:
        """Resume a copy of the journal that was made while the call ran, as after a loss of power."""
        case = self._contract.cases[0]
        workspace = self._workspace(case)
        copied = workspace.parent / "copied"

        def keep() -> None:
            # Copied in the middle of the call: this is what a loss of power at this moment would leave.
            shutil.copytree(workspace.parent / "state", copied / "state", ignore=_no_sockets)
            shutil.copytree(workspace, copied / "workspace", symlinks=True)

        probe, first = _observed(self._tool, **{moment: keep})
        model = _make_caller(self._tool.name, case.arguments)
        async with self._react(workspace, probe, model=model) as tree:
            reply = await tree.main.send("call the tool")
            _require(first.call_ids, f"the call did not reach the tool: {_convert_reply(tree)}")
            done = _snapshot(workspace)
            _require(reply == "done", reply)
        shutil.rmtree(workspace)
        shutil.copytree(copied / "workspace", workspace, symlinks=True)
        probe, again = _observed(self._tool)
        resumed = await SessionTree.resume(
            tree.tree_id, self._app(probe, model), backend="local", state_dir=copied / "state"
        )
        async with resumed, self._around(resumed):
            await resumed.main.send("go on")
            result = _convert_reply(resumed)
        if result is None:
            raise AssertionError("the call has no result after the restart")
        if self._tool.idempotent or self._tool.tier is PermissionTier.READ_ONLY:
            _require(
                again.call_ids == first.call_ids, f"it was called {again.call_ids} after {first.call_ids}"
            )
            _require(not result.is_error, result.text)
            _require(_snapshot(workspace) == done, "its repetition changed the workspace otherwise")
        else:
            _require(not again.call_ids, "a call that may have run was run again")
            _require(result.is_error, f"a call that may have run has the result {result.text!r}")


@dataclass(slots=True)
class _Seen:
    """What was seen of a tool's calls."""

    call_ids: list[str] = field(default_factory=list)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    running: int = 0
    idle: asyncio.Event = field(default_factory=asyncio.Event)


def _observed(
    tool: Tool[Any], *, before: Callable[[], None] | None = None, after: Callable[[], None] | None = None
) -> tuple[Tool[Any], _Seen]:
    """Return a copy of the tool whose calls are noted, and the notes."""
    seen, execute = _Seen(), tool.execute

    async def noted(params: Any, ctx: Any) -> ToolResult:
        seen.call_ids.append(ctx.call_id)
        seen.running += 1
        seen.idle.clear()
        if before is not None:
            before()
        seen.begun.set()
        try:
            result = await execute(params, ctx)
        finally:
            seen.running -= 1
            if not seen.running:
                seen.idle.set()
        if after is not None:
            after()
        return result

    probe = copy.copy(tool)
    object.__setattr__(probe, "execute", noted)
    return probe, seen


def _make_caller(tool: str, arguments: Mapping[str, JsonValue]) -> Callable[[ModelRequest], Any]:
    def reply(request: ModelRequest) -> str | AssistantMessage:
        if request.turn > 1:
            return "done"
        return AssistantMessage((ToolCall("c1", tool, dict(arguments)),), "toolUse")

    return reply


def _convert_reply(tree: SessionTree) -> ToolResultMessage | None:
    """Return the result of Main's first call."""
    return next((each for each in tree.main.history() if isinstance(each, ToolResultMessage)), None)


def _check_schemas(tool: Tool[Any], arguments: Mapping[str, JsonValue]) -> None:
    compiled = compile_tool(tool)
    for dialect in DIALECTS.values():
        shown = compiled.clean_for(dialect).schema
        for fault in jsonschema_rs.validator_for(shown).iter_errors(dict(arguments)):
            # A strict dialect requires every member, and its models send null for one that is left out.
            left_out = dialect.is_strict and fault.schema_path[-1:] == ["required"]
            _require(left_out, f"{dialect.name}: {fault}")


def _require(condition: object, otherwise: str) -> None:
    """Raise AssertionError unless a condition holds; an ``assert`` would be left out by ``python -O``."""
    if not condition:
        raise AssertionError(otherwise)


def _check_error(case: ToolCase, error: SessionTreeError) -> None:
    if case.error is None:
        raise AssertionError(f"{type(error).__name__}: {error}") from error
    _require(
        isinstance(error, case.error), f"{type(error).__name__} instead of {case.error.__name__}: {error}"
    )
    _require(case.says in str(error), f"{case.says!r} is not in {str(error)!r}")


def _check_reply(case: ToolCase, reply: ToolReply, workspace: Path) -> None:
    _require(case.error is None, f"it succeeds instead of {case.error}: {reply.text[:200]!r}")
    _require(case.says in reply.text, f"{case.says!r} is not in {reply.text[:500]!r}")
    json.dumps([reply.output, reply.text, reply.details]).encode()
    most = AgentSpec(context_tokens=CONTEXT_TOKENS).config.max_result_chars
    _require(len(reply.text) <= most, f"the result has {len(reply.text)} characters, more than {most}")
    if case.check is not None:
        case.check(reply, workspace)


def _no_sockets(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if not (Path(folder, name).is_file() or Path(folder, name).is_dir())]


def _snapshot(root: Path) -> dict[str, bytes]:
    """Return the files beneath a directory: path to content."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def _descendants() -> dict[int, str]:
    """Return the processes below this one: process id to name; those that ended and wait are left out."""
    children: dict[int, list[int]] = {}
    names: dict[int, str] = {}
    for entry in (each.name for each in Path("/proc").iterdir()):
        if entry.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                stat = Path("/proc", entry, "stat").read_text(errors="replace")
                name, rest = (
                    stat[stat.index("(") + 1 : stat.rindex(")")],
                    stat[stat.rindex(")") + 2 :].split(),
                )
                if rest[0] != "Z":
                    names[int(entry)] = name
                    children.setdefault(int(rest[1]), []).append(int(entry))
    below, waiting = {}, [os.getpid()]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            below[child] = names[child]
            waiting.append(child)
    return below


async def _left_since(before: Mapping[int, str], end_s: float) -> list[str]:
    """Return names of processes that a check left; those that are about to end get ``end_s`` seconds."""
    end = time.monotonic() + end_s
    while left := [name for pid, name in _descendants().items() if pid not in before]:
        if time.monotonic() > end:
            break
        await asyncio.sleep(0.05)
    return left
