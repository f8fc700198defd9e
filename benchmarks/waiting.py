"""How long many sessions take that mostly wait for their model, and what a waiting session costs in memory.

1,000 Workers run at the same time on few hosts. Each asks its model five times, with a ReadOnly call between
two questions, and each reply takes as long as given. If waiting cost nothing, all of them would take five
replies' time; that is ideal. The clock starts with the first spawn and stops with the last result.

- `sessions`, `replies`; `wait_s`, `ideal_s`, `wall_s`, `ratio` (wall over ideal) for replies of 2 s; the same
  with ``short_`` for replies of 0.5 s.
- `kib_per_waiting`: growth of supervisor, gateway and program over `sessions`, at the highest sample (one a
  second) of the run with replies of 2 s; `growth_kib`: the same by kind of process.
- `live_actors_max`: the most hosts at a time; 0 on the local backend.
- `cpu_ms_per_turn`: processor time of all processes over sessions and replies, of the same run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final, Literal

from benchmarks.places import places
from benchmarks.processes import Peak, cpu_ms, measured, pss_bytes
from benchmarks.report import Figure, Options, show_sessions
from benchmarks.turns import ARGUMENTS, Nothing
from sessiontree import AssistantMessage, Limits, ModelRequest, Runtime, SessionKind, SessionTree, ToolCall
from sessiontree.contracts.values.messages import TextContent
from sessiontree.models.port import EmitEvent

FORMS = ((), ("--backend", "local"))
SESSIONS_USUAL, SESSIONS_QUICK = 1_000, 24
REPLIES: Final = 5
WAIT_S, SHORT_WAIT_S = 2.0, 0.5
QUICK_WAIT_S, QUICK_SHORT_WAIT_S = 0.4, 0.1
HOSTS: Final = 8
ROWS = ("supervisor", "gateway", "program")
"""The kinds of process in which a waiting session may take room."""


class SlowModel:
    """Takes some time for every reply of a Worker: calls first, a text at the end."""

    name = "slow"

    def __init__(self, wait_s: float) -> None:
        """Take ``wait_s`` seconds for each reply."""
        self._wait_s = wait_s

    async def complete(self, request: ModelRequest, emit: EmitEvent) -> AssistantMessage:
        """Return the reply when its time has come; Main is not made to wait."""
        if request.kind is SessionKind.MAIN:
            return AssistantMessage((TextContent("heard"),))
        await asyncio.sleep(self._wait_s)
        if request.turn < REPLIES:
            return AssistantMessage((ToolCall("look", "nothing", ARGUMENTS),), "toolUse")
        return AssistantMessage((TextContent("checked"),))


async def run(tree: SessionTree, sessions: int) -> float:
    """Run the Workers; return the seconds until the last one has ended."""
    started = time.monotonic()
    await tree.main.map("worker", ["look"] * sessions, concurrency=sessions, on_error="raise")
    return time.monotonic() - started


async def measure(options: Options) -> dict[str, Figure]:
    """Return the figures."""
    sessions = options.sessions
    wait_s, short_wait_s = (QUICK_WAIT_S, QUICK_SHORT_WAIT_S) if options.quick else (WAIT_S, SHORT_WAIT_S)
    limits = Limits(
        max_children=sessions,
        max_live=2 * sessions,
        max_total=3 * sessions,
        max_repeats=None,
        worker_ttl_s=None,
    )
    with places() as (workspace, state):
        backend: Literal["local", "ray"] = "local" if options.backend == "local" else "ray"
        async with Runtime(state, backend=backend, slots=HOSTS) as runtime:

            def open_tree(wait_s: float) -> SessionTree:
                return SessionTree(
                    workspace,
                    model=SlowModel(wait_s),
                    tools=(Nothing(),),
                    builtin_tools=False,
                    limits=limits,
                    runtime=runtime,
                )

            async with open_tree(0.0) as small:
                await run(small, min(sessions, 2 * HOSTS))
            held, used = await measured(runtime, pss_bytes), await measured(runtime, cpu_ms)
            async with open_tree(wait_s) as tree, Peak(runtime) as peak:
                wall_s = await run(tree, sessions)
            cpu = await measured(runtime, cpu_ms)
            cpu.subtract(used)
            async with open_tree(short_wait_s) as tree:
                short_wall_s = await run(tree, sessions)
    growth = {kind: (peak.pss_bytes[kind] - held[kind]) / 1024 / sessions for kind in sorted(peak.pss_bytes)}
    return {
        "sessions": sessions,
        "replies": REPLIES,
        "wait_s": wait_s,
        "ideal_s": REPLIES * wait_s,
        "wall_s": wall_s,
        "ratio": wall_s / (REPLIES * wait_s),
        "short_wait_s": short_wait_s,
        "short_wall_s": short_wall_s,
        "short_ratio": short_wall_s / (REPLIES * short_wait_s),
        "live_actors_max": peak.hosts,
        "kib_per_waiting": sum(growth.get(kind, 0.0) for kind in ROWS),
        "growth_kib": growth,
        "cpu_ms_per_turn": cpu.total() / sessions / REPLIES,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    show_sessions(measure, __doc__, arguments, (SESSIONS_USUAL, SESSIONS_QUICK))


if __name__ == "__main__":
    main()
