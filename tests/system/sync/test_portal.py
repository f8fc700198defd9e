"""One loop thread for all sync trees, from the first opened to the last closed; clear errors elsewhere."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import BaseModel

from sessiontree import (
    AsyncFunctionModel,
    ConfigError,
    FunctionModel,
    ModelRequest,
    PermissionTier,
    ScriptedModel,
    SessionTreeError,
    Tool,
    ToolContext,
    ToolResult,
    script_call,
    tool,
)
from sessiontree.models.answers import Answer
from sessiontree.sync import SessionTree
from tests.behaviour.effect_fakes import TOOLS
from tests.behaviour.signal_fixtures import Flag, Turnstile
from tests.behaviour.switchboard_fixtures import Switchboard
from tests.system.sync.conftest import ours
from tests.system.sync.tree_fixtures import PATIENCE_S, Caller, Opener

MODEL = FunctionModel(lambda request: f"heard {request.messages[-1].text}")


def portals() -> int:
    """Return how many loop threads live."""
    return sum(thread.name == "sessiontree-sync" for thread in ours())


def test_all_trees_share_one_thread_that_ends_with_the_last(open_tree: Opener, tmp_path: Path) -> None:
    """Making a tree starts nothing; the second joins; closing in any order ends it with the last."""
    first = open_tree(MODEL)
    second = open_tree(MODEL, state_dir=tmp_path / "second")
    assert portals() == 0
    first.start()
    second.start()
    assert portals() == 1
    first.close()
    assert portals() == 1
    assert second.main.send("still") == "heard still"
    second.close()
    assert portals() == 0


def test_failed_start_and_a_failed_resume_leave_no_thread(open_tree: Opener) -> None:
    """What could not be opened holds nothing."""
    open_tree.state_dir.write_text("a file where a directory should be")
    for attempt in (
        lambda: open_tree(MODEL).start(),
        lambda: open_tree.resume("x", MODEL),
        open_tree.runtime,
    ):
        with pytest.raises(SessionTreeError):
            attempt()
        assert portals() == 0


@pytest.mark.slow
def test_trees_opened_and_closed_by_many_threads_at_once(open_tree: Opener, tmp_path: Path) -> None:
    """Starting and ending meet in every order; each tree works, and nothing is left."""

    def live(number: int) -> list[str]:
        heard = []
        for turn in range(3):
            with open_tree(MODEL, state_dir=tmp_path / f"{number}") as tree:
                heard.append(tree.main.send(f"{number}.{turn}"))
        return heard

    callers = [Caller(lambda number=number: live(number)) for number in range(4)]  # type: ignore[misc]
    for number, caller in enumerate(callers):
        assert caller.outcome() == [f"heard {number}.{turn}" for turn in range(3)]
    assert portals() == 0


class Nothing(BaseModel):
    """No parameters."""


class OnLoop(Tool[Nothing]):
    """A tool that runs on the tree's own loop and uses the sync tree there."""

    name = "on_loop"
    description = "Use the tree."
    Params: ClassVar[type[BaseModel]] = Nothing
    tier = PermissionTier.READ_ONLY
    trees: ClassVar[list[SessionTree]] = []

    async def execute(self, params: Nothing, ctx: ToolContext) -> ToolResult:
        refusals = []
        for use in (
            self.trees[0].receipt,
            lambda: self.trees[0].main,
            self.trees[0].close,
            self.trees[1].start,
        ):
            try:
                use()
            except ConfigError as error:
                refusals.append(str(error))
        return ToolResult([*refusals])


def test_sync_tree_is_refused_on_its_own_loop(tmp_path: Path) -> None:
    """A tool that would wait for itself gets an error it can read; nothing hangs, and the tree goes on."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    opened = Opener("local", workspace, tmp_path / "state")  # elsewhere tools run in other processes
    other = opened(MODEL, state_dir=tmp_path / "other")
    with opened(ScriptedModel([script_call("on_loop"), "done"]), tools=[OnLoop()]) as tree:
        OnLoop.trees[:] = [tree, other]
        refusals = tree.main.call("on_loop").output
        assert isinstance(refusals, list)
        assert len(refusals) == 4
        assert all("own event loop" in str(refusal) for refusal in refusals)
        assert tree.main.send("go") == "done"
    OnLoop.trees.clear()


def test_tool_made_of_a_plain_function_may_use_the_sync_tree(tmp_path: Path) -> None:
    """It runs in a thread of its own, not on the loop."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    trees: list[SessionTree] = []

    @tool(tier=PermissionTier.READ_ONLY)
    def ask_branch(text: str) -> str:
        """Have a Branch say something.

        Args:
            text: What to say.
        """
        return trees[0].main.spawn("branch", text).result().summary

    with Opener("local", workspace, tmp_path / "state")(MODEL, tools=[ask_branch]) as tree:
        trees.append(tree)
        assert tree.main.call("ask_branch", {"text": "hi"}).text == "heard hi"


def test_tree_is_used_from_the_thread_of_a_running_loop(open_tree: Opener) -> None:
    """A notebook's cell runs so: the thread's own loop stops, the tree does not."""

    async def cell() -> list[str]:
        with open_tree(MODEL, tools=TOOLS, approver=lambda request: True) as tree:
            replies = [tree.main.send("one")]
            replies += tree.main.stream("two")
            replies.append(tree.main.call("launch", {"text": "x"}).text)
            tree.finish("over")
            assert len(list(tree.events())) > 3
            await asyncio.sleep(0)
        return [*replies, "end"]

    assert asyncio.run(cell()) == ["heard one", "appended x", "end"]


def test_two_coroutines_of_one_loop_take_turns(open_tree: Opener) -> None:
    """Each blocks the loop while it calls, as any blocking code does, and both get their replies."""

    async def cells() -> list[str]:
        with open_tree(MODEL) as tree:

            async def cell(text: str) -> str:
                await asyncio.sleep(0)
                return tree.main.send(text)

            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(cell(text)) for text in ("a", "b")]
            return [task.result() for task in tasks]

    assert asyncio.run(cells()) == ["heard a", "heard b"]


def test_thread_of_a_tool_that_is_stuck_does_not_hold_the_tree_open(tmp_path: Path) -> None:
    """Closing leaves it behind; it ends when what it waits for comes."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    begun, let_go = threading.Event(), threading.Event()

    @tool(tier=PermissionTier.READ_ONLY)
    def stuck() -> str:
        """Hang."""
        begun.set()
        let_go.wait(PATIENCE_S)
        return "late"

    with Opener("local", workspace, tmp_path / "state")(MODEL, tools=[stuck]) as tree:
        main = tree.main
        calling = Caller(lambda: main.call("stuck"))
        assert begun.wait(PATIENCE_S)
    assert portals() == 0
    assert not let_go.is_set()
    with pytest.raises(SessionTreeError):
        calling.outcome()
    let_go.set()


def test_each_caller_gets_its_own_reply(open_tree: Opener, board: Switchboard) -> None:
    """Many calls under way at a time come back to those who made them."""
    gate, begun = Turnstile(board), Flag(board)

    async def reply(request: ModelRequest) -> Answer:
        begun.set()
        await gate.acquire()
        return f"heard {request.messages[-1].text}"

    with open_tree(AsyncFunctionModel(reply)) as tree:
        branches = [tree.main.spawn("branch", f"{number}") for number in range(5)]
        callers = [Caller(branch.result) for branch in branches]
        assert begun.wait_blocking(PATIENCE_S)
        gate.release(5)
        assert [caller.outcome().summary for caller in callers] == [f"heard {number}" for number in range(5)]
