"""A check that fails ends its call and not its session: before the question, and before the call runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import BaseModel

from sessiontree import (
    AgentConfig,
    AgentSpec,
    FunctionModel,
    PermissionTier,
    PolicyConfig,
    SessionKind,
    SessionTree,
    Tool,
    ToolCall,
    ToolContext,
    ToolResult,
)
from sessiontree.contracts.errors import ExecutionError, PermissionDenied
from sessiontree.contracts.recorded.approvals import ApprovalRequest
from sessiontree.contracts.tools.context import SessionRights
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.dispatch.dispatcher import Dispatcher
from sessiontree.dispatch.results import ImmediateOutcome, PreparedCall
from sessiontree.dispatch.tool_table import ToolTable
from sessiontree.policy.compiled import compile_policy
from sessiontree.runtime.rights.session_rights import make_session_policy
from sessiontree.testing.context import FixedStatus, fresh_report
from tests.unit.session.session_fixtures import spec


class Line(BaseModel):
    """A command."""

    command: str


class Runs(Tool[Line]):
    """A tool that runs commands."""

    name = "runs"
    description = "Run."
    Params: ClassVar[type[BaseModel]] = Line
    tier = PermissionTier.SYSTEM
    command_in = "command"

    async def execute(self, params: Line, ctx: ToolContext) -> ToolResult:
        """Run nothing."""
        return ToolResult(output=params.command)


Fingerprint = Callable[[Mapping[str, JsonValue], str], str]


def dispatcher_with(fingerprint: Fingerprint) -> Dispatcher:
    """Return the dispatcher of a Main that is asked about commands."""
    table = ToolTable((Runs(),))
    policy = make_session_policy(
        compile_policy(table.rows, PolicyConfig()), "", spec(SessionKind.MAIN), "scripted", has_channel=True
    )
    kind, config = SessionKind.MAIN, AgentConfig(system_tier="ask")
    rights = SessionRights("main", "default", kind, Path("/"), config, FixedStatus(fresh_report(kind)))
    return Dispatcher(
        table, frozenset({"runs"}), rights, policy,
        tool_timeout_s=60.0, now_ms=lambda: 5, command_fingerprint=fingerprint,
        approval_expiry_s=900.0,
    )  # fmt: skip


FAULTS = (RecursionError("too deep"), ValueError("odd"), MemoryError(), OSError(5, "no disk"), KeyError("x"))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda each: type(each).__name__)
def test_error_of_a_check_is_the_calls(fault: Exception) -> None:
    """Its result names the tool and the session; what can't be compared does not run."""
    fails = False

    def fingerprint(arguments: Mapping[str, JsonValue], member: str) -> str:
        if fails:
            raise fault
        return "files"

    dispatcher = dispatcher_with(fingerprint)
    call = ToolCall("c1", "runs", {"command": "ls"})
    prepared = dispatcher.prepare("1.0", call)
    assert isinstance(prepared, PreparedCall)
    assert dispatcher.check_unchanged(prepared, prepared.call.digest) is None
    fails = True
    failed = dispatcher.prepare("1.1", call)
    assert isinstance(failed, ImmediateOutcome)
    assert failed.outcome == "error"
    for words in ("runs", "'main'", "can't be checked"):
        assert words in failed.message.text
    blocked = dispatcher.check_unchanged(prepared, prepared.call.digest)
    assert blocked is not None
    assert blocked.outcome == "blocked"
    assert "can't be checked" in blocked.message.text


def test_error_that_is_meant_for_the_model_is_kept() -> None:
    """As the one about a workspace with too many files."""

    def fingerprint(arguments: Mapping[str, JsonValue], member: str) -> str:
        raise ExecutionError("the workspace holds more than 100,000 files")

    failed = dispatcher_with(fingerprint).prepare("1.0", ToolCall("c1", "runs", {"command": "find ."}))
    assert isinstance(failed, ImmediateOutcome)
    assert "more than 100,000 files" in failed.message.text


@pytest.mark.slow
@pytest.mark.covers("APP7")
async def test_request_says_what_a_yes_covers_and_the_session_goes_on(tmp_path: Path) -> None:
    """An open command says so; a changed file takes the yes back; no text ends the session."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    asked: list[ApprovalRequest] = []

    def judge(request: ApprovalRequest) -> bool:
        asked.append(request)
        (workspace / "run2.sh").write_text("echo CHANGED\n")
        return True

    async with SessionTree(
        workspace, model=FunctionModel(lambda request: "x"), approver=judge, backend="local",
        agents={"default": AgentSpec(config=AgentConfig(system_tier="ask"))}, state_dir=tmp_path / "state",
    ) as tree:  # fmt: skip
        for command in ("sh run$((1+1)).sh", "sh run2.sh", "for ((i=0;i<3;i++)); do sh run$i.sh; done"):
            (workspace / "run2.sh").write_text("echo original\n")
            with pytest.raises(PermissionDenied, match="changed since"):
                await tree.main.call("exec", {"command": command})
        assert [bool(request.opens) for request in asked] == [True, False, True]
        chain = ";".join(f"a{n}=$a{n + 1}$a{n + 1}" for n in range(2_000)) + ";sh $a0"
        with pytest.raises(PermissionDenied, match="changed since"):
            await tree.main.call("exec", {"command": chain})
        assert await tree.main.send("still there?") == "x"
