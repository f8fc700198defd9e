"""How many sessions a second one tree completes: Branches below Main, Workers below each Branch.

At 10,000 sessions the tree has 100 Branches with 99 Workers each; other numbers have as many Branches as
Workers below each, as nearly as possible. Main starts the Branches, and each Branch its Workers, in one call
of a tool. Every session makes a ReadOnly call whose arguments are validated, and reports to its parent, which
hears every report. All facts are durable (FULL). The model replies at once, in the process of its session.

The clock starts when Main is sent its message and stops when the last session has ended. A small tree of the
same shape runs before that, so that hosts and code are warm.

- `sessions`, `wall_s`, `sessions_per_s`; `warmup_s`: opening the runtime, and the small tree.
- `facts_per_session`: facts in the journal when the last session has ended, over `sessions`.
- `cpu_ms_per_session`: processor time of each kind of process over `sessions`; all of them: ``all``.
- `live_actors_max`: the most hosts at a time; 0 on the local backend. `idle_pss_mib`, `peak_pss_mib`: memory
  of all processes, Ray's own included, before the tree is opened, and at most (sampled once a second).
- `raw_actors_per_s`: plain actors of the same Ray that are started one after another until each answers;
  `ratio_raw`: sessions_per_s over it. Both only on Ray.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence

from benchmarks.places import places
from benchmarks.processes import MIB, Peak, cpu_ms, measured, pss_bytes
from benchmarks.raw_actor import RawActors
from benchmarks.report import Figure, Options, show_sessions
from benchmarks.turns import ARGUMENTS, Nothing
from sessiontree import (
    SESSIONS,
    AssistantMessage,
    Limits,
    ModelRequest,
    PermissionTier,
    Runtime,
    SessionKind,
    SessionStatus,
    SessionTree,
    ToolCall,
    ToolContext,
    tool,
)
from sessiontree.contracts.handles.ports import SpawnRequest
from sessiontree.contracts.values.messages import TextContent

FORMS = ((), ("--backend", "local"))
SESSIONS_USUAL, SESSIONS_QUICK, SESSIONS_WARM_UP = 10_000, 60, 30
RAW_ACTORS = 4


@tool(tier=PermissionTier.WORKSPACE, capabilities=[SESSIONS])
async def start_children(kind: str, tasks: list[str], ctx: ToolContext) -> int:
    """Start a child for each task; return how many were started."""
    sessions = ctx.require(SESSIONS)
    async with asyncio.TaskGroup() as group:
        for number, task in enumerate(tasks):
            request = SpawnRequest(SessionKind(kind), task)
            group.create_task(sessions.spawn(request, key=f"{ctx.call_id}.{number}"))
    return len(tasks)


class FamilyModel:
    """Main starts a Branch for each number in its message, a Branch as many Workers as its task says."""

    name = "family"

    def reply(self, request: ModelRequest) -> AssistantMessage:
        """Return the calls of the first turn, then a text."""
        if request.turn > 1:
            return AssistantMessage((TextContent("checked"),))
        look = ToolCall("look", "nothing", ARGUMENTS)
        if request.kind is SessionKind.WORKER:
            return AssistantMessage((look,), "toolUse")
        asked = request.messages[0].text
        if request.kind is SessionKind.MAIN:
            kind, tasks = "branch", asked.split()
        else:
            kind, tasks = "worker", ["look"] * int(asked)
        start = ToolCall("start", "start_children", {"kind": kind, "tasks": list(tasks)})
        return AssistantMessage((look, start), "toolUse")


def shape(sessions: int) -> list[int]:
    """Return for each Branch how many Workers it has; with the Branches they are so many sessions."""
    branches = max(1, math.isqrt(sessions))
    each, more = divmod(sessions - branches, branches)
    return [each + (number < more) for number in range(branches)]


async def run(runtime: Runtime, tree: SessionTree, sessions: int) -> tuple[float, int]:
    """Run a tree of so many sessions; return the seconds, and the number of facts.

    Raises:
        RuntimeError: not all of them completed, or there are more or fewer.
    """
    workers = shape(sessions)
    started = time.monotonic()
    await tree.main.send(" ".join(map(str, workers)))
    async with asyncio.TaskGroup() as group:
        for number in range(len(workers)):
            group.create_task(tree.session(f"main/b{number + 1}").result())
    wall_s = time.monotonic() - started
    await tree.main.send("Hear what was delivered.")
    ended = [line for line in tree.receipt() if line.session_id != "main"]
    done = sum(line.status is SessionStatus.COMPLETED for line in ended)
    if (len(ended), done) != (sessions, sessions):
        raise RuntimeError(f"{done} of {len(ended)} sessions completed; {sessions} were asked for")
    supervisor = runtime.backend.supervisor
    return wall_s, await supervisor.last_seq(tree.tree_id)


async def measure(options: Options) -> dict[str, Figure]:
    """Return the figures."""
    limits = Limits(
        max_children=options.sessions,
        max_live=2 * options.sessions,
        max_total=2 * options.sessions,
        branch_ttl_s=None,
        worker_ttl_s=None,
    )
    with places() as (workspace, state):
        started = time.monotonic()
        async with Runtime(state, backend="local" if options.backend == "local" else "ray") as runtime:

            def open_tree() -> SessionTree:
                return SessionTree(
                    workspace,
                    model=FamilyModel(),
                    tools=(Nothing(), start_children),
                    builtin_tools=False,
                    limits=limits,
                    runtime=runtime,
                )

            async with open_tree() as small:
                await run(runtime, small, min(SESSIONS_WARM_UP, options.sessions))
            warmup_s = time.monotonic() - started
            idle = await measured(runtime, pss_bytes)
            before = await measured(runtime, cpu_ms)
            async with Peak(runtime) as peak, open_tree() as tree:
                wall_s, facts = await run(runtime, tree, options.sessions)
            used = await measured(runtime, cpu_ms)
            used.subtract(before)
            raw_per_s = await raw_actors_per_s() if options.backend == "ray" else 0.0
    sessions, rate = options.sessions, options.sessions / wall_s
    figures: dict[str, Figure] = {
        "sessions": sessions,
        "wall_s": wall_s,
        "warmup_s": warmup_s,
        "sessions_per_s": rate,
        "facts_per_session": facts / sessions,
        "live_actors_max": peak.hosts,
        "idle_pss_mib": idle.total() / MIB,
        "peak_pss_mib": peak.pss_mib,
        "cpu_ms_per_session": {
            "all": used.total() / sessions,
            **{kind: used[kind] / sessions for kind in sorted(used) if used[kind]},
        },
    }
    if raw_per_s:
        figures |= {"raw_actors_per_s": raw_per_s, "ratio_raw": rate / raw_per_s}
    return figures


async def raw_actors_per_s() -> float:
    """Return how many plain actors a second can be started, one after another."""
    async with RawActors() as raw:
        taken_ms = [await raw.cold_ms() for _ in range(RAW_ACTORS)]
    return 1000 * len(taken_ms) / sum(taken_ms)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    show_sessions(measure, __doc__, arguments, (SESSIONS_USUAL, SESSIONS_QUICK))


if __name__ == "__main__":
    main()
