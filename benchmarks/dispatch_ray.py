"""The part of the dispatch benchmark that runs on Ray; what is timed is in ``dispatch.py``."""

from __future__ import annotations

import time

from benchmarks.places import places
from benchmarks.raw_actor import RawActors
from benchmarks.rounds import Rounds
from benchmarks.turns import ARGUMENTS, NoChange, TurnModel
from sessiontree import Limits, SessionTree

TURNS = 20


async def measure(quick: bool) -> dict[str, float]:
    """Return the figures by name."""
    rounds, each = (5, 4) if quick else (9, 20)
    taken = Rounds()
    with places() as (workspace, state):
        tree = SessionTree(
            workspace,
            model=TurnModel(TURNS, tool=NoChange.name),
            tools=(NoChange(),),
            builtin_tools=False,
            limits=Limits(max_repeats=None),
            state_dir=state,
            backend="ray",
        )
        async with tree, RawActors() as raw:
            for _ in range(3):
                await _turn_us(tree)
                await _call_us(tree)
            for _ in range(rounds):
                taken.begin()
                for _ in range(each):
                    taken.add("raw_rpc_us", await raw.call_us())
                    taken.add("durable_us", await _turn_us(tree))
                    taken.add("between_actors_us", *await raw.between_us(1))
                    taken.add("handle_call_us", await _call_us(tree))
    names = ("raw_rpc_us", "between_actors_us", "durable_us", "handle_call_us")
    figures = {name: taken.median(name) for name in names}
    figures["durable_ratio"] = figures["durable_us"] / figures["raw_rpc_us"]
    figures["handle_call_ratio"] = figures["handle_call_us"] / figures["raw_rpc_us"]
    return figures


async def _turn_us(tree: SessionTree) -> float:
    """Return the microseconds a turn takes, of a message that leads to some turns with a call each."""
    started_ns = time.monotonic_ns()
    await tree.main.send("go")
    return (time.monotonic_ns() - started_ns) / 1e3 / TURNS


async def _call_us(tree: SessionTree) -> float:
    """Return the microseconds of a call from this program."""
    started_ns = time.monotonic_ns()
    await tree.main.call(NoChange.name, ARGUMENTS)
    return (time.monotonic_ns() - started_ns) / 1e3
