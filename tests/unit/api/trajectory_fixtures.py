"""Trees whose models draw lots, and their trajectories: every kind of work that a trajectory must count."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import random
from pathlib import Path
from typing import Any

from sessiontree import (
    ContextOverflow,
    FunctionModel,
    Limits,
    ModelError,
    ModelRequest,
    PermissionTier,
    PolicyConfig,
    SessionFailed,
    SessionKind,
    SessionTree,
    ToolPolicy,
    script_call,
    tool,
)
from sessiontree.api.trajectories.atif_export import TreeTrajectory
from sessiontree.api.trajectories.step_spool import StepSpool
from sessiontree.contracts.facts.tree_config import TreeConfig
from sessiontree.contracts.values.messages import (
    AssistantMessage,
    TextContent,
    ThinkingContent,
    ToolCall,
    Usage,
)
from sessiontree.journal.claim import locate_journal
from sessiontree.journal.journal import Journal
from sessiontree.journal.record import JournalRecord
from sessiontree.journal.replay import read_config
from sessiontree.models.answers import Answer

PATIENCE_S = 60.0
IDLE, STAY, STOP = "idle", "do nothing", "stop the child that is idle"
ROOM = 9_000
"""How many characters the models take; a longer conversation is compacted."""
PROGRAM = """
notes = await read(path="a.txt")
found = await map("worker", ["look x", "look y"], on_error="return")
[notes, len(found)]
"""


class Lots:
    """Answers by lot, the same for the same question; it fails now and then before it answers."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._asked: set[tuple[str, int]] = set()

    def __call__(self, request: ModelRequest) -> Answer:
        """Return the answer to a question."""
        if request.messages[-1].text == STAY:
            return script_call("stay")
        if request.messages[-1].text == STOP:
            return script_call("subagents", action="kill", target=IDLE)
        place = (request.session_id, request.turn)
        lots = random.Random(f"{self.seed} {place}")
        is_first = place not in self._asked
        self._asked.add(place)
        if is_first and lots.random() < 0.06:
            raise ModelError("the provider is busy", True, 0.0)
        if sum(len(message.text) for message in request.messages) > ROOM:
            raise ContextOverflow("the conversation is too long")
        used = Usage(
            lots.randrange(1000),
            lots.randrange(500),
            lots.random() / 7,
            cache_read_tokens=lots.randrange(100),
            reasoning_tokens=lots.randrange(2),
        )
        calls = [] if request.summarises or request.turn > 5 else self._calls(request, lots)
        said = TextContent(f"said {lots.random()}")
        return AssistantMessage((ThinkingContent("hm"), said, *calls), "toolUse" if calls else "stop", used)

    def _calls(self, request: ModelRequest, lots: random.Random) -> list[ToolCall]:
        calls = [script_call("read", path=lots.choice(["a.txt", "none.txt"]))]
        if request.kind is not SessionKind.WORKER:
            calls += [
                script_call("sessions_spawn", kind="worker", task="look"),
                script_call("sessions_spawn", kind="branch", task="work", label=f"b{request.turn}"),
                script_call("write", path=f"{request.turn}.txt", content="x"),
                script_call("program", code=PROGRAM),
                script_call("subagents", action="kill", target=f"{request.session_id}/b1"),
            ]
        return lots.sample(calls, lots.randrange(min(3, len(calls)) + 1))


async def stop_a_child(tree: SessionTree, is_idle: asyncio.Event) -> None:
    """Let the model of Main stop a child that has replied and cannot end by itself."""
    await tree.main.spawn("branch", STAY, label=IDLE)
    await is_idle.wait()
    await tree.main.send(STOP)


async def grow(place: Path, seed: int) -> str:
    """Let a tree work, and return its id; every third is left open, and every fourth goes on as a fork."""
    workspace = place / "workspace"
    workspace.mkdir(parents=True, exist_ok=True)
    (workspace / "a.txt").write_text("one\n")
    is_idle = asyncio.Event()

    @tool(tier=PermissionTier.READ_ONLY)
    async def stay() -> None:
        """Wait until the session is stopped."""
        is_idle.set()
        await asyncio.Event().wait()

    tree = SessionTree(
        workspace,
        model=FunctionModel(Lots(seed), "lots"),
        limits=Limits(max_depth=3, max_total=25),
        policy=PolicyConfig(tools=ToolPolicy(allow=("*",))),
        approvals="auto",
        state_dir=place / "state",
        backend="local",
        tools=[stay],
    )
    async with asyncio.timeout(PATIENCE_S), tree:
        with contextlib.suppress(SessionFailed):
            await stop_a_child(tree, is_idle)
            await tree.main.send("begin")
        await tree.main.call("read", {"path": "a.txt"})
        helper = await tree.main.spawn("branch", "help")
        with contextlib.suppress(SessionFailed):
            await helper.result()
            for _ in range(4):
                await tree.main.send(f"go on {'x' * 2_500}")
        if seed % 4 == 0:
            async with await tree.fork() as fork:
                with contextlib.suppress(SessionFailed):
                    await fork.main.send("and on")
            return fork.tree_id
        if seed % 3:
            await tree.finish("over")
    return tree.tree_id


def facts_on_disk(place: Path, tree_id: str) -> tuple[TreeConfig, list[JournalRecord]]:
    """Return the configuration and the facts of a stored tree."""
    with Journal.open(locate_journal(place / "state", tree_id), read_only=True) as journal:
        return read_config(journal.row0(tree_id)), journal.read(tree_id)


def trajectory_of(config: TreeConfig, records: list[JournalRecord]) -> dict[str, Any]:
    """Return the trajectory of facts."""
    out = io.BytesIO()
    with StepSpool() as spool:
        trajectory = TreeTrajectory(config, spool)
        for record in records:
            trajectory.add(record)
        trajectory.write(out)
    made: dict[str, Any] = json.loads(out.getvalue())
    return made
