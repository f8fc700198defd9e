"""How long a call waits for its approval on Ray, eight levels below the session whose word counts.

The clock starts in the asking session's process, in its model's ``reply`` that makes the call, and stops in
the first line of the tool's ``execute``, in the same process. Between them: preparing the call, the outcome
with the request to the supervisor, its commit, the climb, the answer and its commit, the way back, the call's
intent, its commit, and the word that it is durable (journal on, FULL; every commit is waited for). The tool
is Elevated, so every call asks; arguments differ each time, so no answer counts twice.

- `rule_ratio`: answered by a rule of Main, over raw_rpc_us; no session between has rules or a channel.
- `driver_ratio`: answered by a callable in this program, where Main's channel is, over raw_rpc_us.
- `rule_us`, `driver_us`: the same in microseconds; names ending in `_depth2`: asked two levels below Main.
- `raw_rpc_us`: ``await actor.method.remote()`` on a plain async actor of the same Ray, from this program's
  loop; `between_actors_us`: the same from another actor.

All are taken in turn, one of each after the other; medians of the rounds' medians.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from benchmarks.places import places
from benchmarks.raw_actor import RawActors
from benchmarks.report import Options, read_options, show
from benchmarks.rounds import Rounds
from sessiontree import (
    SESSIONS,
    ApprovalRequest,
    AssistantMessage,
    CallbackChannel,
    Limits,
    ModelRequest,
    PermissionTier,
    Rule,
    SessionHandle,
    SessionKind,
    SessionTree,
    ToolCall,
    ToolContext,
    tool,
)
from sessiontree.contracts.facts.tree_facts import SessionSpawned
from sessiontree.contracts.handles.ports import SpawnRequest
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.messages import TextContent, ToolResultMessage
from sessiontree.journal.replay import read_fact

DEPTH = 8
SHALLOW = 2
WARM_UPS = 3
LONG_S = 24 * 3600.0


class Asker:
    """Makes the call that a message names, then says what came of it."""

    name = "asker"

    def reply(self, request: ModelRequest) -> AssistantMessage:
        """Return the call, with the time of asking where it is to be timed, or the final message."""
        heard = request.messages[-1]
        if isinstance(heard, ToolResultMessage):
            return AssistantMessage((TextContent(heard.text),))
        given: dict[str, JsonValue] = {}
        if heard.text.startswith("by_"):
            given["asked_ns"] = time.monotonic_ns()
        return AssistantMessage((ToolCall("c1", heard.text, given),), "toolUse")


@tool
async def by_rule(asked_ns: int) -> int:
    """Tell how long ago the call was made, in nanoseconds."""
    return time.monotonic_ns() - asked_ns


@tool
async def by_driver(asked_ns: int) -> int:
    """Tell how long ago the call was made, in nanoseconds."""
    return time.monotonic_ns() - asked_ns


@tool(tier=PermissionTier.WORKSPACE, capabilities=[SESSIONS])
async def deepen(ctx: ToolContext) -> str:
    """Start a child that does the same; below the deepest session one that holds it alive."""
    deepest = ctx.session_id.count("/") == DEPTH
    kind, task = (SessionKind.WORKER, "hold") if deepest else (SessionKind.BRANCH, "deepen")
    return await ctx.require(SESSIONS).spawn(SpawnRequest(kind, task), key=ctx.call_id)


@tool(tier=PermissionTier.READ_ONLY, kinds=SessionKind, timeout_s=LONG_S)
async def hold() -> None:
    """Never return: while its session lives, so do those above it."""
    await asyncio.Event().wait()


def say_yes(request: ApprovalRequest) -> bool:
    """Approve whatever is shown."""
    return True


async def chain(tree: SessionTree) -> list[SessionHandle]:
    """Return sessions one below the other, Main first, that live as long as the tree does.

    Raises:
        RuntimeError: the last of them is not as deep as it should be.
    """
    await tree.main.send("deepen")
    async for record in tree.events():
        fact = read_fact(record.text)
        if isinstance(fact, SessionSpawned) and fact.spec.kind is SessionKind.WORKER:
            break
    sessions = [tree.session("/".join(["main", *["b1"] * depth])) for depth in range(DEPTH + 1)]
    found = [session.status().depth for session in sessions]
    if found != list(range(DEPTH + 1)):
        raise RuntimeError(f"the sessions of the chain lie at the depths {found}")
    return sessions


async def asked_us(session: SessionHandle, how: str) -> float:
    """Return the microseconds from a call to its first line."""
    return int(await session.send(how)) / 1e3


async def measure(options: Options) -> dict[str, float]:
    """Return the figures."""
    rounds, each = (5, 4) if options.quick else (9, 20)
    taken = Rounds()
    with places() as (workspace, state):
        tree = SessionTree(
            workspace,
            model=Asker(),
            tools=(by_rule, by_driver, deepen, hold),
            builtin_tools=False,
            limits=Limits(max_depth=DEPTH + 1, branch_ttl_s=None, worker_ttl_s=None),
            approvals="always",
            approver=[Rule(tool="by_rule", answer="approve")],
            channel=CallbackChannel(say_yes),
            state_dir=state,
            backend="ray",
        )
        async with tree, RawActors() as raw:
            sessions = await chain(tree)
            deep, shallow = sessions[DEPTH], sessions[SHALLOW]
            for session in [deep, shallow] * WARM_UPS:
                await asked_us(session, "by_rule")
                await asked_us(session, "by_driver")
            for _ in range(rounds):
                taken.begin()
                for _ in range(each):
                    taken.add("raw_rpc_us", await raw.call_us())
                    taken.add("rule_us", await asked_us(deep, "by_rule"))
                    taken.add("driver_us", await asked_us(deep, "by_driver"))
                    taken.add("between_actors_us", *await raw.between_us(1))
                    taken.add("rule_us_depth2", await asked_us(shallow, "by_rule"))
                    taken.add("driver_us_depth2", await asked_us(shallow, "by_driver"))
    raw_rpc_us = taken.median("raw_rpc_us")
    figures = {name: taken.median(name) for name in ("raw_rpc_us", "between_actors_us")}
    figures["depth"] = DEPTH
    for depth in ("", "_depth2"):
        for how in ("rule", "driver"):
            figures[f"{how}_us{depth}"] = taken.median(f"{how}_us{depth}")
            figures[f"{how}_ratio{depth}"] = figures[f"{how}_us{depth}"] / raw_rpc_us
    return figures


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    options = read_options(__doc__.splitlines()[0] if __doc__ else "", arguments)
    show(asyncio.run(measure(options)), options)


if __name__ == "__main__":
    main()
