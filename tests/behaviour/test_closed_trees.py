"""After a tree is closed nothing of it is left: no task, no thread, no open file, no prompt, no complaint."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import io
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sessiontree import (
    ApprovalAnswer,
    ApprovalRequest,
    AsyncFunctionModel,
    CallbackChannel,
    ConfigError,
    Limits,
    ModelRequest,
    ScriptedModel,
    SessionKind,
    SessionTree,
    SessionTreeError,
    TerminalChannel,
    script_call,
)
from sessiontree.api.runtime.backend import READ_WAIT_S
from sessiontree.contracts.facts.tree_facts import SessionSpawned
from sessiontree.models.answers import Answer
from tests.behaviour import household_fakes as household
from tests.behaviour.effect_fakes import TOOLS, effects
from tests.behaviour.fact_fixtures import PATIENCE_S, asked, until
from tests.behaviour.switchboard_fixtures import Switchboard
from tests.behaviour.tree_fixtures import Opener
from tests.behaviour.waiting_fakes import Sleeper

pytestmark = pytest.mark.own_runtime


@dataclass(frozen=True)
class Inventory:
    """What a process holds that somebody must let go of."""

    tasks: frozenset[asyncio.Task[Any]]
    threads: frozenset[threading.Thread]
    files: frozenset[tuple[str, str]]
    """Open descriptors and what they are."""

    def since(self, before: Inventory) -> list[str]:
        """Return what was not there before."""
        return [
            *map(repr, self.tasks - before.tasks),
            *map(repr, self.threads - before.threads),
            *map(repr, self.files - before.files),
        ]


def inventory() -> Inventory:
    """Return what this process holds now, but for the test runner's task and the loop's own thread pool."""
    tasks = {
        task
        for task in asyncio.all_tasks()
        if "TestRunner" not in getattr(task.get_coro(), "__qualname__", "")
    }
    threads = {thread for thread in threading.enumerate() if not thread.name.startswith("asyncio_")}
    files = set()
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            files.add((path.name, str(path.readlink())))
    return Inventory(frozenset(tasks), frozenset(threads), frozenset(files))


@pytest.fixture
async def engine_stays(request: pytest.FixtureRequest, open_tree: Opener) -> None:
    """A Ray runs before and after the test: ended, the library keeps a log and sockets that are no tree's."""
    if open_tree.backend == "ray":
        runtime = request.getfixturevalue("ray_runtime")
        async with SessionTree(open_tree.workspace, model=ScriptedModel(["done"]), runtime=runtime) as tree:
            await tree.main.send("start it")


@pytest.fixture(scope="module")
def warm() -> set[str]:
    """The backends on which a tree with a runtime of its own has already run in this process."""
    return set()


@pytest.fixture
async def nothing_left(
    engine_stays: None, open_tree: Opener, board: Switchboard, warm: set[str]
) -> AsyncIterator[None]:
    """What the test leaves behind fails it; a first tree makes what the process makes once.

    What a loop makes once, the tree of ``engine_stays`` has made on Ray. Processes for another are costly.
    """
    if open_tree.backend not in warm:
        async with open_tree.elsewhere("first")(
            ScriptedModel([script_call("read", path="none"), "done"])
        ) as tree:
            await tree.main.send("warm up")
    if open_tree.backend == "ray":
        warm.add("ray")
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
    before = inventory()
    yield
    await asyncio.sleep(0)
    gc.collect()
    assert await asyncio.to_thread(board.is_quiet, PATIENCE_S), "a tool or model is still on the line"
    assert inventory().since(before) == []
    assert complaints == []


async def test_what_is_left_is_found(tmp_path: Path) -> None:
    """The inventory sees a task, a thread and a file."""
    before = inventory()
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, args=(20,))
    thread.start()
    task = asyncio.create_task(asyncio.Event().wait())
    with (tmp_path / "a.txt").open("w"):
        assert len(inventory().since(before)) == 3
    stop.set()
    thread.join()
    task.cancel()
    await asyncio.wait({task})
    assert inventory().since(before) == []


def everywhere(request: ModelRequest) -> Answer:
    """Main waits for its Branches; one of them waits for a person, Workers for their tool."""
    if request.kind is SessionKind.WORKER:
        return script_call("sleeper")
    if request.session_id == "main":
        spawn = script_call("sessions_spawn", kind="branch", task="go")
        return [spawn, spawn] if request.turn == 1 else "waiting"
    if request.turn == 1:
        return [
            script_call("launch"),
            script_call("sessions_spawn", kind="worker", task="look"),
            script_call("look"),
        ]
    return "done"


async def slowly(request: ModelRequest) -> Answer:
    """Answer as above; Workers of the second Branch never get an answer."""
    if request.session_id == "main/b2/w1":
        await asyncio.get_running_loop().create_future()
    return everywhere(request)


@pytest.mark.covers("REL-S47")
@pytest.mark.slow
@pytest.mark.usefixtures("nothing_left")
async def test_tree_closed_in_the_middle_of_everything_leaves_nothing(
    open_tree: Opener, board: Switchboard
) -> None:
    """Tools run, models think, prompts are out, readers wait: closing ends them all."""
    shown, withdrawn = asyncio.Semaphore(0), asyncio.Semaphore(0)

    async def ask(request: ApprovalRequest) -> ApprovalAnswer:
        shown.release()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            withdrawn.release()
        return ApprovalAnswer(True)

    async def follow(tree: SessionTree) -> int:
        return len([record async for record in tree.events()])

    sleeper = Sleeper(board)
    tree = open_tree(
        AsyncFunctionModel(slowly),
        tools=[*TOOLS, sleeper],
        channel=CallbackChannel(ask),
        limits=Limits(approval_patience_s=None),
    )
    await tree.start()
    tree.main.send("go")
    reading = asyncio.create_task(follow(tree))
    async with asyncio.timeout(PATIENCE_S):
        await shown.acquire()
        await shown.acquire()
        await sleeper.started.wait()
        progress = tree.progress()
        sending = tree.main.send("and?")
        calling = asyncio.create_task(tree.main.call("sleeper"))
        await asyncio.sleep(0)
        await tree.close()
        await withdrawn.acquire()
        await withdrawn.acquire()
        with pytest.raises(SessionTreeError):
            await sending
        with pytest.raises(SessionTreeError):
            await calling
        with contextlib.suppress(SessionTreeError):
            await reading
    progress.close()
    assert effects(open_tree.workspace) == []


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_left")
async def test_finished_tree_leaves_nothing(open_tree: Opener) -> None:
    """The ordinary end, with a reply nobody waited for."""
    async with open_tree(household.MODEL, tools=TOOLS, approvals="auto") as tree:
        tree.main.send("go")
        await household.finished(tree)
        await tree.finish("over")


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_left")
async def test_tree_that_was_never_opened_or_failed_to_open_leaves_nothing(open_tree: Opener) -> None:
    """Making a tree holds nothing; a start that fails lets go of what it had."""
    open_tree(ScriptedModel(["done"]))
    async with open_tree(ScriptedModel(["done"])) as tree:
        with pytest.raises(SessionTreeError):
            await open_tree.resume(tree.tree_id, ScriptedModel(["done"]))
    with pytest.raises(SessionTreeError):
        await open_tree.resume("nobody", ScriptedModel(["done"]))


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_left")
async def test_error_inside_the_block_closes_the_tree(open_tree: Opener) -> None:
    """Whatever the program raises, its tree is closed and the error is the program's."""
    with pytest.raises(LookupError, match="mine"):
        async with open_tree(ScriptedModel([script_call("launch"), "done"]), tools=TOOLS) as tree:
            await tree.main.spawn("branch", "go")
            await asked(tree)
            raise LookupError("mine")


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_left")
async def test_cancelled_program_closes_its_tree(open_tree: Opener) -> None:
    """Ctrl-C in the middle: the cancellation goes through, and the tree can be resumed."""
    ids: list[str] = []
    begun = asyncio.Event()

    async def program() -> None:
        async with open_tree(household.MODEL, tools=TOOLS) as tree:
            ids.append(tree.tree_id)
            tree.main.send("go")
            await until(tree, SessionSpawned, count=3)
            begun.set()
            await asyncio.get_running_loop().create_future()

    running = asyncio.create_task(program())
    await begun.wait()
    running.cancel()
    await asyncio.wait({running})
    assert running.cancelled()
    async with await open_tree.resume(ids[0], household.MODEL, tools=TOOLS) as tree:
        assert len(tree.receipt()) >= 3


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_left")
async def test_closing_twice_and_at_once_is_harmless(open_tree: Opener) -> None:
    """Whoever closes first closes; the others find it done."""
    tree = await open_tree(household.MODEL, tools=TOOLS).start()
    tree.main.send("go")
    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(tree.close())
    await tree.close()
    again = await open_tree.resume(tree.tree_id, household.MODEL, tools=TOOLS)
    await again.close()
    await again.close()


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_left")
async def test_runtime_closed_before_its_trees_ends_them(open_tree: Opener) -> None:
    """The trees say that they are closed; closing them afterwards is harmless, and so is closing again."""
    runtime = open_tree.runtime()
    tree = await open_tree(
        ScriptedModel([script_call("launch"), "done"]), tools=TOOLS, runtime=runtime
    ).start()
    waiting = tree.main.send("go")
    await asked(tree)
    await runtime.close()
    with pytest.raises(SessionTreeError):
        await waiting
    with pytest.raises(SessionTreeError):
        await tree.main.send("more")
    await tree.close()
    await runtime.close()


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_left")
async def test_runtime_closed_before_its_trees_withdraws_their_prompts(open_tree: Opener) -> None:
    """At once, not when the tree is closed, and nothing ends with an error that no one hears of."""
    shown, withdrawn = asyncio.Event(), asyncio.Event()

    async def ask(request: ApprovalRequest) -> ApprovalAnswer:
        shown.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            withdrawn.set()
        return ApprovalAnswer(True)

    runtime = open_tree.runtime()
    model = ScriptedModel([script_call("launch"), "done"])
    tree = await open_tree(model, tools=TOOLS, runtime=runtime, channel=CallbackChannel(ask)).start()
    waiting = tree.main.send("go")
    async with asyncio.timeout(PATIENCE_S):
        await shown.wait()
    await runtime.close()
    with pytest.raises(SessionTreeError):
        await waiting
    async with asyncio.timeout(READ_WAIT_S / 2):
        await withdrawn.wait()
    await tree.close()


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_left")
async def test_trees_of_one_runtime_do_not_meet(open_tree: Opener, tmp_path: Path) -> None:
    """Same paths, same calls, other workspaces: each has its own files, facts, requests and end."""
    places = [tmp_path / "one", tmp_path / "two"]
    async with open_tree.runtime(slots=2) as runtime:
        trees = []
        for place in places:
            place.mkdir()
            trees.append(
                await open_tree(household.MODEL, tools=TOOLS, workspace=place, runtime=runtime).start()
            )
        assert trees[0].tree_id != trees[1].tree_id
        for tree in trees:
            tree.main.send("go")
        first, second = trees
        for pending in await asked(first, 2):
            await pending.approve()
        assert len(await asked(second, 2)) == 2
        await household.finished(first)
        assert household.done(places[0]) == household.EFFECTS
        assert len(second.approvals.pending()) == 2
        assert sum(household.done(places[1]).values()) == 4
        await first.cancel("the first alone")
        await first.close()
        for pending in second.approvals.pending():
            await pending.approve()
        await household.finished(second)
        assert household.outcome(second) == household.RESULTS
        assert household.done(places[0]) == household.done(places[1]) == household.EFFECTS
        again = await open_tree.resume(first.tree_id, household.MODEL, tools=TOOLS, runtime=runtime)
        assert {str(line.status) for line in again.receipt()} == {"completed", "cancelled"}
        with pytest.raises(ConfigError, match="open"):
            await open_tree.resume(second.tree_id, household.MODEL, tools=TOOLS, runtime=runtime)
        await again.close()
        await second.close()


@pytest.mark.usefixtures("engine_stays")
async def test_terminal_nobody_types_at_keeps_nothing_but_its_reader(open_tree: Opener) -> None:
    """The one thread that waits for a key is a daemon's; the question is withdrawn from the screen."""

    class Keyboard(io.StringIO):
        typed = threading.Event()

        def readline(self, size: int | None = -1, /) -> str:  # type: ignore[override]
            self.typed.wait(60)
            return ""

    class Screen(io.StringIO):
        asks = asyncio.Event()

        def write(self, text: str, /) -> int:
            if "allow?" in text:
                self.asks.set()
            return super().write(text)

    screen, keyboard = Screen(), Keyboard()
    before = inventory().threads
    tree = open_tree(
        ScriptedModel([script_call("launch"), "done"]), tools=TOOLS, channel=TerminalChannel(keyboard, screen)
    )
    await tree.start()
    tree.main.send("go")
    async with asyncio.timeout(PATIENCE_S):
        await screen.asks.wait()
        await tree.close()
    assert "withdrawn" in screen.getvalue()
    left = inventory().threads - before
    assert all(thread.daemon for thread in left)
    assert len(left) == 1
    keyboard.typed.set()
    for thread in left:
        thread.join(60)
