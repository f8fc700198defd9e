"""What a program is given, type by type: two checkers agree on each line; never run."""

from __future__ import annotations

from typing import Any, assert_type

from pydantic import BaseModel

from sessiontree import (
    AgentConfig,
    ApprovalRequest,
    ChildResult,
    ChildResults,
    Cron,
    CronTable,
    Event,
    Fact,
    FactReader,
    FailureReason,
    JobChange,
    JobRow,
    JobRun,
    PendingApproval,
    PendingReply,
    PermissionTier,
    Progress,
    ProgressReader,
    ReceiptLine,
    RuntimeControl,
    SessionFailed,
    SessionHandle,
    SessionKind,
    SessionResult,
    SessionStatus,
    SessionTree,
    StoredConfiguration,
    ToolContext,
    ToolReply,
    Usage,
    ValidationError,
    sync,
    tool,
)
from sessiontree.facts import CallIntended, SessionEnded


class Report(BaseModel):
    """A result."""

    parts: int


@tool(tier=PermissionTier.READ_ONLY)
def count_words(text: str) -> int:
    """Count words."""
    return len(text.split())


async def use_children(tree: SessionTree, kind: SessionKind) -> None:
    """Results have the type that was asked for."""
    assert_type(tree.main, SessionHandle[Any])
    branch = await tree.main.spawn("branch", "compare", result_type=Report)
    assert_type(branch, SessionHandle[Report])
    result = await branch.result()
    assert_type(result, SessionResult[Report])
    assert_type(result.value, Report)
    assert_type(result.output, Report | None)
    assert_type(result.status, SessionStatus)
    assert_type(result.usage, Usage)
    assert_type(await tree.main.map(kind, ["a"], result_type=int), ChildResults[int])
    assert_type(await tree.main.map("worker", ["a"]), ChildResults[Any])
    async for child in tree.main.as_completed("worker", ["a"], result_type=dict[str, int]):
        assert_type(child, ChildResult[dict[str, int]])
        assert_type(child.value, dict[str, int])
        assert_type(child.session_id, str)
    assert_type((await tree.run("task", result_type=Report)).value, Report)
    await tree.main.spawn("wrokr", "look")  # type: ignore[call-overload]  # ty: ignore[invalid-argument-type]


async def use_messages(tree: SessionTree) -> None:
    """Replies are awaited or read piece by piece."""
    pending = tree.main.send("go")
    assert_type(pending, PendingReply)
    assert_type(await pending, str)
    async for piece in tree.main.send("stream"):
        assert_type(piece, str)
    assert_type(await tree.main.call("read", {"path": "a"}), ToolReply)
    assert_type(await tree.cancel(), tuple[ReceiptLine, ...])
    for request in tree.approvals.pending():
        assert_type(request, PendingApproval)
        assert_type(request.request, ApprovalRequest)


async def use_events(tree: SessionTree) -> None:
    """Facts and events have classes of their own."""
    assert_type(tree.progress(), ProgressReader)
    async for progress in tree.progress("main"):
        assert_type(progress, Progress)
        assert_type(progress.event, Event)
    assert_type(tree.events(after=3), FactReader)
    async for record in tree.events():
        assert_type(record.facts, tuple[Fact, ...])
        match record.fact:
            case CallIntended() as intended:
                assert_type(intended, CallIntended)
            case SessionEnded(status=status):
                assert_type(status, SessionStatus)
            case _:
                pass


def use_twin(tree: sync.SessionTree) -> None:
    """The same without await."""
    branch = tree.main.spawn("branch", "compare", result_type=Report)
    assert_type(branch.result().value, Report)
    assert_type(tree.main.map("worker", ["a"], result_type=int), ChildResults[int])
    assert_type(tree.events(), sync.FactReader)
    for progress in tree.progress():
        assert_type(progress, Progress)
    assert_type(tree.main.send("go"), str)


def use_errors(failed: SessionFailed, refused: ValidationError) -> None:
    """Fields are typed, and so are the arguments that make an error."""
    assert_type(failed.cause, FailureReason)
    assert_type(failed.session_id, str)
    assert_type(refused.field, str | None)
    SessionFailed("main", "no words", "refused")
    SessionFailed("main", "no words", "tired")  # type: ignore[arg-type]  # ty: ignore[invalid-argument-type]


def use_tools(ctx: ToolContext) -> None:
    """A tool is still the function it was made of."""
    assert_type(count_words(text="a b"), int)
    assert_type(ctx.config, AgentConfig)


async def use_timed_jobs(cron: Cron, runtime: RuntimeControl) -> None:
    """A Main's timed jobs, and the runtime of an owner's session."""
    assert_type(await cron.jobs(), CronTable)
    assert_type(await cron.history("job-1", limit=5), tuple[JobRun, ...])
    assert_type(await cron.change(JobChange("pause", "job-1"), key="k"), JobRow)
    assert_type(await runtime.read_configuration(), StoredConfiguration)
