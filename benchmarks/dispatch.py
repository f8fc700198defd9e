"""What one model turn plus one no-op call costs, in microseconds; with ``--backend ray`` a durable one too.

Timed on the local backend, of ReadOnly calls, with the journal on (FULL) and every acknowledgement inside the
clock: from `send` to its reply, so from the message over all turns to the final message being durable and
handed back.

- `turn20_us`: a 20-turn run divided by its turns, median of runs; each run is one message to one session.
- `turn1000_us`: mean of turns 951 to 1,000 of one 1,000-turn run, by the times at which the model was asked.
- `parallel32_us`: one reply with 32 calls, per call.
- `cpu_us`: processor time of the whole process, all threads, per turn of the 20-turn runs.
- `floor_us`: the same turns and calls by a hand-written loop: validate, call, append; no rules, no journal.
- `ratio_1000`: turn1000_us over the mean of turns 11 to 20 of the same run, both by the same clock.
- `policy_us`, `policy_ratio`: a policy's decision over 30 tools, and the same over a bare look-up; see
  ``benchmarks.policy``.
- `validate_us`: the arguments of one such call, from JSON values to the tool's own parameters.

With ``--peers`` other libraries do the same 20 turns in rounds with ours; see ``benchmarks.dispatch_peers``:

- `turn20_us` is then ours of the same rounds; `hooked20_us`: the same with a hook before every call.
- `peers`: by name its `version` and `turn20_us`; `ratio_best_peer`: the fastest one's over ours.

With ``--backend ray`` these come too, measured on Ray (journal on, FULL, every acknowledgement inside the
clock), one of each in turn, medians of the rounds' medians; the figures above stay the local backend's:

- `durable_us`: a turn with one Workspace-tier no-op call inside a session, its intent durable before it runs:
  from `send` to its reply, over 20 turns, divided by them.
- `handle_call_us`: the same call from this program: from `handle.call` to its result.
- `raw_rpc_us`: ``await actor.method.remote()`` on a plain async actor of the same Ray, from this program's
  loop; `between_actors_us`: the same from another actor.
- `durable_ratio`, `handle_call_ratio`: these over raw_rpc_us.
"""

from __future__ import annotations

import asyncio
import importlib
import statistics
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from benchmarks import dispatch_peers, policy
from benchmarks.places import places
from benchmarks.report import Figure, read_options, show
from benchmarks.turns import ARGUMENTS, Nothing, NothingParams, TurnModel
from sessiontree import Limits, SessionTree
from sessiontree.contracts.errors import SessionTreeError
from sessiontree.schema.compiled import compile_tool

BACKENDS = ("local", "ray")
FORMS = ((), ("--backend", "ray"))


async def _runs(turns: int, calls: int, runs: int) -> tuple[list[float], list[float], list[float]]:
    """Return seconds of each run, processor seconds of each run, and the last run's times of asking."""
    model = TurnModel(turns, calls)
    with places() as (workspace, state):
        tree = SessionTree(
            workspace,
            model=model,
            tools=(Nothing(),),
            builtin_tools=False,
            limits=Limits(max_turns=10_000, max_repeats=None),
            state_dir=state,
            backend="local",
        )
        async with tree:
            await tree.main.send("warm up")
            walls: list[float] = []
            processor: list[float] = []
            for _ in range(runs):
                model.asked.clear()
                before = time.process_time()
                started = time.perf_counter()
                await tree.main.send("go")
                walls.append(time.perf_counter() - started)
                processor.append(time.process_time() - before)
    return walls, processor, model.asked


def _floor(turns: int) -> float:
    """Return the seconds a hand-written loop needs for the same turns."""
    model = TurnModel(turns)
    messages: list[Any] = []
    request: Any = None

    async def loop() -> None:
        while calls := model.reply(request).tool_calls:
            for call in calls:
                params = NothingParams.model_validate(call.arguments)
                result = await tool.execute(params, request)
                messages.append((call.id, result.text_for_model()))

    tool = Nothing()
    started = time.perf_counter()
    asyncio.run(loop())
    return time.perf_counter() - started


def _validate_us(times: int) -> float:
    """Return the microseconds of validating the arguments of one call."""
    validate = partial(compile_tool(Nothing()).validate, ARGUMENTS)
    return statistics.median(policy.microseconds(validate, times) for _ in range(5))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print; without the peers that were asked for, say how to get them."""
    options = read_options(
        __doc__.splitlines()[0] if __doc__ else "", arguments, backends=BACKENDS, peers=True
    )
    compared: dict[str, Figure] = {}
    if options.peers:
        try:
            compared = asyncio.run(dispatch_peers.measure(quick=options.quick))
        except SessionTreeError as error:
            sys.exit(f"benchmarks.dispatch: {error}")
    runs = 10 if options.quick else 60
    long_turns = 300 if options.quick else 1000
    walls, processor, _ = asyncio.run(_runs(20, 1, runs))
    parallel, _, _ = asyncio.run(_runs(1, 32, runs))
    early: list[float] = []
    late: list[float] = []
    for _ in range(1 if options.quick else 5):
        _, _, asked = asyncio.run(_runs(long_turns, 1, 1))
        early.append((asked[20] - asked[10]) / 10)
        late.append((asked[long_turns] - asked[long_turns - 50]) / 50)
    floor = statistics.median(_floor(2000) / 2000 for _ in range(5))
    figures: dict[str, Figure] = {
        "turn20_us": statistics.median(walls) / 20 * 1e6,
        "turn1000_us": statistics.median(late) * 1e6,
        "parallel32_us": statistics.median(parallel) / 32 * 1e6,
        "cpu_us": statistics.median(processor) / 20 * 1e6,
        "floor_us": floor * 1e6,
        "ratio_1000": statistics.median(b / a for a, b in zip(early, late, strict=True)),
    }
    decided = policy.measure(quick=options.quick)
    figures |= {name: decided[name] for name in ("policy_us", "policy_ratio")}
    figures |= {"validate_us": _validate_us(20_000), **compared}
    if options.backend == "ray":
        # Loaded by name, and last: the local figures are those of a process without Ray.
        figures |= asyncio.run(importlib.import_module("benchmarks.dispatch_ray").measure(options.quick))
    show(figures, options)


if __name__ == "__main__":
    main()
