"""Other agent libraries at the same work, each in a process of its own, one round of each in turn with ours.

They stand in ``.venv-bench``, made by ``make setup-bench`` from ``benchmarks/peers.txt``. A run is a message,
20 turns with one call each, its two arguments validated by pydantic, and the final message; the model is a
procedure that answers at once. Ours has its journal on (FULL) and lists of tools to decide over, and its
clock stops once the final message is durable and handed back. Peers keep nothing on disk.
"""

from __future__ import annotations

import asyncio
import json
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks.places import places
from benchmarks.rounds import Rounds
from benchmarks.turns import Nothing, TurnModel
from sessiontree import Limits, SessionTree
from sessiontree.contracts.errors import ConfigError, SessionTreeError
from sessiontree.contracts.tools.hooks import CalledTool, Hook, HookContext
from sessiontree.policy.settings import PolicyConfig, ToolPolicy

CHECKOUT = Path(__file__).resolve().parent.parent
ENVIRONMENT = CHECKOUT / ".venv-bench"
TURNS = 20
OWN = "sessiontree"
HOOKED = "sessiontree with a hook"
PEERS = {
    "pydantic-ai": "benchmarks.peers.pydantic_ai",
    "openai-agents": "benchmarks.peers.openai_agents",
    "langgraph": "benchmarks.peers.langgraph",
    "autogen-agentchat": "benchmarks.peers.autogen",
}
"""Peers, and the modules that do the work with them."""
POLICY = PolicyConfig(tools=ToolPolicy(allow=("*",), deny=("exec", "group:web")))
Run = Callable[[], Awaitable[None]]


class Agreeing(Hook):
    """Is asked about every call and has nothing to say."""

    async def before_tool_call(self, call: CalledTool, ctx: HookContext) -> None:
        """Let the call run."""


class Peer:
    """One peer's process, asked to run so and so often.

    Args:
        name: What the figures call it.
        process: Its process, which serves.
    """

    def __init__(self, name: str, process: Process) -> None:
        """Bind the process."""
        self._name = name
        self._process = process
        self.version = ""

    async def begin(self) -> None:
        """Wait until it is warm."""
        self.version = str((await self._answer())["version"])

    async def seconds(self, runs: int) -> list[float]:
        """Return what each run took."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{runs}\n".encode())
        return [float(each) for each in (await self._answer())["seconds"]]

    async def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise SessionTreeError(f"{self._name} ended with exit code {await self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


@asynccontextmanager
async def peer(name: str, module: str, python: Path) -> AsyncIterator[Peer]:
    """Start a peer with an interpreter that has it, and end it."""
    serve = ("-m", "benchmarks.peers.serve", module, str(TURNS))
    process = await asyncio.create_subprocess_exec(python, *serve, cwd=CHECKOUT, stdin=PIPE, stdout=PIPE)
    try:
        served = Peer(name, process)
        await served.begin()
        yield served
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def ours(hooks: Sequence[Hook] = ()) -> AsyncIterator[Run]:
    """Open a tree and yield what runs its Main once."""
    with places() as (workspace, state):
        tree = SessionTree(
            workspace,
            model=TurnModel(TURNS),
            tools=(Nothing(),),
            builtin_tools=False,
            limits=Limits(max_turns=10_000, max_repeats=None),
            state_dir=state,
            backend="local",
            policy=POLICY,
            hooks=hooks,
        )
        async with tree:

            async def run() -> None:
                assert await tree.main.send("go") == "done"

            await run()
            yield run


async def measure(*, quick: bool, environment: Path = ENVIRONMENT) -> dict[str, Any]:
    """Return the figures.

    Raises:
        ConfigError: the peers are not installed.
        SessionTreeError: one of them can't do the work.
    """
    python = environment / "bin" / "python"
    if not (environment / ".built").is_file() or not python.exists():
        raise ConfigError("--peers: the peers are not installed; `make setup-bench` installs them")
    rounds, runs = (5, 5) if quick else (9, 20)
    taken = Rounds()
    async with AsyncExitStack() as stack:
        peers = {
            name: await stack.enter_async_context(peer(name, module, python))
            for name, module in PEERS.items()
        }
        own = {
            OWN: await stack.enter_async_context(ours()),
            HOOKED: await stack.enter_async_context(ours([Agreeing()])),
        }
        for _ in range(rounds):
            taken.begin()
            for name, each in peers.items():
                taken.add(name, *await each.seconds(runs))
            for name, run in own.items():
                for _ in range(runs):
                    started = time.perf_counter()
                    await run()
                    taken.add(name, time.perf_counter() - started)
    turn_us = {name: taken.median(name) / TURNS * 1e6 for name in (*peers, *own)}
    return {
        "turn20_us": turn_us[OWN],
        "hooked20_us": turn_us[HOOKED],
        "peers": {
            name: {"version": each.version, "turn20_us": turn_us[name]} for name, each in peers.items()
        },
        "ratio_best_peer": min(turn_us[name] for name in peers) / turn_us[OWN],
    }
