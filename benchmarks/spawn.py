"""How long a session takes to come alive on Ray: from its parent's spawn call to its own first line.

The clock starts in the parent's process, in a tool of Main, right before ``ctx.require(SESSIONS).spawn(…)``,
and stops in the child's, in the first line there is of it: its model's ``reply``. Between them: the call to
the supervisor, the decision, the commit (journal on, FULL), the choice of a host, the way there, the adoption
and the child's first facts. Nothing about a child is known to anybody before the clock starts. Both times
are ``time.monotonic_ns``, which all processes of one machine share.

- `warm_spawn_us`, `jailed_warm_ms`: a Branch, and a Worker, whose process is read-only; a host that served an
  earlier child is free. The child's process id shows that it was that host.
- `jailed_cold_ms`, `cold_spawn_ms`: a Worker, and a Branch, with ``dedicated=True``: no host is there, one is
  started for it. The program spawns it, so the clock starts in ``handle.spawn``; a new process id shows that
  it was a new host.
- `raw_rpc_us`: ``await actor.method.remote()`` on a plain async actor of the same Ray, from this program's
  loop; `between_actors_us`: the same from another actor, as the parent's host calls the supervisor.
- `warm_ratio`: warm_spawn_us over raw_rpc_us; `cold_actor_ms`: from nothing to a plain actor's first answer.

All are taken in turn, one of each after the other; medians of the rounds' medians.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Sequence

from benchmarks.places import places
from benchmarks.raw_actor import RawActors
from benchmarks.report import Options, read_options, show
from benchmarks.rounds import Rounds
from sessiontree import (
    SESSIONS,
    AssistantMessage,
    Limits,
    ModelRequest,
    PermissionTier,
    SessionHandle,
    SessionKind,
    SessionTree,
    ToolContext,
    tool,
)
from sessiontree.contracts.handles.ports import SpawnRequest
from sessiontree.contracts.values.messages import TextContent

WARM_UPS = 5
TRIES = 5


class FirstLine:
    """Answers with the time at which it was asked, and the process it was asked in."""

    name = "first-line"

    def reply(self, request: ModelRequest) -> AssistantMessage:
        """Return both as JSON; a session that says it has nothing left to do."""
        asked_ns = time.monotonic_ns()
        return AssistantMessage((TextContent(json.dumps([asked_ns, os.getpid()])),))


@tool(tier=PermissionTier.WORKSPACE, capabilities=[SESSIONS])
async def start_child(kind: str, ctx: ToolContext) -> list[object]:
    """Start a child and tell its id, and when it was asked for."""
    request = SpawnRequest(SessionKind(kind), "Say when you began.")
    sessions = ctx.require(SESSIONS)
    started_ns = time.monotonic_ns()
    child = await sessions.spawn(request, key=ctx.call_id)
    return [child, started_ns]


class Nursery:
    """Spawns children of one tree and knows the processes that have served one."""

    def __init__(self, tree: SessionTree) -> None:
        """Begin with no process known."""
        self._tree = tree
        self._known: set[int] = set()

    async def warm_up(self, kind: SessionKind) -> None:
        """Start and end children until the same host serves them."""
        for _ in range(WARM_UPS):
            await self._spawn_inside(kind)

    async def warm_us(self, kind: SessionKind) -> float:
        """Return the microseconds to a child's first line on a host that has served before.

        Raises:
            RuntimeError: time and again another host was started for it.
        """
        for _ in range(TRIES):
            taken_us, is_new = await self._spawn_inside(kind)
            if not is_new:
                return taken_us
        raise RuntimeError(f"{TRIES} {kind} sessions running got a new host each: none was warm")

    async def cold_ms(self, kind: SessionKind) -> float:
        """Return the milliseconds to the first line of a child that gets a new host.

        Raises:
            RuntimeError: it did not get one.
        """
        started_ns = time.monotonic_ns()
        child = await self._tree.main.spawn(kind, "Say when you began.", dedicated=True)
        taken_us, is_new = await self._end(child, started_ns)
        if not is_new:
            raise RuntimeError(f"a dedicated {kind} began on a host that was there already: it was not cold")
        return taken_us / 1e3

    async def _spawn_inside(self, kind: SessionKind) -> tuple[float, bool]:
        reply = await self._tree.main.call("start_child", {"kind": kind})
        match reply.output:
            case [str() as child, int() as started_ns]:
                return await self._end(self._tree.session(child), started_ns)
        raise RuntimeError(f"start_child answered {reply.text!r}")

    async def _end(self, child: SessionHandle, started_ns: int) -> tuple[float, bool]:
        """Return the microseconds to its first line and whether its process is new; Main is at rest then."""
        asked_ns, pid = json.loads((await child.result()).summary)
        await self._tree.main.send("Let what was delivered be heard.")
        is_new = pid not in self._known
        self._known.add(pid)
        return (asked_ns - started_ns) / 1e3, is_new


async def measure(options: Options) -> dict[str, float]:
    """Return the figures."""
    rounds, each = (2, 3) if options.quick else (9, 20)
    taken = Rounds()
    with places() as (workspace, state):
        tree = SessionTree(
            workspace,
            model=FirstLine(),
            tools=(start_child,),
            builtin_tools=False,
            limits=Limits(max_total=100_000),
            state_dir=state,
            backend="ray",
        )
        async with tree, RawActors() as raw:
            nursery = Nursery(tree)
            await nursery.warm_up(SessionKind.BRANCH)
            await nursery.warm_up(SessionKind.WORKER)
            for _ in range(rounds):
                taken.begin()
                for _ in range(each):
                    taken.add("raw_rpc_us", await raw.call_us())
                    taken.add("warm_spawn_us", await nursery.warm_us(SessionKind.BRANCH))
                    taken.add("between_actors_us", *await raw.between_us(1))
                    taken.add("jailed_warm_us", await nursery.warm_us(SessionKind.WORKER))
                taken.add("cold_actor_ms", await raw.cold_ms())
                taken.add("jailed_cold_ms", await nursery.cold_ms(SessionKind.WORKER))
                taken.add("cold_spawn_ms", await nursery.cold_ms(SessionKind.BRANCH))
    raw_rpc_us, warm_spawn_us = taken.median("raw_rpc_us"), taken.median("warm_spawn_us")
    return {
        "raw_rpc_us": raw_rpc_us,
        "between_actors_us": taken.median("between_actors_us"),
        "warm_spawn_us": warm_spawn_us,
        "warm_ratio": warm_spawn_us / raw_rpc_us,
        "cold_actor_ms": taken.median("cold_actor_ms"),
        "cold_spawn_ms": taken.median("cold_spawn_ms"),
        "jailed_warm_ms": taken.median("jailed_warm_us") / 1e3,
        "jailed_cold_ms": taken.median("jailed_cold_ms"),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    options = read_options(__doc__.splitlines()[0] if __doc__ else "", arguments)
    show(asyncio.run(measure(options)), options)


if __name__ == "__main__":
    main()
