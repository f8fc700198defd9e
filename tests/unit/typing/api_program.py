"""What users write, checked by the type checker and never run."""

from __future__ import annotations

from typing import Any, assert_type

from pydantic import BaseModel

from sessiontree import (
    READER,
    WRITER,
    AgentSpec,
    App,
    Budget,
    ChildResult,
    ChildResults,
    DryRun,
    FunctionModel,
    Limits,
    ModelRequest,
    PermissionTier,
    Rule,
    SessionHandle,
    SessionResult,
    SessionTree,
    StoredTrees,
    Tool,
    ToolContext,
    ToolResult,
    schema_tool,
    script_call,
    tool,
)
from sessiontree.contracts.handles.ports import Reader, Writer
from sessiontree.contracts.values.messages import ToolReply


class CountParams(BaseModel):
    """Parameters of a user's tool."""

    path: str


class Count(Tool[CountParams]):
    """A tool as a class."""

    name = "count"
    description = "Counts lines."
    Params = CountParams  # type: ignore[mutable-override]  # this house's checker is stricter than a user's
    tier = PermissionTier.READ_ONLY

    async def execute(self, params: CountParams, ctx: ToolContext) -> ToolResult:
        """Capabilities are typed."""
        assert_type(ctx.require(READER), Reader)
        assert_type(ctx.require(WRITER), Writer)
        return ToolResult(output=params.path)


@tool(tier=PermissionTier.READ_ONLY)
def double(number: int) -> int:
    """Double a number.

    Args:
        number: Any number.
    """
    return 2 * number


@tool
async def halve(number: int, ctx: ToolContext) -> float:
    """Halve a number."""
    return number / 2


@schema_tool({"type": "object"})
def count_members(arguments: dict[str, Any]) -> int:
    """Count members."""
    return len(arguments)


async def use_as_functions(ctx: ToolContext) -> None:
    """A tool is still the function it was made of."""
    assert_type(double(2), int)
    assert_type(double(number=2), int)
    assert_type(await halve(3, ctx), float)
    assert_type(count_members({}), int)
    double("two")  # type: ignore[arg-type]
    double()  # type: ignore[call-arg]
    SessionTree(".", model=FunctionModel(answer), tools=[double, halve, count_members])


def answer(request: ModelRequest) -> str:
    """A model as a function."""
    script_call("read", path="a.txt")
    return request.system_prompt


async def use() -> None:
    """A tree as a program uses it."""
    model = FunctionModel(answer)
    async with SessionTree(
        ".", model=model, tools=(Count(), double), limits=Limits(max_children=64), approvals="smart"
    ) as tree:
        branch = await tree.main.spawn(
            "branch", "task", budget=Budget(tokens=10), approver=(Rule(tool="count", answer="approve"),)
        )
        assert_type(branch, SessionHandle)
        assert_type(await branch.map("worker", ["a"], concurrency=2), ChildResults[Any])
        async for mapped in branch.as_completed("worker", ["a"], ttl_s=[5], result_type=int):
            assert_type(mapped, ChildResult[int])
            assert_type(mapped.output, int | None)
        assert_type(await tree.run("task", result_type=float), SessionResult[float])
        assert_type(await branch.call("write", {"path": "a", "content": "b"}), ToolReply)
        assert_type(await tree.main.send("and now?"), str)
        async for delta in tree.main.send("stream"):
            assert_type(delta, str)
        for pending in tree.approvals.pending():
            await pending.approve(always=True)
        assert_type(await branch.result(), SessionResult[Any])
        for line in await tree.cancel():
            assert_type(line.session_id, str)
    await SessionTree.resume("t0", model=model, state_dir=".")


APP = App(model=FunctionModel(answer), tools=(Count(), double), agents={"default": AgentSpec()})


async def use_options() -> None:
    """Options that travel as one value are checked by name and type, and result types stay exact."""
    async with SessionTree(".", APP, limits=Limits(max_children=64), approvals="smart") as tree:
        assert_type(await tree.run("task", agent="default", ttl_s=5.0), SessionResult[Any])
        worker = await tree.main.spawn("worker", "task", label="one", result_type=int, stays_open=True)
        assert_type(worker, SessionHandle[int])
        assert_type(await tree.main.map("worker", ["a"], result_type=str), ChildResults[str])
        await tree.main.spawn("worker", "task", lable="one")  # type: ignore[call-overload]
        await tree.main.map("worker", ["a"], concurrency="many")  # type: ignore[call-overload]
        assert_type(await tree.fork(at=3), SessionTree)
    SessionTree(".", APP, limit=5)  # type: ignore[call-arg]
    SessionTree(".", APP, approvals="sometimes")  # type: ignore[arg-type]
    App(modle=None)  # type: ignore[call-arg]
    assert_type(await SessionTree.resume("t0", APP, state_dir="."), SessionTree)
    await SessionTree.resume("t0", APP, limits=Limits())  # type: ignore[call-arg]
    stored = StoredTrees(".")
    for summary in await stored.list():
        assert_type(summary.tree_id, str)
    assert_type(await stored.fork("t0", at=3, replace={"main/w1": "task"}), str)
    assert_type(await stored.dry_resume("t0"), DryRun)
    assert_type(await stored.dry_fork("t0", at=3), DryRun)
